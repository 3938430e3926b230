//! The TCP socket collector: every TCP socket of every network namespace, and those that close between polls.

#![forbid(unsafe_code)]

pub mod attribution;
pub mod filter;
