//! A Redis or Valkey sink: records become entries of a stream or messages to a channel.

use super::credentials::Accepts;
#[cfg(feature = "redis")]
use super::kind::Opening;
use super::kind::{Kind, Scheme};
use super::{Credentials, Sink, Tls, Url, Written};
use crate::address::AddressError;
use crate::form::{Choice, whole};
use crate::keys::{Values, keys};
use crate::reader::Reader;
use ::sink::BatchLimits;
#[cfg(feature = "redis")]
use ::sink::{Connector, RedisOptions, RedisPlace};
use record::Encoding;
use std::fmt;
use std::time::Duration;

pub(super) const SCHEMES: &[Scheme] = &[
    Scheme {
        words: &["redis"],
        form: "redis://HOST:PORT/stream",
        feature: Some("redis"),
        read: |to, reader| read(Url::parse_single(to.rest, 6379)?, None, reader),
    },
    Scheme {
        words: &["rediss"],
        form: "rediss://HOST:PORT/stream",
        feature: Some("redis"),
        read: |to, reader| {
            let url = Url::parse_single(to.rest, 6379)?;
            let Some(tls) = Tls::read(reader) else { return Ok(None) };
            read(url, Some(tls), reader)
        },
    },
];

keys! {
    /// What a sink to Redis has.
    pub struct RedisSink in "sink" of "sinks to Redis" given {
        url: Url,
        /// `None`: without TLS.
        tls: Option<Tls>,
        credentials: Credentials,
        written: Written
    } {
        /// What the name in `to` is: `stream`, where each row is an entry (`XADD`), or `channel`, where each row is a message to those who
        /// listen at that moment (`PUBLISH`).
        mode => mode: RedisMode =
            Choice(&[("stream", RedisMode::Stream), ("channel", RedisMode::Channel)]), default(RedisMode::Stream);
        /// The oldest entries go when there are more than about so many (`MAXLEN ~`).
        stream_max => entries_max: Option<u64> = whole(1, 1 << 53), unset("the stream grows")
            where |sink| sink.mode == RedisMode::Stream, "a channel keeps nothing";
        /// The number of the database.
        database => database: u32 = whole(0, 1_000_000), default(0);
    }
}

/// What rows become in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisMode {
    /// Entries of a stream.
    Stream,
    /// Messages to a channel.
    Channel,
}

fn read(url: Url, tls: Option<Tls>, reader: &Reader<'_>) -> Result<Option<Sink>, AddressError> {
    if url.path.is_empty() {
        return Err(AddressError::NoName("redis://127.0.0.1:6379/weir"));
    }
    let keys = || {
        let credentials = Credentials::accepted(reader, Accepts::Password)?;
        let written = Written::read(reader, Encoding::Protobuf)?;
        RedisSink::read(reader, url, tls, credentials, written)
    };
    Ok(keys().map(Sink::Redis))
}

/// Default number of batches in flight: enough not to wait for the server.
const IN_FLIGHT: usize = 4;

impl Kind for RedisSink {
    fn values(&self) -> Values {
        let tls = self.tls.iter().flat_map(Tls::values);
        let shared = self.written.values().into_iter().chain(self.credentials.values());
        shared.chain(tls).chain(RedisSink::values(self)).collect()
    }

    #[cfg(feature = "redis")]
    fn open(&self, given: &Opening) -> std::io::Result<Connector> {
        let [host] = self.url.hosts.as_slice() else {
            return Err(std::io::ErrorKind::InvalidInput.into());
        };
        let name = self.url.path.clone();
        let options = RedisOptions {
            host: host.host.to_string(),
            port: host.port,
            database: self.database,
            place: match self.mode {
                RedisMode::Stream => RedisPlace::Stream { name, entries_max: self.entries_max },
                RedisMode::Channel => RedisPlace::Channel(name),
            },
            login: self.credentials.login(),
            tls: self.tls.as_ref().map(Tls::options),
        };
        Ok(::sink::redis(options, given.content(&self.written)))
    }

    fn usual(&self) -> (BatchLimits, usize) {
        (BatchLimits { rows: 1_000, bytes: 256 << 10, age: Duration::ZERO }, IN_FLIGHT)
    }

    fn encoder_bytes_max(&self, batch_bytes: u64) -> u64 {
        // One encoder for each kind of row, and two copies of each batch in the client: the messages, and the bytes for the
        // wire.
        3 * 2 * batch_bytes + 2 * IN_FLIGHT as u64 * batch_bytes
    }

    fn written(&self) -> Option<&Written> {
        Some(&self.written)
    }
}

impl fmt::Display for RedisSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        write!(f, "{scheme}:{}", self.url)
    }
}
