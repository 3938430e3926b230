//! A NATS sink: records become messages to a subject, or to a `JetStream` stream behind it.

use super::credentials::Accepts;
#[cfg(feature = "nats")]
use super::kind::Opening;
use super::kind::{Kind, Scheme};
use super::{Credentials, Sink, Tls, Url, Written};
use crate::address::AddressError;
use crate::form::path;
use crate::keys::{Values, keys};
use crate::reader::Reader;
use ::sink::BatchLimits;
#[cfg(feature = "nats")]
use ::sink::{Connector, NatsOptions, NatsService, SecretSource};
use record::Encoding;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const SCHEMES: &[Scheme] = &[
    Scheme {
        words: &["nats", "jetstream"],
        form: "nats://HOST:PORT/subject, jetstream://HOST:PORT/subject",
        feature: Some("nats"),
        read: |to, reader| {
            let url = Url::parse(to.rest, 4222)?;
            let service = if to.scheme == "nats" { Service::Core } else { Service::JetStream };
            read(url, service, None, reader)
        },
    },
    Scheme {
        words: &["natss", "jetstreams"],
        form: "natss://HOST:PORT/subject, jetstreams://HOST:PORT/subject",
        feature: Some("nats"),
        read: |to, reader| {
            let url = Url::parse(to.rest, 4222)?;
            let service = if to.scheme == "natss" { Service::Core } else { Service::JetStream };
            let Some(tls) = Tls::read(reader) else { return Ok(None) };
            read(url, service, Some(tls), reader)
        },
    },
];

keys! {
    /// What a sink to NATS has.
    pub struct NatsSink in "sink" of "sinks to NATS" given {
        url: Url,
        service: Service,
        /// `None`: TLS if the server wants it.
        tls: Option<Tls>,
        credentials: Credentials,
        written: Written
    } {
        /// File with a user's JWT and key, as `nsc` makes it.
        credentials_file => credentials_file: Option<PathBuf> = path("path", file), unset("none");
        /// File that holds the seed of an nkey (`SU…`) and nothing else.
        nkey_file => nkey_file: Option<PathBuf> = path("path", file), unset("none");
    }
}

/// Who receives the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The subscribers.
    Core,
    /// A stream.
    JetStream,
}

fn file(text: &str) -> Result<PathBuf, String> {
    match text.is_empty() || text.chars().any(char::is_control) {
        true => Err("it is not a path. Fix: write for example /etc/weir/nats.creds".to_owned()),
        false => Ok(PathBuf::from(text)),
    }
}

fn read(
    url: Url,
    service: Service,
    tls: Option<Tls>,
    reader: &Reader<'_>,
) -> Result<Option<Sink>, AddressError> {
    let is_subject = |subject: &str| {
        let is_token = |token: &str| !token.is_empty() && !matches!(token, "*" | ">");
        subject.split('.').all(is_token)
    };
    if !is_subject(&url.path) {
        return Err(AddressError::NoName("nats://127.0.0.1:4222/weir.sockets"));
    }
    let keys = || {
        let credentials = Credentials::accepted(reader, Accepts::Either)?;
        let written = Written::read(reader, Encoding::Protobuf)?;
        NatsSink::read(reader, url, service, tls, credentials, written)
    };
    Ok(keys().map(Sink::Nats))
}

/// Default number of batches in flight: enough not to wait for the server.
const IN_FLIGHT: usize = 4;

impl Kind for NatsSink {
    fn values(&self) -> Values {
        let tls = self.tls.iter().flat_map(Tls::values);
        let shared = self.written.values().into_iter().chain(self.credentials.values());
        shared.chain(tls).chain(NatsSink::values(self)).collect()
    }

    #[cfg(feature = "nats")]
    fn open(&self, given: &Opening) -> std::io::Result<Connector> {
        let options = NatsOptions {
            servers: self.url.hosts.iter().map(ToString::to_string).collect(),
            subject: self.url.path.clone(),
            service: match self.service {
                Service::Core => NatsService::Core,
                Service::JetStream => NatsService::JetStream,
            },
            login: self.credentials.login(),
            credentials: self.credentials_file.clone(),
            nkey: self.nkey_file.clone().map(SecretSource::File),
            tls: self.tls.as_ref().map(Tls::options),
        };
        Ok(::sink::nats(options, given.content(&self.written)))
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

impl fmt::Display for NatsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.service, self.tls.is_some()) {
            (Service::Core, false) => "nats",
            (Service::Core, true) => "natss",
            (Service::JetStream, false) => "jetstream",
            (Service::JetStream, true) => "jetstreams",
        };
        write!(f, "{scheme}:{}", self.url)
    }
}
