//! Kafka: each part is a message. librdkafka sends them as an idempotent producer, and retries by itself: while it lives, what it was
//! given is in the topic once.

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
    /// How it logs in, if it does.
    pub sasl: Option<KafkaSasl>,
    /// `None`: without TLS.
    pub tls: Option<TlsOptions>,
    /// Where the schema of the values is registered, whose id each of them begins with then. For values in protobuf.
    pub registry: Option<SchemaRegistry>,
    /// How long the client tries to deliver a message before it gives it back.
    pub delivery_max: Duration,
}

/// A registry of schemas with the HTTP interface of Confluent's, which others have too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaRegistry {
    /// `http://…` or `https://…`: what stands before `/subjects`.
    pub url: String,
    pub login: Login,
    pub tls: TlsOptions,
}

/// What rows have to share to come to the same partition, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KafkaKey {
    /// The host that made the row: 16 bytes, its boot id.
    #[default]
    Host,
    /// The connection, or the sender of a datagram: 24 bytes, the boot id and the socket's cookie.
    Connection,
    /// Nothing: batches are spread.
    None,
}

/// How batches are compressed on their way and in the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KafkaCompression {
    None,
    Gzip,
    Snappy,
    Lz4,
    #[default]
    Zstd,
}

/// How it logs in: user and password, and the mechanism in which they are proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSasl {
    pub mechanism: SaslMechanism,
    pub login: Login,
}

/// The mechanisms of SASL that there are for a user with a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SaslMechanism {
    /// The password itself.
    Plain,
    ScramSha256,
    #[default]
    ScramSha512,
}
