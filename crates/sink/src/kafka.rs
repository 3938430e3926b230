//! Kafka: each part is a message. librdkafka sends them as an idempotent producer, and retries automatically: as long as a
//! producer lives, each message passed to it is in the topic once.

use crate::secret::{Login, TlsOptions};
use std::time::Duration;

#[cfg(feature = "kafka")]
mod answers;
#[cfg(feature = "kafka")]
mod client;
#[cfg(feature = "kafka")]
mod producer;
#[cfg(feature = "kafka")]
mod registry;

#[cfg(feature = "kafka")]
pub use producer::kafka;

/// Where messages go, and how.
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// `HOST:PORT` each; one that answers is enough to find the others.
    pub brokers: Vec<String>,
    /// The topic of records and datagrams.
    pub topic: String,
    /// The topic of totals.
    pub totals_topic: String,
    pub key: KafkaKey,
    pub compression: KafkaCompression,
    /// How to log in, if at all.
    pub sasl: Option<KafkaSasl>,
    /// `None`: without TLS.
    pub tls: Option<TlsOptions>,
    /// The registry for the schema of the values; each value then begins with the schema's id. For protobuf values.
    pub registry: Option<SchemaRegistry>,
    /// How long the client tries to deliver a message before it gives up.
    pub delivery_max: Duration,
}

/// A schema registry with Confluent's HTTP interface, which others implement too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaRegistry {
    /// The URL before `/subjects`, `http://…` or `https://…`.
    pub url: String,
    pub login: Login,
    pub tls: TlsOptions,
}

/// What rows must have in common to go to the same partition, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KafkaKey {
    /// The host that made the row: 16 bytes, its boot id.
    #[default]
    Host,
    /// The connection, or the sender of a datagram: 24 bytes, the boot id and the socket's cookie.
    Connection,
    /// No key: batches are spread over the partitions.
    None,
}

/// How batches are compressed in transit and in the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KafkaCompression {
    None,
    Gzip,
    Snappy,
    Lz4,
    #[default]
    Zstd,
}

/// User and password, and the mechanism that proves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSasl {
    pub mechanism: SaslMechanism,
    pub login: Login,
}

/// The SASL mechanisms for a user and password.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SaslMechanism {
    /// Sends the password itself.
    Plain,
    ScramSha256,
    #[default]
    ScramSha512,
}
