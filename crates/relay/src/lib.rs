//! The datagram tee: one receiving thread writes each datagram once into a ring, every target reads it from there.

mod options;
mod prefix;

pub use options::{
    Destination, FileFormat, FileOptions, Gso, ListenerOptions, Sample, SampleBy, Schedule,
    SocketOwner, TargetOptions,
};
pub use prefix::{Prefix, PrefixError};

/// Smallest ring, in bytes: one receive batch of the largest datagrams must fit twice.
pub const RING_BYTES_MIN: usize = 8 * 1024 * 1024;
