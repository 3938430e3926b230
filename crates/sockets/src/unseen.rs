//! Describes, in words, what a search for network namespaces did not see.

use crate::access::{Access, Found, Scope};
use sys::namespace::Scan;
use sys::process::{CAP_SYS_PTRACE, effective_capabilities};
use text::plural;

/// The sentence about processes whose network namespaces cannot be seen, and about what would show them.
pub fn hidden_namespaces(access: &dyn Access, scan: &Scan) -> String {
    // A helper that lacks a capability reports that itself.
    let lacking = if access.is_direct() { without_ptrace() } else { "" };
    let processes = plural(scan.unreadable_processes.into(), "process", "processes");
    let which = which(scan);
    format!(
        "the network namespaces of {processes}{which} cannot be seen{lacking}; sockets that exist only in those namespaces are missing"
    )
}

/// The ids of the processes, as far as they are known: ` (1, 77, …)`.
fn which(scan: &Scan) -> String {
    let mut ids: Vec<String> =
        scan.unreadable_first.iter().filter(|id| **id != 0).map(u32::to_string).collect();
    if ids.is_empty() {
        return String::new();
    }
    if scan.unreadable_processes as usize > ids.len() {
        ids.push("…".to_owned());
    }
    format!(" ({})", ids.join(", "))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processes_that_hide_a_namespace_are_named() {
        let scan = |number, first| Scan {
            unreadable_processes: number,
            unreadable_first: first,
            ..Scan::default()
        };
        assert_eq!(which(&scan(1, [1, 0, 0])), " (1)");
        assert_eq!(which(&scan(9, [1, 7, 8])), " (1, 7, 8, …)");
        assert_eq!(which(&scan(9, [0; 3])), "");
    }
}
