//! Where rows leave: each destination has a bounded queue and a thread. A slow or dead one delays neither the others nor the
//! source.
//!
//! A source fills chunks with a [`ChunkWriter`]; a [`Fanout`] offers each chunk to every attached [`Sink`]. A sink's thread
//! encodes rows into batches for its destination, keeps a batch until its fate is known, and retries with the same bytes until
//! then. A [`Destination`] knows a protocol and a client. The [`receive::Receiver`] reads what a UDP sink sends, and knows how
//! many records are missing.
//!
//! ```
//! use record::{Encoding, FieldSet, PollTotals, SocketRecord};
//! use sink::{BatchLimits, Content, DeliveryOptions, Fanout, QueueOptions, Sink, SinkOptions};
//! use std::time::{Duration, Instant};
//!
//! # fn main() -> Result<(), sink::Error> {
//! let sink = Sink::open(SinkOptions {
//!     name: "nowhere".into(),
//!     origin: "sockets".into(),
//!     queue: QueueOptions::default(),
//!     batch: BatchLimits::default(),
//!     delivery: DeliveryOptions::default(),
//!     spool: None,
//!     connector: sink::null(Content::Records(Encoding::Jsonl, FieldSet::ALL)),
//! })?;
//! let meter = sink.meter(); // for the ledger
//! let fanout = Fanout::default();
//! fanout.attach(&sink);
//!
//! let mut writer = fanout.writer([0; 16]);
//! writer.record(&SocketRecord { rtt_us: Some(180), ..SocketRecord::default() });
//! writer.end_of_poll(&PollTotals { poll: Some(1), ..PollTotals::default() });
//! let left = sink.wait(Instant::now() + Duration::from_secs(5));
//! assert!(left.is_zero());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod batch;
pub mod nsq;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod receive;
pub mod spool;

mod accounts;
mod backlog;
mod batcher;
mod byte_stream;
mod check;
mod clickhouse;
mod datagrams;
mod delivery;
mod destination;
mod durability;
mod encode;
mod error;
mod fanout;
mod file;
mod frames;
mod host;
mod http;
mod kafka;
#[cfg(feature = "nats")]
mod nats;
mod null;
mod options;
mod queue;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "s3")]
mod s3;
mod secret;
#[cfg(test)]
mod simulation;
mod sink;
mod stream;
#[cfg(any(feature = "http", feature = "nats", feature = "redis", feature = "s3"))]
mod tasks;
mod tcp;
#[cfg(any(feature = "nats", feature = "tls"))]
mod tls;
mod udp;
mod unix;
mod worker;

pub use accounts::SpoolFound;
pub use check::{Step, check};
#[cfg(feature = "http")]
pub use clickhouse::{AskError, AskErrorKind, AskLimits, Asker, Lines, clickhouse};
pub use clickhouse::{ClickHouseOptions, Duplicates, Insertion, MissingTables};
pub use destination::{
    BatchEncoder, Connector, Destination, Form, MakeDestination, MakeForm, OwnFigures, Pushed,
    ReadBack,
};
pub use durability::Durability;
pub use encode::{Content, Framing, NumberEncoding, Partition, RowEncoder};
pub use error::Error;
pub use fanout::{ChunkWriter, Fanout};
pub use file::{FileOptions, PathTemplate, file, files};
pub use frames::StreamFraming;
pub use host::HostChanges;
pub use http::{Compression, HttpOptions};
#[cfg(feature = "http")]
pub use http::{http, otlp};
#[cfg(feature = "kafka")]
pub use kafka::kafka;
pub use kafka::{
    KafkaCompression, KafkaKey, KafkaOptions, KafkaSasl, SaslMechanism, SchemaRegistry,
};
#[cfg(feature = "nats")]
pub use nats::{NatsOptions, NatsService, nats};
pub use nsq::{NsqOptions, nsq};
pub use null::null;
pub use options::{
    BatchLimits, DeliveryOptions, QueueOptions, SinkOptions, SpoolOptions, SpoolSync, WhenFull,
};
pub use queue::{Full, Intake};
#[cfg(feature = "redis")]
pub use redis::{RedisOptions, RedisPlace, redis};
#[cfg(feature = "s3")]
pub use s3::{S3Options, s3};
pub use secret::{Login, Secret, SecretSource, TlsIdentity, TlsOptions, TlsVerify};
pub use sink::{Sink, SinkEnd};
pub use stream::stdout;
#[cfg(feature = "tls")]
pub use tcp::tls;
pub use tcp::{TcpOptions, tcp};
pub use udp::{Remote, UdpOptions, udp};
pub use unix::{unix, unixgram};
