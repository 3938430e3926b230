//! The Kafka sink against Apache Kafka.

use crate::support::{Source, Watch, hop, numbered, options};
use ledger::{Event, HopSnapshot, Reason, RejectClass, Trouble};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use record::{
    ChunkBuilder, Encoding, FieldSet, PollTotals, Record, SocketRecord, decode_record,
    decode_totals,
};
use sink::batch::{Batch, BatchId, Encoded};
use sink::{
    BatchLimits, Connector, Content, DeliveryOptions, KafkaCompression, KafkaKey, KafkaOptions,
    KafkaSasl, Login, QueueOptions, ReadBack, SaslMechanism, SecretSource, Sink, SinkOptions,
    SpoolOptions, SpoolSync, TlsOptions, kafka,
};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::proxy::Fault;
use testkit::readback::{self, Message, make_kafka_topic};
use testkit::servers::{Certificate, Server, unique};
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
        delivery_max: Duration::from_secs(120),
    }
}

fn protobuf(options: KafkaOptions) -> Connector {
    kafka(options, Content::Records(Encoding::Protobuf, FieldSet::ALL))
}

/// A sink as the configuration makes it.
fn sink_options(connector: Connector) -> SinkOptions {
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

fn record(number: u64) -> SocketRecord<'static> {
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

    let messages = readback::kafka(broker, &topic);
    assert_eq!(messages.len() as u64, count);
    let mut seen = HashSet::new();
    let mut partition_of = HashMap::new();
    for message in &messages {
        let number = number_of(message);
        assert!(seen.insert(number), "{number} is there twice");
        let expected = record(number);
        assert_eq!(decode_record(&message.payload), Ok(Record::Socket(expected)));
        // The key is the host's boot and the cookie, and what has the same key is in the same partition.
        let key = [&[7; 16][..], &(number % 1_000).to_be_bytes()].concat();
        assert_eq!(message.key.as_ref(), Some(&key));
        assert_eq!(*partition_of.entry(key).or_insert(message.partition), message.partition);
        let headers = [("weir-schema", &b"1"[..]), ("weir-kind", b"record")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(message.headers, headers);
    }

    let totals = readback::kafka(broker, &format!("{topic}-polls"));
    assert_eq!(totals.len(), 1);
    assert_eq!(decode_totals(&totals[0].payload).unwrap().poll, Some(7));
    assert_eq!(totals[0].headers[1].1, b"totals");
}

/// Sends 20,000 records a second until told to stop, and returns how many.
fn send_steadily(source: &mut Source, stop: &AtomicBool) -> u64 {
    const TICK: Duration = Duration::from_millis(10);
    let (mut sent, mut at) = (0, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        source.send(sent..sent + 200);
        sent += 200;
        at += TICK;
        wait_for("the next tick", || (Instant::now() >= at).then_some(()));
    }
    sent
}

/// The broker is killed for so long under 20,000 records a second. Returns what the sink says at the end, what was sent, and the numbers
/// of the records in the topic.
fn outage(adapt: impl FnOnce(&mut SinkOptions)) -> Option<(HopSnapshot, u64, Vec<u64>)> {
    const OUTAGE: Duration = Duration::from_secs(10);
    let mut broker = Server::Kafka.start()?;
    make_kafka_topic(broker.addr(), "records", 4);
    let mut options = sink_options(protobuf(to(broker.addr(), "records")));
    adapt(&mut options);
    let mut source = Source::to_one(options);
    let watch = Watch::new(source.meters());
    let stop = AtomicBool::new(false);

    let meter = source.meters().remove(0);
    let (sent, restarted) = thread::scope(|scope| {
        let sender = scope.spawn(|| send_steadily(&mut source, &stop));
        wait_for("the first acknowledgements", || {
            (hop(&meter).delivered.count > 20_000).then_some(())
        });
        broker.kill();
        let ends = Instant::now() + OUTAGE;
        wait_for("the sink to say so", || hop(&meter).trouble);
        wait_for("the end of the outage", || (Instant::now() >= ends).then_some(()));
        broker.restart();
        let restarted = Instant::now();
        let delivered = hop(&meter).delivered.count;
        wait_for("records to be delivered again", || {
            (hop(&meter).delivered.count > delivered).then_some(())
        });
        stop.store(true, Ordering::Relaxed);
        (sender.join().unwrap(), restarted)
    });

    wait_for("all rows to leave", || source.is_empty());
    assert!(restarted.elapsed() < 2 * OUTAGE, "drained only after {:?}", restarted.elapsed());
    assert!(watch.end() > 0);
    let hop = source.hop();
    assert_eq!((hop.received.count, hop.trouble.as_ref()), (sent, None));
    let messages = readback::kafka(&broker, "records");
    Some((hop, sent, messages.iter().map(number_of).collect()))
}

#[test]
fn a_killed_broker_costs_what_the_queue_could_not_hold_and_nothing_is_there_twice() {
    let small = QueueOptions { bytes_max: 4 << 20, ..QueueOptions::default() };
    let Some((hop, sent, numbers)) = outage(|options| options.queue = small) else { return };
    let dropped = hop.dropped_for(Reason::QueueFull);
    assert!(dropped.count > 0, "the outage was too short to test anything");
    assert_eq!(hop.delivered.count + dropped.count, sent, "{hop:?}");
    assert_eq!(hop.event(Event::PossibleDuplicates), 0);
    let unique: HashSet<_> = numbers.iter().copied().collect();
    assert_eq!(
        (numbers.len() as u64, unique.len() as u64),
        (hop.delivered.count, hop.delivered.count)
    );
}

#[test]
fn a_killed_broker_costs_nothing_with_a_spool_and_nothing_is_there_twice() {
    let folder = TempDir::new();
    let spool = SpoolOptions {
        folder: folder.path().join("spool"),
        bytes_max: 1 << 30,
        sync: SpoolSync::Every(Duration::from_millis(100)),
    };
    let small = QueueOptions { bytes_max: 4 << 20, ..QueueOptions::default() };
    let ended = outage(|options| {
        options.queue = small;
        options.spool = Some(spool);
    });
    let Some((hop, sent, mut numbers)) = ended else { return };
    assert_eq!((hop.delivered.count, hop.dropped_total().count), (sent, 0), "{hop:?}");
    assert_eq!(hop.event(Event::PossibleDuplicates), 0);
    numbers.sort_unstable();
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
}

#[test]
fn a_slow_hanging_or_resetting_broker_holds_no_other_sink() {
    const COUNT: u64 = 50_000;
    let Some((broker, proxy)) = Server::Kafka.start_with_proxy() else { return };
    make_kafka_topic(&broker, "records", 4);
    let to_kafka = Sink::open(sink_options(protobuf(to(proxy.addr(), "records")))).unwrap();
    let content = Content::Records(Encoding::Jsonl, FieldSet::ALL);
    let neighbor = Sink::open(options("neighbor", sink::null(content))).unwrap();
    let (of_kafka, of_neighbor) = (to_kafka.meter(), neighbor.meter());
    let mut source = Source::to(vec![to_kafka, neighbor]);
    let watch = Watch::new(source.meters());

    let mut sent = 0;
    for fault in [
        Fault::Slow { bytes_per_sec: 20_000 },
        Fault::Hang,
        Fault::ResetAfter { sent_bytes: 50_000 },
        Fault::Refuse,
    ] {
        // It is connected when the fault comes.
        source.send(sent..sent + 1);
        wait_for("the broker to answer", || hop(&of_kafka).in_flight.is_zero().then_some(()));
        proxy.set(fault);
        source.send(sent + 1..sent + COUNT);
        sent += COUNT;
        let at = Instant::now();
        wait_for("the neighbor", || (hop(&of_neighbor).delivered.count == sent).then_some(()));
        assert!(at.elapsed() < Duration::from_secs(2), "{fault:?} holds the neighbor");
        wait_for("the fault", || (proxy.fired() > 0).then_some(()));
        assert!(hop(&of_kafka).in_flight.count > 0, "{fault:?} has no effect");
        proxy.set(Fault::None);
        wait_for("it to recover", || hop(&of_kafka).in_flight.is_zero().then_some(()));
    }

    assert!(watch.end() > 0);
    let hop = hop(&of_kafka);
    assert_eq!((hop.delivered.count, hop.delivered), (sent, hop.received));
    let mut numbers: Vec<_> = readback::kafka(&broker, "records").iter().map(number_of).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
}

/// What the sink says of a broker that does not take its record.
fn trouble_with(options: KafkaOptions) -> Trouble {
    let mut source = Source::to_one(sink_options(protobuf(options)));
    source.send(0..1);
    let meter = source.meters().remove(0);
    let trouble = wait_for("the sink to say what is wrong", || hop(&meter).trouble);
    assert_eq!((hop(&meter).delivered.count, hop(&meter).in_flight.count), (0, 1));
    // Its end is no reason to wait for a broker that does not come.
    source.stop(Instant::now());
    trouble
}

#[track_caller]
fn check_trouble(trouble: &Trouble, what: &[&str], fix: &str) {
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
fn secured(
    broker: &testkit::servers::Own,
    mechanism: SaslMechanism,
    password: &TempDir,
) -> KafkaOptions {
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

    // No authority that is known here has signed it.
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

    // The broker refuses what is sent as one, and that is more than a message at first.
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

/// A broker inside librdkafka, which answers what it is told.
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
    // librdkafka takes that as fatal: such a producer never sends again.
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
    let mut connector = protobuf(to(broker, &topic));
    let mut builder = ChunkBuilder::new(1, [7; 16]);
    (0..10).for_each(|number| builder.record(&record(number)));
    let chunk = builder.cut(None).unwrap();
    let steps = sink::check(connector, chunk, Duration::from_secs(30));
    let results: Vec<_> = steps.iter().map(|step| (step.what, step.result.clone())).collect();
    assert_eq!(
        results.last().unwrap(),
        &("read back", Ok("the same is there".to_owned())),
        "{results:?}"
    );

    // A batch that is not there is not found.
    connector = protobuf(to(broker, &topic));
    let mut destination = (connector.destination)().unwrap();
    let batch = Batch {
        id: BatchId(1),
        kind: None,
        token: 0,
        encoded: Encoded { bytes: vec![1], parts: Vec::new() },
        rows: 0,
        oldest_unix_ns: 0,
    };
    assert!(matches!(destination.read_back(&batch, Duration::from_secs(1)), ReadBack::Cannot(_)));
}
