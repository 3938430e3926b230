//! What a search for network namespaces did not see, in words.

use crate::access::{Access, Found, Scope};
use sys::process::{CAP_SYS_PTRACE, effective_capabilities};
use text::plural;

/// The sentence about processes whose network namespaces cannot be seen, with what would show them.
pub fn hidden_namespaces(access: &dyn Access, processes: u64) -> String {
    // A helper that lacks something says so itself.
    let lacking = if access.is_direct() { without_ptrace() } else { "" };
    let processes = plural(processes, "process", "processes");
    format!(
        "the network namespaces of {processes} cannot be seen{lacking}; sockets in namespaces of theirs alone are missing"
    )
}

/// What this process lacks to look into others', to follow a sentence; empty if it has that: a process that may do more than
/// we cannot be looked into by CAP_SYS_PTRACE alone (kernel/ptrace.c, __ptrace_may_access).
pub fn without_ptrace() -> &'static str {
    let held = effective_capabilities().unwrap_or_default();
    if held & 1 << CAP_SYS_PTRACE == 0 { " without CAP_SYS_PTRACE" } else { "" }
}

/// The names of a scope that no namespace has.
pub fn absent<'a>(scope: &'a Scope, found: &[Found]) -> Vec<&'a str> {
    let Scope::Named(names) = scope else { return Vec::new() };
    let is_absent = |name: &&str| !found.iter().any(|found| found.name.as_deref() == Some(name));
    names.iter().map(String::as_str).filter(is_absent).collect()
}

/// The sentence about a name that no namespace has.
pub fn no_such_namespace(name: &str) -> String {
    let name = name.escape_debug();
    format!("there is no network namespace {name}; `ip netns` lists those with names")
}
