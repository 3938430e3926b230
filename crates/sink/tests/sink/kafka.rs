//! The Kafka sink with Apache Kafka.

mod recovery;

use crate::outage::{Killed, Outage, beside};
use crate::support::{Source, found, hop, missing, numbered, options};
use ledger::{Event, RejectClass, Trouble};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use record::{Encoding, FieldSet, PollTotals, Record, SocketRecord, decode_record, decode_totals};
use sink::{
    BatchLimits, Connector, Content, DeliveryOptions, Fanout, KafkaCompression, KafkaKey,
    KafkaOptions, KafkaSasl, Login, QueueOptions, ReadBack, SaslMechanism, SecretSource, Sink,
    SinkOptions, TlsOptions, kafka,
};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::proxy::Fault;
use testkit::readback::{self, Message, make_kafka_topic};
use testkit::servers::{Certificate, Own, Server, unique};
use testkit::{TempDir, wait_for};

pub(crate) fn to(broker: SocketAddr, topic: &str) -> KafkaOptions {
    KafkaOptions {
        brokers: vec![broker.to_string()],
        topic: topic.into(),
        totals_topic: format!("{topic}-polls"),
        key: KafkaKey::Host,
        compression: KafkaCompression::Zstd,
        sasl: None,
        tls: None,
        registry: None,
        delivery_max: Duration::from_secs(120),
    }
}

pub(crate) fn protobuf(options: KafkaOptions) -> Connector {
    kafka(options, Content::Records(Encoding::Protobuf, FieldSet::ALL))
}

/// Sink options as the configuration sets them.
pub(crate) fn sink_options(connector: Connector) -> SinkOptions {
    SinkOptions {
        batch: BatchLimits { rows: 10_000, bytes: 1 << 20, age: Duration::ZERO },
        delivery: DeliveryOptions {
            in_flight_max: 8,
            answer_max: Duration::from_secs(180),
            ..DeliveryOptions::default()
        },
        queue: QueueOptions { bytes_max: 256 << 20, ..QueueOptions::default() },
        ..options("kafka", connector)
    }
}

pub(crate) fn record(number: u64) -> SocketRecord<'static> {
    SocketRecord {
        rtt_us: Some(number as u32),
        cookie: Some(number % 1_000),
        bytes_acked: Some(number * 1_448),
        ..numbered(number)
    }
}

fn number_of(message: &Message) -> u64 {
    let Ok(Record::Socket(record)) = decode_record(&message.payload) else {
        panic!("not a record: {message:?}")
    };
    record.sequence.unwrap()
}

#[test]
fn what_another_client_reads_is_what_was_sent_field_by_field() {
    let count = testkit::rows();
    let Some(broker) = Server::Kafka.shared() else { return };
    let topic = unique("records");
    make_kafka_topic(broker, &topic, 4);
    make_kafka_topic(broker, &format!("{topic}-polls"), 1);

    let options = KafkaOptions { key: KafkaKey::Connection, ..to(broker, &topic) };
    let mut source = Source::to_one(sink_options(protobuf(options)));
    source.send_all((0..count).map(record));
    source.writer.end_of_poll(&PollTotals { poll: Some(7), ..PollTotals::default() });
    wait_for("all rows to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!((hop.delivered.count, hop.delivered), (count + 1, hop.received));

    let run = source.writer.stream().to_string();
    let messages = readback::kafka(broker, &topic);
    assert_eq!(messages.len() as u64, count);
    let mut seen = HashSet::new();
    let mut partition_of = HashMap::new();
    for message in &messages {
        let number = number_of(message);
        assert!(seen.insert(number), "{number} is there twice");
        let expected = record(number);
        assert_eq!(decode_record(&message.payload), Ok(Record::Socket(expected)));
        // The key is the host's boot and the cookie; rows with the same key are in the same partition.
        let key = [&[7; 16][..], &(number % 1_000).to_be_bytes()].concat();
        assert_eq!(message.key.as_ref(), Some(&key));
        assert_eq!(*partition_of.entry(key).or_insert(message.partition), message.partition);
        let headers =
            [("weir-schema", &b"1"[..]), ("weir-kind", b"record"), ("weir-run", run.as_bytes())];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(message.headers, headers);
    }

    let totals = readback::kafka(broker, &format!("{topic}-polls"));
    assert_eq!(totals.len(), 1);
    assert_eq!(decode_totals(&totals[0].payload).unwrap().poll, Some(7));
    assert_eq!(totals[0].headers[1].1, b"totals");
}

#[test]
fn a_key_decides_the_partition_and_none_spreads_the_rows() {
    let Some(broker) = Server::Kafka.shared() else { return };
    let sent = |key| {
        let topic = unique("keyed");
        make_kafka_topic(broker, &topic, 4);
        let options = KafkaOptions { key, ..to(broker, &topic) };
        let mut source = Source::to_one(sink_options(protobuf(options)));
        source.send(0..40_000);
        wait_for("all rows to leave", || source.is_empty());
        readback::kafka(broker, &topic)
    };
    let partitions = |messages: &[Message]| {
        messages.iter().map(|message| message.partition).collect::<HashSet<_>>().len()
    };

    // All rows of a host, in order.
    let of_host = sent(KafkaKey::Host);
    assert!(of_host.iter().all(|message| message.key.as_deref() == Some(&[7; 16])));
    assert_eq!(partitions(&of_host), 1);
    assert!(of_host.iter().map(number_of).eq(0..40_000));

    let spread = sent(KafkaKey::None);
    assert!(spread.iter().all(|message| message.key.is_none()));
    assert!(partitions(&spread) > 1);
}

#[test]
fn a_message_names_the_run_that_made_it() {
    let Some(broker) = Server::Kafka.shared() else { return };
    let topic = unique("runs");
    make_kafka_topic(broker, &topic, 1);
    let sink = Sink::open(sink_options(protobuf(to(broker, &topic)))).unwrap();
    let fanout = Fanout::default();
    fanout.attach(&sink);
    let mut runs = [fanout.writer([7; 16]), fanout.writer([7; 16])];
    for number in 0..10 {
        let run = &mut runs[number as usize % 2];
        run.record(&SocketRecord { run_id: Some(run.stream()), ..numbered(number) });
        run.flush();
    }
    wait_for("all rows to leave", || hop(&sink.meter()).in_flight.is_zero().then_some(()));

    let messages = readback::kafka(broker, &topic);
    assert_eq!(messages.len(), 10);
    for message in &messages {
        let Ok(Record::Socket(record)) = decode_record(&message.payload) else { panic!() };
        let run = ("weir-run".to_owned(), record.run_id.unwrap().to_string().into_bytes());
        assert!(message.headers.contains(&run), "{message:?}");
    }
}

fn away() -> Option<(impl Outage, KafkaOptions)> {
    let server = Server::Kafka.start()?;
    make_kafka_topic(&server, "records", 4);
    let options = to(server.addr(), "records");
    let read = |server: &Own| readback::kafka(server, "records").iter().map(number_of).collect();
    Some((Killed { server, read, rows_per_sec: 20_000 }, options))
}

#[test]
fn a_killed_broker_costs_what_the_queue_could_not_hold_and_nothing_is_there_twice() {
    let Some((away, options)) = away() else { return };
    let hop = crate::outage::without_spool(away, || SinkOptions {
        // Rows in flight are kept, and must not be most of what is sent meanwhile.
        batch: BatchLimits { rows: 1_000, bytes: 1 << 20, age: Duration::ZERO },
        ..sink_options(protobuf(options))
    });
    assert_eq!(hop.event(Event::PossibleDuplicates), 0);
}

#[test]
fn a_killed_broker_costs_nothing_with_a_spool_and_nothing_is_there_twice() {
    let Some((away, options)) = away() else { return };
    let hop = crate::outage::with_spool(away, || sink_options(protobuf(options)));
    assert_eq!(hop.event(Event::PossibleDuplicates), 0);
}

#[test]
fn a_slow_hanging_or_resetting_broker_holds_no_other_sink() {
    let Some((broker, proxy)) = Server::Kafka.start_with_proxy() else { return };
    make_kafka_topic(&broker, "records", 4);
    let hop = beside(
        sink_options(protobuf(to(proxy.addr(), "records"))),
        &proxy,
        &[
            Fault::Slow { bytes_per_sec: 20_000 },
            Fault::Hang,
            Fault::ResetAfter { sent_bytes: 50_000 },
            Fault::Refuse,
        ],
    );
    let mut numbers: Vec<_> = readback::kafka(&broker, "records").iter().map(number_of).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..hop.received.count));
}

/// The trouble that the sink reports with a broker that does not accept its record.
pub(crate) fn trouble_with(options: KafkaOptions) -> Trouble {
    let mut source = Source::to_one(sink_options(protobuf(options)));
    source.send(0..1);
    let meter = source.meters().remove(0);
    let trouble = wait_for("the sink to say what is wrong", || hop(&meter).trouble);
    assert_eq!((hop(&meter).delivered.count, hop(&meter).in_flight.count), (0, 1));
    // Closing must not wait for a broker that does not come back.
    source.stop(Instant::now());
    trouble
}

#[track_caller]
pub(crate) fn check_trouble(trouble: &Trouble, what: &[&str], fix: &str) {
    for word in what {
        assert!(trouble.what.contains(word), "{word} is missing: {trouble:?}");
    }
    assert!(trouble.fix.contains(fix), "{fix} is missing: {trouble:?}");
    assert!(!format!("{trouble:?}").contains("geheim"), "a secret is shown: {trouble:?}");
}

#[test]
fn nobody_listening_and_a_wrong_name_are_named() {
    let closed = SocketAddr::from(([127, 0, 0, 1], testkit::free_port()));
    let trouble = trouble_with(to(closed, "records"));
    check_trouble(
        &trouble,
        &[&format!("kafka://{closed}/records"), "Connection refused"],
        "kcat -b",
    );

    let options =
        KafkaOptions { brokers: vec!["no.such.host.invalid:9092".into()], ..to(closed, "t") };
    let trouble = trouble_with(options);
    check_trouble(&trouble, &["no.such.host.invalid:9092", "Failed to resolve"], "getent hosts");
}

#[test]
fn a_missing_topic_is_named_and_waited_for() {
    let Some(broker) = Server::Kafka.shared() else { return };
    let topic = unique("missing");
    let mut source = Source::to_one(sink_options(protobuf(to(broker, &topic))));
    source.send(0..10);
    let meter = source.meters().remove(0);
    let trouble = wait_for("the sink to say what is wrong", || hop(&meter).trouble);
    check_trouble(&trouble, &[&topic, "nknown topic"], "kafka-topics.sh");

    make_kafka_topic(broker, &topic, 1);
    wait_for("all rows to leave", || source.is_empty());
    let now = source.hop();
    assert_eq!((now.delivered.count, &now.trouble), (10, &None));
    assert_eq!(now.event(Event::PossibleDuplicates), 0, "nothing was sent before");
    assert_eq!(readback::kafka(broker, &topic).len(), 10);
}

/// Over TLS as the user `weir`.
fn secured(broker: &Own, mechanism: SaslMechanism, password: &TempDir) -> KafkaOptions {
    let login = Login {
        user: Some("weir".into()),
        password: Some(SecretSource::File(password.file("password"))),
        token: None,
    };
    KafkaOptions {
        sasl: Some(KafkaSasl { mechanism, login }),
        tls: Some(TlsOptions { ca: broker.ca().map(Into::into), ..TlsOptions::default() }),
        ..to(broker.addr(), "records")
    }
}

#[test]
fn a_user_over_tls_is_let_in_with_the_right_password_alone() {
    let Some(broker) = Server::Kafka.start_secured(Certificate::Valid) else { return };
    make_kafka_topic(&broker, "records", 1);
    let folder = TempDir::new();
    let mechanisms = [SaslMechanism::Plain, SaslMechanism::ScramSha512];
    for (count, mechanism) in (1..).zip(mechanisms) {
        std::fs::write(folder.path().join("password"), "right\n").unwrap();
        let options = secured(&broker, mechanism, &folder);
        let mut source = Source::to_one(sink_options(protobuf(options.clone())));
        source.send(0..10);
        wait_for("all rows to leave", || source.is_empty());
        assert_eq!(readback::kafka(&broker, "records").len(), count * 10);

        std::fs::write(folder.path().join("password"), "geheim\n").unwrap();
        let trouble = trouble_with(options);
        let what = [&format!("kafkas://{}/records", broker.addr())[..], "uthentication"];
        check_trouble(&trouble, &what, "password_file");
    }

    // No trusted authority has signed the certificate.
    let unknown = KafkaOptions {
        tls: Some(TlsOptions::default()),
        ..secured(&broker, SaslMechanism::Plain, &folder)
    };
    check_trouble(&trouble_with(unknown), &["certificate verify failed"], "tls_ca");
}

#[test]
fn a_certificate_that_has_expired_is_refused() {
    let Some(broker) = Server::Kafka.start_secured(Certificate::Expired) else { return };
    let folder = TempDir::new();
    std::fs::write(folder.path().join("password"), "right\n").unwrap();
    let trouble = trouble_with(secured(&broker, SaslMechanism::Plain, &folder));
    let what = [&format!("kafkas://{}/records", broker.addr())[..], "certificate verify failed"];
    check_trouble(&trouble, &what, "openssl s_client -connect");
}

#[test]
fn a_message_that_is_too_large_costs_no_other() {
    const MAKE: &str = "import sys; from confluent_kafka.admin import AdminClient, NewTopic\n\
        topic = NewTopic(sys.argv[2], 1, 1, config={'max.message.bytes': '20000'})\n\
        client = AdminClient({'bootstrap.servers': sys.argv[1]})\n\
        client.create_topics([topic])[sys.argv[2]].result(30)";
    let Some(broker) = Server::Kafka.shared() else { return };
    let topic = unique("small");
    let python = testkit::find_tool("weir-python").unwrap();
    testkit::run(Command::new(python).args(["-c", MAKE, &broker.to_string(), &topic]));

    // The broker limits a request, and a request is more than one message at first.
    let options = KafkaOptions { compression: KafkaCompression::None, ..to(broker, &topic) };
    let mut source = Source::to_one(sink_options(protobuf(options)));
    let long = "x".repeat(30_000);
    for number in 0..5_000 {
        let host = if number == 50 { Some(&long[..]) } else { record(number).host };
        source.writer.record(&SocketRecord { host, ..record(number) });
    }
    source.writer.flush();
    wait_for("all rows to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!(hop.rejected_with(RejectClass::TooLarge).count, 1, "{hop:?}");
    assert_eq!((hop.delivered.count, hop.event(Event::PossibleDuplicates)), (4_999, 0));
    let numbers: HashSet<_> = readback::kafka(broker, &topic).iter().map(number_of).collect();
    assert_eq!(numbers, (0..5_000).filter(|number| *number != 50).collect());
}

/// A mock broker inside librdkafka, with scripted answers.
fn pretended() -> (MockCluster<'static, DefaultProducerContext>, KafkaOptions) {
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("records", 1, 1).unwrap();
    let addr = broker.bootstrap_servers().parse().unwrap();
    (broker, to(addr, "records"))
}

#[test]
fn a_record_that_the_topic_does_not_take_is_rejected() {
    let (broker, options) = pretended();
    broker.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_RECORD],
    );
    let mut source = Source::to_one(sink_options(protobuf(options)));
    source.send(0..10);
    wait_for("all rows to leave", || source.is_empty());
    assert_eq!(source.hop().rejected_with(RejectClass::Invalid).count, 10);
    source.send(10..20);
    wait_for("all rows to leave", || source.is_empty());
    assert_eq!(source.hop().delivered.count, 10);
}

#[test]
fn a_topic_that_is_not_allowed_is_named_and_tried_again() {
    let (broker, options) = pretended();
    let refused = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 4];
    broker.request_errors(RDKafkaApiKey::Produce, &refused);
    let mut source = Source::to_one(sink_options(protobuf(options)));
    source.send(0..10);
    let meter = source.meters().remove(0);
    let trouble = wait_for("the sink to say what is wrong", || hop(&meter).trouble);
    check_trouble(&trouble, &["records", "uthorization"], "kafka-acls.sh");
    wait_for("all rows to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!((hop.delivered.count, hop.event(Event::PossibleDuplicates)), (10, 0), "{hop:?}");
}

#[test]
fn a_producer_that_has_met_a_fatal_error_is_made_anew() {
    let (broker, options) = pretended();
    // librdkafka considers that fatal: such a producer never sends again.
    broker.request_errors(
        RDKafkaApiKey::InitProducerId,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED],
    );
    let mut source = Source::to_one(sink_options(protobuf(options)));
    source.send(0..10);
    let meter = source.meters().remove(0);
    let trouble = wait_for("the sink to say what is wrong", || hop(&meter).trouble);
    check_trouble(&trouble, &["uthorization"], "kafka-acls.sh");
    wait_for("all rows to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!((hop.delivered.count, hop.event(Event::PossibleDuplicates)), (10, 0), "{hop:?}");
}

#[test]
fn a_batch_is_found_where_the_broker_says_it_is() {
    let Some(broker) = Server::Kafka.shared() else { return };
    let topic = unique("found");
    make_kafka_topic(broker, &topic, 3);
    let connector = || protobuf(to(broker, &topic));
    assert_eq!(found(connector()), ("read back", Ok("the same is there".to_owned())));
    assert!(matches!(missing(connector()), ReadBack::Cannot(_)));
}
