//! Where records leave: a bounded queue and a thread for each destination. A slow or dead one holds no other, nor the source.
//!
//! A [`Fanout`] takes records and totals, encodes each once for all sinks that want it in the same form, and hands whole
//! payloads to [`Sink`]s. A sink moves payloads and knows no format. What a UDP sink sends is received by
//! [`receive::Receiver`], which knows how many records are missing.
//!
//! ```
//! use record::{Encoding, FieldSet, PollTotals, SocketRecord};
//! use sink::{Fanout, QueueLimits, SinkOptions};
//! use std::time::{Duration, Instant};
//!
//! # fn main() -> Result<(), sink::Error> {
//! let options = SinkOptions {
//!     name: "nowhere".into(),
//!     queue: QueueLimits::default(),
//!     destination: sink::null(),
//!     encoding: Encoding::Jsonl,
//!     fields: FieldSet::ALL,
//! };
//! let mut fanout = Fanout::open("sockets", vec![options])?;
//! let meters = fanout.meters(); // for the ledger
//! fanout.record(&SocketRecord { rtt_us: Some(180), ..SocketRecord::default() });
//! fanout.end_of_poll(&PollTotals { poll: Some(1), ..PollTotals::default() });
//! let left = fanout.stop(Instant::now() + Duration::from_secs(5));
//! assert!(left.is_empty());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod receive;
pub mod spool;

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

pub use destination::Destination;
pub use error::Error;
pub use fanout::{Fanout, SinkOptions};
pub use file::{FileOptions, file};
pub use null::null;
pub use payload::Payload;
pub use queue::QueueLimits;
pub use sink::{Framing, Sink};
pub use stream::stdout;
pub use udp::{UdpOptions, udp};
