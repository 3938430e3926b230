//! Describes, in words, what a search for network namespaces did not see.

use crate::access::{Access, Found, Scope};
use sys::process::{CAP_SYS_PTRACE, effective_capabilities};
use text::plural;

/// The sentence about processes whose network namespaces cannot be seen, and about what would show them.
pub fn hidden_namespaces(access: &dyn Access, processes: u64) -> String {
    // A helper that lacks a capability reports that itself.
    let lacking = if access.is_direct() { without_ptrace() } else { "" };
    let processes = plural(processes, "process", "processes");
    format!(
        "the network namespaces of {processes} cannot be seen{lacking}; sockets that exist only in those namespaces are missing"
    )
}

/// What this process lacks to look into others, as a continuation of a sentence. Empty if it has the capability: CAP_SYS_PTRACE
/// alone does not suffice for a process with more capabilities than ours (kernel/ptrace.c, __ptrace_may_access).
pub fn without_ptrace() -> &'static str {
    let held = effective_capabilities().unwrap_or_default();
    if held & 1 << CAP_SYS_PTRACE == 0 { " without CAP_SYS_PTRACE" } else { "" }
}

/// The names in a scope that no namespace has.
pub fn absent<'a>(scope: &'a Scope, found: &[Found]) -> Vec<&'a str> {
    let Scope::Named(names) = scope else { return Vec::new() };
    let is_absent = |name: &&str| !found.iter().any(|found| found.name.as_deref() == Some(name));
    names.iter().map(String::as_str).filter(is_absent).collect()
}

/// The sentence about a name that no namespace has.
pub fn no_such_namespace(name: &str) -> String {
    let name = name.escape_debug();
    format!("there is no network namespace {name}. Fix: write one that `ip netns` lists")
}
