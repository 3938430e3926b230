//! Tests of the system calls on the running kernel.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cgroups;
mod confined;
mod isolate;
mod links;
mod namespace_changes;
mod namespaces;
mod netlink;
mod path_mtu;
mod traffic;
