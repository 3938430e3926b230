//! A Kafka sink: records become messages to a topic.

use super::credentials::Accepts;
#[cfg(feature = "kafka")]
use super::kind::Opening;
use super::kind::{Kind, Scheme};
use super::{Credentials, Registry, Sink, Tls, Url, Written};
use crate::address::AddressError;
use crate::form::{Choice, Span, text};
use crate::keys::{Values, keys};
use crate::reader::Reader;
use ::sink::{BatchLimits, KafkaCompression, KafkaKey, SaslMechanism};
#[cfg(feature = "kafka")]
use ::sink::{Connector, KafkaOptions, KafkaSasl};
use record::Encoding;
use std::fmt;
use std::time::Duration;

pub(super) const SCHEMES: &[Scheme] = &[
    Scheme {
        words: &["kafka"],
        form: "kafka://HOST:PORT/topic",
        feature: Some("kafka"),
        read: |to, reader| read(Url::parse(to.rest, 9092)?, None, reader),
    },
    Scheme {
        words: &["kafkas"],
        form: "kafkas://HOST:PORT/topic",
        feature: Some("kafka"),
        read: |to, reader| {
            let url = Url::parse(to.rest, 9093)?;
            let Some(tls) = Tls::read(reader) else { return Ok(None) };
            read(url, Some(tls), reader)
        },
    },
];

keys! {
    /// What a sink to Kafka has.
    pub struct KafkaSink in "sink" of "sinks to Kafka" given {
        url: Url,
        /// `None`: without TLS.
        tls: Option<Tls>,
        credentials: Credentials,
        registry: Registry,
        written: Written
    } {
        /// The topic of totals, which are rows of a kind of their own.
        totals_topic => totals_topic: Option<String> =
            text("name of a topic", topic), unset("the name of the topic with `-polls` behind it");
        /// What rows have to share to be in one partition, in their order: the `host` that made them, their `connection` (the sender of a
        /// datagram), or `none`.
        key => key: KafkaKey = Choice(&[
            ("host", KafkaKey::Host),
            ("connection", KafkaKey::Connection),
            ("none", KafkaKey::None),
        ]), default(KafkaKey::Host);
        /// How messages are compressed on their way and in the broker.
        compression => compression: KafkaCompression = Choice(&[
            ("zstd", KafkaCompression::Zstd),
            ("lz4", KafkaCompression::Lz4),
            ("snappy", KafkaCompression::Snappy),
            ("gzip", KafkaCompression::Gzip),
            ("none", KafkaCompression::None),
        ]), default(KafkaCompression::Zstd);
        /// How the user proves the password. With `plain` the broker sees it, and over `kafka:` so does everybody in between.
        sasl => sasl: SaslMechanism = Choice(&[
            ("scram-sha-512", SaslMechanism::ScramSha512),
            ("scram-sha-256", SaslMechanism::ScramSha256),
            ("plain", SaslMechanism::Plain),
        ]), default(SaslMechanism::ScramSha512)
            where |sink| sink.credentials.user.is_some(), "there is no user. Fix: add user = \"NAME\"";
        /// How long the client tries to deliver a message by itself, which makes no duplicates. What is tried again after that may be
        /// there twice, and is counted as such.
        delivery_timeout => delivery_timeout: Duration =
            Span(Duration::from_secs(1), Duration::from_secs(3_600)), default(Duration::from_secs(120));
    }
}

fn read(url: Url, tls: Option<Tls>, reader: &Reader<'_>) -> Result<Option<Sink>, AddressError> {
    if let Err(message) = topic(&url.path) {
        return Err(AddressError::Topic(message));
    }
    let keys = || {
        let credentials = Credentials::accepted(reader, Accepts::Password)?;
        let written = Written::read(reader, Encoding::Protobuf)?;
        let registry = Registry::for_written(reader, &written)?;
        KafkaSink::read(reader, url, tls, credentials, registry, written)
    };
    Ok(keys().map(Sink::Kafka))
}

/// A topic's name, by Kafka's rules (`org.apache.kafka.common.internals.Topic`).
fn topic(text: &str) -> Result<String, String> {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match text {
        "" => Err("it names no topic. Fix: write for example kafka://127.0.0.1:9092/weir.sockets"
            .to_owned()),
        "." | ".." => Err("its topic cannot be . or .. alone. Fix: write another name".to_owned()),
        _ if text.len() > 249 => {
            Err("its topic is too long. Fix: write at most 249 characters".to_owned())
        }
        _ if text.chars().all(is_name_char) => Ok(text.to_owned()),
        _ => {
            Err("its topic has other characters. Fix: use letters, digits, `.`, `_` and `-`"
                .to_owned())
        }
    }
}

/// Memory of the client for its messages: its queue, and 320 bytes for each of at most 100,000 messages.
const CLIENT_BYTES_MAX: u64 = (16 << 20) + 320 * 100_000;

impl Kind for KafkaSink {
    fn values(&self) -> Values {
        let tls = self.tls.iter().flat_map(Tls::values);
        let shared = self.written.values().into_iter().chain(self.credentials.values());
        let registry = self.registry.values();
        shared.chain(tls).chain(registry).chain(KafkaSink::values(self)).collect()
    }

    #[cfg(feature = "kafka")]
    fn open(&self, given: &Opening) -> std::io::Result<Connector> {
        let login = self.credentials.login();
        let options = KafkaOptions {
            brokers: self.url.hosts.iter().map(ToString::to_string).collect(),
            topic: self.url.path.clone(),
            totals_topic: self
                .totals_topic
                .clone()
                .unwrap_or_else(|| format!("{}-polls", self.url.path)),
            key: self.key,
            compression: self.compression,
            sasl: login.user.is_some().then_some(KafkaSasl { mechanism: self.sasl, login }),
            tls: self.tls.as_ref().map(Tls::options),
            registry: self.registry.options(),
            delivery_max: self.delivery_timeout,
        };
        Ok(::sink::kafka(options, given.content(&self.written)))
    }

    fn usual(&self) -> (BatchLimits, usize) {
        (BatchLimits { rows: 10_000, bytes: 1 << 20, age: Duration::ZERO }, 8)
    }

    fn encoder_bytes_max(&self, batch_bytes: u64) -> u64 {
        // One encoder for each kind of row.
        3 * 2 * batch_bytes + CLIENT_BYTES_MAX
    }

    fn tries_for(&self) -> Duration {
        self.delivery_timeout
    }

    fn written(&self) -> Option<&Written> {
        Some(&self.written)
    }
}

impl fmt::Display for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "kafkas" } else { "kafka" };
        write!(f, "{scheme}:{}", self.url)
    }
}

#[cfg(all(test, feature = "kafka"))]
mod tests {
    use crate::Config;
    use std::time::Duration;

    fn parse(keys: &str) -> Result<Config, String> {
        let text = format!("[sockets]\n[[sink]]\nfrom = ['sockets']\n{keys}\n");
        Config::parse(&text, "t").map_err(|errors| errors[0].message.clone())
    }

    #[test]
    fn brokers_and_a_topic() {
        let check = |to: &str, shown: &str| {
            let config = parse(&format!("to = '{to}'")).unwrap();
            assert_eq!(config.sinks[0].to.to_string(), shown);
        };
        check("kafka://a/weir.sockets", "kafka://a:9092/weir.sockets");
        check("kafka://a:1,b:2/t", "kafka://a:1,b:2/t");
        check("kafkas://a/t", "kafkas://a:9093/t");
    }

    #[test]
    fn mistakes_are_named() {
        let check = |keys: &str, message: &str| {
            let error = parse(keys).unwrap_err();
            assert!(error.contains(message), "{error}");
        };
        check("to = 'kafka://a'", "it names no topic");
        check("to = 'kafka://a/a b'", "control characters");
        check("to = 'kafka://a/a/b'", "letters, digits");
        check("to = 'kafka://a/t'\nkey = 'hots'", "did you mean host?");
        check("to = 'kafka://a/t'\nsasl = 'plain'", "there is no user");
        check("to = 'kafka://a/t'\ntoken_file = '/t'", "takes no token");
        check("to = 'kafka://a/t'\ntls_ca = '/t'", "sinks over TLS only");

        let registry = |keys: &str, message: &str| {
            check(&format!("to = 'kafka://a/t'\n{keys}"), message);
        };
        registry("schema_registry_user = 'u'", "there is no registry");
        if cfg!(not(feature = "http")) {
            return registry("schema_registry = 'http://r'", "--features kafka,http");
        }
        registry("schema_registry = 'r:8081'", "http://127.0.0.1:8081");
        registry("schema_registry = 'http://u:geheim@r'", "password_file");
        registry("schema_registry = 'http://r'\nformat = 'jsonl'", "only records in protobuf");
        registry("schema_registry = 'http://r'\nschema_registry_ca = '/c'", "https://…");
        let both = "schema_registry_user = 'u'\nschema_registry_token_file = '/t'";
        registry(&format!("schema_registry = 'http://r'\n{both}"), "remove one of the two");
    }

    #[test]
    fn a_client_that_tries_by_itself_is_not_given_up_meanwhile() {
        let config = parse("to = 'kafka://a/t'\ndelivery_timeout = '5m'").unwrap();
        let delivery = config.sinks[0].delivery();
        assert_eq!(delivery.answer_max, Duration::from_secs(360));
        assert_eq!(delivery.in_flight_max, 8);
    }
}
