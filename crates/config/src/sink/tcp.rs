//! A sink that streams to a receiver over TCP, with or without TLS.

use super::kind::{Kind, Opening, Scheme};
use super::{Body, Sink, Tls, Written};
use crate::address::{HostPort, receiver};
use crate::form::Choice;
use crate::keys::{Values, keys};
use crate::reader::Reader;
use ::sink::{BatchLimits, Connector, StreamFraming, TcpOptions};
use record::Encoding;
use std::fmt;
use std::io;

pub(super) const SCHEMES: &[Scheme] = &[
    Scheme {
        words: &["tcp"],
        form: "tcp://HOST:PORT",
        feature: None,
        read: |to, reader| Ok(TcpSink::at(receiver(to.rest)?, None, reader).map(Sink::Tcp)),
    },
    Scheme {
        words: &["tls"],
        form: "tls://HOST:PORT",
        feature: Some("tls"),
        read: |to, reader| {
            let addr = receiver(to.rest)?;
            let Some(tls) = Tls::read(reader) else { return Ok(None) };
            Ok(TcpSink::at(addr, Some(tls), reader).map(Sink::Tcp))
        },
    },
];

/// A TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSink {
    pub addr: HostPort,
    /// `None`: without TLS.
    pub tls: Option<Tls>,
    pub framed: Framed,
    pub written: Written,
}

keys! {
    /// What tells the receiver of a stream where each row ends.
    pub struct Framed in "sink" of "TCP, TLS and unix streams" with (usual: StreamFraming) {
        /// What tells where each row ends: `newline`, a line feed behind each; `octet_counted`, its length in digits and a space before
        /// it, which is how syslog goes over TCP and TLS (RFC 6587, RFC 5425); `length_prefixed`, its length in four bytes before it,
        /// the highest first; `none`, nothing but what the format has of its own.
        framing => framing: StreamFraming = Choice(&[
            ("newline", StreamFraming::Newline),
            ("octet_counted", StreamFraming::OctetCounted),
            ("length_prefixed", StreamFraming::LengthPrefixed),
            ("none", StreamFraming::None),
        ]), derived("`newline` where rows are text, else `none`", usual);
    }
}

/// Default number of batches in flight: enough for a connection, and few to repeat when it breaks.
pub(super) const IN_FLIGHT: usize = 16;

impl Framed {
    /// Reads the keys of a stream of rows: the format and the framing.
    pub(super) fn with_format(reader: &Reader<'_>) -> Option<(Framed, Written)> {
        let written = Written::read(reader, Encoding::Jsonl)?;
        let is_text = written.format.is_text() || written.body == Body::Payload;
        let usual = if is_text { StreamFraming::Newline } else { StreamFraming::None };
        let framed = Framed::read(reader, usual)?;
        if framed.framing == StreamFraming::Newline && !is_text {
            let message = format!(
                "{} may have line feeds inside. Fix: write \"length_prefixed\", or \"none\"",
                written.format
            );
            reader.error(&Framed::framing, &message);
        }
        Some((framed, written))
    }
}

impl TcpSink {
    fn at(addr: HostPort, tls: Option<Tls>, reader: &Reader<'_>) -> Option<TcpSink> {
        let (framed, written) = Framed::with_format(reader)?;
        Some(TcpSink { addr, tls, framed, written })
    }
}

impl Kind for TcpSink {
    fn values(&self) -> Values {
        let tls = self.tls.iter().flat_map(Tls::values);
        self.written.values().into_iter().chain(self.framed.values()).chain(tls).collect()
    }

    fn open(&self, given: &Opening) -> io::Result<Connector> {
        let options = TcpOptions {
            host: self.addr.host.to_string(),
            port: self.addr.port,
            framing: self.framed.framing,
        };
        let content = given.content(&self.written);
        match &self.tls {
            None => Ok(::sink::tcp(options, content)),
            #[cfg(feature = "tls")]
            Some(tls) => Ok(::sink::tls(options, tls.options(), content)),
            #[cfg(not(feature = "tls"))]
            Some(_) => Err(io::Error::new(io::ErrorKind::Unsupported, "this build has no TLS")),
        }
    }

    fn usual(&self) -> (BatchLimits, usize) {
        (BatchLimits::default(), IN_FLIGHT)
    }

    fn encoder_bytes_max(&self, batch_bytes: u64) -> u64 {
        // With length prefixes, rows are copied once more.
        3 * batch_bytes
    }

    fn written(&self) -> Option<&Written> {
        Some(&self.written)
    }
}

impl fmt::Display for TcpSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "tls" } else { "tcp" };
        write!(f, "{scheme}://{}", self.addr)
    }
}
