//! An NSQ sink: records become messages to a topic.

use super::credentials::Accepts;
use super::kind::{Kind, Opening, Scheme};
use super::{Credentials, Sink, Tls, Url, Written};
use crate::address::{AddressError, Host};
use crate::form::text;
use crate::keys::{Values, keys};
use crate::reader::Reader;
use ::sink::{BatchLimits, Connector, NsqOptions};
use record::Encoding;
use std::fmt;
use std::io;
use std::time::Duration;

pub(super) const SCHEMES: &[Scheme] = &[
    Scheme {
        words: &["nsq"],
        form: "nsq://HOST:PORT/topic",
        feature: None,
        read: |to, reader| read(Url::parse(to.rest, 4150)?, None, reader),
    },
    Scheme {
        words: &["nsqs"],
        form: "nsqs://HOST:PORT/topic",
        feature: Some("tls"),
        read: |to, reader| {
            let url = Url::parse(to.rest, 4150)?;
            let Some(tls) = Tls::read(reader) else { return Ok(None) };
            read(url, Some(tls), reader)
        },
    },
];

keys! {
    /// What a sink to NSQ has.
    pub struct NsqSink in "sink" of "sinks to NSQ" given {
        url: Url,
        /// `None`: without TLS.
        tls: Option<Tls>,
        credentials: Credentials,
        written: Written
    } {
        /// The topic of totals, which are rows of a kind of their own.
        totals_topic => totals_topic: Option<String> =
            text("name of a topic", topic), unset("the name of the topic with `-polls` behind it");
    }
}

fn read(url: Url, tls: Option<Tls>, reader: &Reader<'_>) -> Result<Option<Sink>, AddressError> {
    topic(&url.path).map_err(AddressError::Topic)?;
    let keys = || {
        let credentials = Credentials::accepted(reader, Accepts::Token)?;
        let written = Written::read(reader, Encoding::Protobuf)?;
        NsqSink::read(reader, url, tls, credentials, written)
    };
    Ok(keys().map(Sink::Nsq))
}

/// A topic's name, by nsqd's rules (`IsValidTopicName` in internal/protocol/names.go), short enough to append `-polls`.
fn topic(text: &str) -> Result<String, String> {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match text {
        "" => Err("it names no topic. Fix: write for example nsq://127.0.0.1:4150/weir.sockets"
            .to_owned()),
        _ if text.len() > 58 => {
            Err("its topic is too long. Fix: write at most 58 characters".to_owned())
        }
        _ if text.chars().all(is_name_char) => Ok(text.to_owned()),
        _ => {
            Err("its topic has other characters. Fix: use letters, digits, `.`, `_` and `-`"
                .to_owned())
        }
    }
}

impl Kind for NsqSink {
    fn values(&self) -> Values {
        let shared = self.written.values().into_iter().chain(self.credentials.values());
        let tls = self.tls.iter().flat_map(Tls::values);
        shared.chain(tls).chain(NsqSink::values(self)).collect()
    }

    fn open(&self, given: &Opening) -> io::Result<Connector> {
        let hosts = self.url.hosts.iter().map(|one| match &one.host {
            Host::Ip(ip) => (ip.to_string(), one.port),
            Host::Name(name) => (name.clone(), one.port),
        });
        let topic = self.url.path.clone();
        let totals_topic = self.totals_topic.clone().unwrap_or_else(|| format!("{topic}-polls"));
        let auth = self.credentials.login().token;
        let (hosts, tls) = (hosts.collect(), self.tls.as_ref().map(Tls::options));
        let options = NsqOptions { hosts, topic, totals_topic, auth, tls };
        Ok(::sink::nsq(options, given.content(&self.written)))
    }

    fn usual(&self) -> (BatchLimits, usize) {
        (BatchLimits { rows: 10_000, bytes: 256 << 10, age: Duration::ZERO }, 8)
    }

    fn encoder_bytes_max(&self, batch_bytes: u64) -> u64 {
        // One encoder for each kind of row, and the bytes waiting to be sent.
        3 * 2 * batch_bytes + (512 << 10)
    }

    fn written(&self) -> Option<&Written> {
        Some(&self.written)
    }
}

impl fmt::Display for NsqSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "nsqs" } else { "nsq" };
        write!(f, "{scheme}:{}", self.url)
    }
}
