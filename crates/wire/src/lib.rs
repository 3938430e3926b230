//! Bytes to types and back: netlink framing, `inet_diag`, and files of captured netlink messages.
//!
//! No I/O, no clock, no panic: bad bytes are a [`DecodeError`] that names its class.

#![forbid(unsafe_code)]

mod bytes;
pub mod capture;
mod error;
pub mod inet_diag;
pub mod netlink;

pub use error::DecodeError;
