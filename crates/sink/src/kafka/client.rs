//! The librdkafka producer, and what it reports.

use super::{KafkaCompression, KafkaOptions, SaslMechanism};
use crate::batch::Batch;
use crate::destination::ReadBack;
use crate::secret::TlsVerify;
use ledger::Trouble;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext, PurgeConfig};
use rdkafka::{Offset, TopicPartitionList};
use record::{RowKind, SCHEMA_VERSION};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use sys::kafka::{Persistence, persistence};

/// Limit on the client's queue. It holds a second copy of the batches in flight.
const QUEUE_KBYTES: usize = 16 << 10;

/// How long a broker may take to answer a request; then the request is retried, which makes no duplicate.
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// How long a topic unknown to the brokers is assumed to be in creation.
const TOPIC_WAIT: Duration = Duration::from_secs(5);

/// How long a new client may take to look up the topic before it gets messages. A broker on the other side of the world answers
/// later, and costs the half second described in [`Client::open`].
const METADATA_WAIT: Duration = Duration::from_millis(100);

/// A message to send.
pub(super) struct Sending<'a> {
    pub(super) topic: &'a str,
    pub(super) kind: Option<RowKind>,
    pub(super) key: Option<&'a [u8]>,
    /// The run that made the row.
    pub(super) run: u64,
    /// The beginning of the value, and the rest of it.
    pub(super) head: &'a [u8],
    pub(super) payload: &'a [u8],
    pub(super) flight: u32,
    pub(super) part: u32,
}

/// The fate of a message.
pub(super) struct Report {
    pub(super) flight: u32,
    pub(super) part: u32,
    pub(super) answer: Result<Place, (RDKafkaErrorCode, Persistence)>,
}

/// Where a message is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    part: u32,
    partition: i32,
    offset: i64,
}

/// Packs flight and part into the opaque value that the client hands back.
fn ticket(flight: u32, part: u32) -> usize {
    (u64::from(flight) << 32 | u64::from(part)) as usize
}

/// The client's reports, collected until they are read.
#[derive(Default)]
struct Heard {
    reports: Mutex<Vec<Report>>,
    /// The last error that is not about a message.
    error: Mutex<Option<Said>>,
}

/// An error that is not about a message.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) code: Option<RDKafkaErrorCode>,
    pub(super) words: String,
}

impl ClientContext for Heard {
    fn log(&self, _level: RDKafkaLogLevel, _fac: &str, _message: &str) {
        // Everything that matters is reported as an error too.
    }

    fn error(&self, error: KafkaError, words: &str) {
        let code = error.rdkafka_error_code();
        // "All brokers are down" follows the errors that say why each of them is.
        if code == Some(RDKafkaErrorCode::AllBrokersDown) && lock(&self.error).is_some() {
            return;
        }
        *lock(&self.error) = Some(Said { code, words: words.to_owned() });
    }
}

impl ProducerContext for Heard {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: usize) {
        let (flight, part) = ((ticket as u64 >> 32) as u32, ticket as u32);
        let answer = match result {
            Ok(message) => {
                Ok(Place { part, partition: message.partition(), offset: message.offset() })
            }
            Err((error, message)) => {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
                Err((code, persistence(message)))
            }
        };
        let mut reports = lock(&self.reports);
        // Answers come by the thousand; the first one is enough to show that the broker is reachable.
        if answer.is_ok() && reports.is_empty() {
            *lock(&self.error) = None;
        }
        reports.push(Report { flight, part, answer });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A producer. Its threads connect when it has something to send.
pub(super) struct Client {
    producer: BaseProducer<Heard>,
    headers: Headers,
    /// Buffer in which the value being sent is put together.
    value: Vec<u8>,
    sent_as_one_bytes: usize,
}

impl Client {
    /// Opens a producer that sends at most `sent_as_one_bytes` in one request, or a single message.
    pub(super) fn open(
        options: &KafkaOptions,
        sent_as_one_bytes: usize,
    ) -> Result<Client, Trouble> {
        let mut config = connection(options)?;
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("compression.type", word(options.compression))
            .set("message.timeout.ms", options.delivery_max.as_millis().to_string())
            .set("request.timeout.ms", REQUEST_MAX.as_millis().to_string())
            .set("topic.metadata.propagation.max.ms", TOPIC_WAIT.as_millis().to_string())
            .set("queue.buffering.max.kbytes", QUEUE_KBYTES.to_string())
            // The Java clients' default, so that a row goes to the same partition whatever client writes it.
            .set("partitioner", "murmur2_random")
            .set("batch.size", sent_as_one_bytes.max(1).to_string())
            .set("linger.ms", "5");
        let producer = BaseProducer::from_config_and_context(&config, Heard::default());
        let producer = producer.map_err(|error| refused(options, &error))?;

        // When librdkafka learns of topics, it asks a connected broker for its producer id. The first time no broker is
        // connected, because what it learns ends the connection to the bootstrap server; it would try again after 500 ms
        // (`rd_kafka_idemp_pid_fsm`). Fetching the metadata now makes the first message's lookup the second time. If this gets no
        // answer, the message's lookup repeats it.
        drop(producer.client().fetch_metadata(Some(&options.topic), METADATA_WAIT));
        let headers = Headers::of_run(0);
        Ok(Client { producer, headers, value: Vec::new(), sent_as_one_bytes })
    }

    /// Passes a message to the client, which copies it.
    pub(super) fn send(&mut self, message: &Sending<'_>) -> Result<(), RDKafkaErrorCode> {
        if self.headers.run != message.run {
            self.headers = Headers::of_run(message.run);
        }
        let value = match message.head {
            [] => message.payload,
            head => {
                self.value.clear();
                self.value.extend_from_slice(head);
                self.value.extend_from_slice(message.payload);
                &self.value
            }
        };
        let record = BaseRecord {
            topic: message.topic,
            partition: None,
            payload: Some(value),
            key: message.key,
            timestamp: None,
            headers: Some(self.headers.of(message.kind).clone()),
            delivery_opaque: ticket(message.flight, message.part),
        };
        let sent = self.producer.send(record);
        sent.map_err(|(error, _)| error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail))
    }

    /// Lets the client deliver its reports.
    pub(super) fn poll(&self) {
        self.producer.poll(Duration::ZERO);
    }

    pub(super) fn take_reports(&self) -> Vec<Report> {
        std::mem::take(&mut *lock(&self.producer.context().reports))
    }

    /// The current trouble, if the client has reported one since the last answer.
    pub(super) fn trouble(&self) -> Option<Said> {
        let fatal = self.producer.client().fatal_error();
        let fatal = fatal.map(|(code, words)| Said { code: Some(code), words });
        fatal.or_else(|| lock(&self.producer.context().error).clone())
    }

    pub(super) fn sent_as_one_bytes(&self) -> usize {
        self.sent_as_one_bytes
    }

    /// Whether it no longer accepts messages.
    pub(super) fn is_broken(&self) -> bool {
        self.producer.client().fatal_error().is_some()
    }

    /// Ends the client. Returns the reports about the messages it still had.
    pub(super) fn end(self) -> Vec<Report> {
        let heard = Arc::clone(self.producer.context());
        self.producer.purge(PurgeConfig::default().queue().inflight());
        // Dropping it waits half a second for the answers to that.
        drop(self.producer);
        std::mem::take(&mut *lock(&heard.reports))
    }
}

/// The headers of messages of one run. The next message is mostly of the same run.
struct Headers {
    run: u64,
    /// One for each kind of row.
    of_kinds: [OwnedHeaders; RowKind::ALL.len()],
}

impl Headers {
    fn of_run(run: u64) -> Headers {
        let (version, run_id) = (SCHEMA_VERSION.to_string(), run.to_string());
        let of_kinds = RowKind::ALL.map(|kind| {
            let kind = kind.word();
            let pairs = [("weir-schema", &version[..]), ("weir-kind", kind), ("weir-run", &run_id)];
            let empty = OwnedHeaders::new_with_capacity(pairs.len());
            pairs.into_iter().fold(empty, |headers, (key, value)| {
                headers.insert(Header { key, value: Some(value) })
            })
        });
        Headers { run, of_kinds }
    }

    fn of(&self, kind: Option<RowKind>) -> &OwnedHeaders {
        let at = kind.and_then(|kind| RowKind::ALL.iter().position(|known| *known == kind));
        &self.of_kinds[at.unwrap_or(0)]
    }
}

fn word(compression: KafkaCompression) -> &'static str {
    match compression {
        KafkaCompression::None => "none",
        KafkaCompression::Gzip => "gzip",
        KafkaCompression::Snappy => "snappy",
        KafkaCompression::Lz4 => "lz4",
        KafkaCompression::Zstd => "zstd",
    }
}

/// The settings to reach the brokers.
fn connection(options: &KafkaOptions) -> Result<ClientConfig, Trouble> {
    let mut config = ClientConfig::new();
    config.log_level = RDKafkaLogLevel::Error;
    config
        .set("bootstrap.servers", options.brokers.join(","))
        .set("client.id", "weir")
        .set("socket.timeout.ms", REQUEST_MAX.as_millis().to_string())
        .set("socket.connection.setup.timeout.ms", "5000")
        .set("socket.keepalive.enable", "true")
        .set("reconnect.backoff.max.ms", "2000");

    let protocol = match (&options.tls, &options.sasl) {
        (None, None) => "plaintext",
        (Some(_), None) => "ssl",
        (None, Some(_)) => "sasl_plaintext",
        (Some(_), Some(_)) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);

    if let Some(tls) = &options.tls {
        // OpenSSL is linked in and does not know this system's certificate directory: `probe` looks where distributions keep it.
        let ca = tls.ca.as_ref().map_or("probe".into(), |ca| ca.to_string_lossy());
        config.set("ssl.ca.location", ca);
        if let Some(identity) = &tls.identity {
            config.set("ssl.certificate.location", identity.certificate.to_string_lossy());
            config.set("ssl.key.location", identity.key.to_string_lossy());
        }
        if tls.verify == TlsVerify::Off {
            config.set("enable.ssl.certificate.verification", "false");
        }
    }
    if let Some(sasl) = &options.sasl {
        let mechanism = match sasl.mechanism {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        config.set("sasl.mechanism", mechanism);
        config.set("sasl.username", sasl.login.user.as_deref().unwrap_or_default());
        let password = sasl.login.password()?;
        config.set("sasl.password", password.as_ref().map_or("", |password| password.reveal()));
    }
    Ok(config)
}

/// The client cannot be created with these options: a file is missing or invalid.
fn refused(options: &KafkaOptions, error: &KafkaError) -> Trouble {
    let what = match error {
        KafkaError::ClientCreation(words) => words.clone(),
        // Other errors include the setting's value, which may be a password.
        other => format!("librdkafka refuses a setting ({:?})", other.rdkafka_error_code()),
    };
    Trouble {
        what: format!("the client of {} cannot be made: {what}", super::answers::url(options)),
        fix: "see that the files of tls_ca, tls_cert and tls_key are there and hold PEM".to_owned(),
    }
}

/// Reads one message of a batch from where the broker stored it.
pub(super) fn read_back(
    options: &KafkaOptions,
    batch: &Batch,
    head: &[u8],
    place: &Place,
    wait: Duration,
) -> ReadBack {
    let topic = options.topic_of(batch.kind);
    let look = || -> Result<Option<Vec<u8>>, KafkaError> {
        let config = connection(options);
        let mut config = config.map_err(|trouble| KafkaError::ClientCreation(trouble.what))?;
        config.set("enable.auto.commit", "false").set("group.id", "weir-sink-check");
        let consumer: BaseConsumer = config.create()?;
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(topic, place.partition, Offset::Offset(place.offset))?;
        consumer.assign(&from)?;

        let until = Instant::now() + wait;
        while Instant::now() < until {
            if let Some(message) = consumer.poll(Duration::from_millis(100)) {
                return Ok(message?.payload().map(<[u8]>::to_vec));
            }
        }
        Ok(None)
    };

    let sent = [head, batch.part(place.part as usize)].concat();
    let at = format!("offset {} of partition {} of topic {topic}", place.offset, place.partition);
    match look() {
        Ok(Some(value)) if value == sent => ReadBack::Found,
        Ok(Some(_)) => ReadBack::Missing(format!("another message is at {at}")),
        Ok(None) => ReadBack::Missing(format!("nothing came from {at} within {wait:?}")),
        Err(error) => ReadBack::Missing(format!("{at} cannot be read: {error}")),
    }
}
