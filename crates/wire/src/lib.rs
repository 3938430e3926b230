//! Decodes and encodes netlink framing, `inet_diag`, files of captured netlink messages, syslog, sFlow, and the header
//! of the PROXY protocol.
//!
//! No I/O, no clock, no panics: bad bytes give a [`DecodeError`] or [`sflow::Malformed`] that names its class, or an
//! unparsed syslog message.

#![forbid(unsafe_code)]

mod bytes;
pub mod capture;
mod error;
pub mod inet_diag;
pub mod netlink;
pub mod proxy;
pub mod sflow;
pub mod syslog;

pub use error::DecodeError;
