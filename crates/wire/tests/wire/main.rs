//! Bytes from the kernel, from files and from random mutation, to types and back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod capture;
mod capture_lacks;
mod inet_diag;
mod kernel;
mod mutations;
mod netlink;
mod proxy;
mod replies;
mod sflow;
mod support;
mod syslog;
mod tcp_info;
