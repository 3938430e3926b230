//! Where records leave: a bounded queue and a thread for each destination. A slow or dead one holds no other, nor the source.

#![forbid(unsafe_code)]

pub mod receive;

mod datagrams;
mod destination;
mod error;
mod events;
mod fanout;
mod file;
mod null;
mod payload;
mod queue;
mod sink;
mod stream;
mod udp;

pub use error::Error;
pub use fanout::{Fanout, SinkOptions};
pub use file::FileOptions;
pub use payload::Payload;
pub use queue::QueueLimits;
pub use sink::{Destination, Framing, Sink};
pub use udp::UdpOptions;
