//! A producer that breaks or loses its leader, in the middle of what it delivers.

use super::{pretended, protobuf, sink_options, to};
use crate::support::{Source, hop, numbered};
use ledger::Event;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use sink::{BatchLimits, DeliveryOptions, KafkaCompression, KafkaOptions, SinkOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use testkit::{DEADLINE, Peer, find_tool, need_python_module, root, say, wait_for, wait_for_up_to};

/// How many messages were ever stored in partition 0.
fn stored(options: &KafkaOptions) -> u64 {
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", &options.brokers[0]).create().unwrap();
    let (_, end) = consumer.fetch_watermarks(&options.topic, 0, DEADLINE).unwrap();
    end.try_into().unwrap()
}

/// The client takes 100,000 messages at once, so that it has not got all of the batch when it breaks.
#[test]
fn of_a_batch_half_passed_on_to_a_broken_producer_nothing_acknowledged_is_sent_again() {
    const ROWS: u64 = 150_000;
    let (broker, options) = pretended();
    let options = KafkaOptions { compression: KafkaCompression::None, ..options };
    let fine = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR; 4];
    let fatal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    broker.request_errors(RDKafkaApiKey::Produce, &[&fine[..], &[fatal]].concat());
    let batch = BatchLimits { rows: ROWS as usize, bytes: 256 << 20, age: DEADLINE };
    let mut source =
        Source::to_one(SinkOptions { batch, ..sink_options(protobuf(options.clone())) });
    source.send_all((0..ROWS).map(numbered));
    wait_for("all rows to leave", || source.is_empty());

    let hop = source.hop();
    let (repeated, possible) = (stored(&options) - ROWS, hop.event(Event::PossibleDuplicates));
    say(&format!("{repeated} there twice of {possible} that may be"));
    assert_eq!((hop.delivered.count, hop.event(Event::Retries) > 0), (ROWS, true), "{hop:?}");
    assert!(repeated <= possible, "{repeated} {hop:?}");
    // Those that were in flight: five requests of at most 10,000 messages, and the one that failed.
    assert!(possible <= 60_000, "{hop:?}");
}

/// What is acknowledged is known to the sink long before the last message of its batch.
#[test]
fn what_was_acknowledged_of_a_batch_is_counted_while_the_rest_waits() {
    const ROWS: u64 = 20_000;
    let (broker, options) = pretended();
    let fine = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR; 1];
    let later = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 1_000];
    broker.request_errors(RDKafkaApiKey::Produce, &[&fine[..], &later].concat());
    let batch = BatchLimits { rows: ROWS as usize, bytes: 256 << 20, age: DEADLINE };
    let mut source = Source::to_one(SinkOptions { batch, ..sink_options(protobuf(options)) });
    source.send_all((0..ROWS).map(numbered));
    let delivered = wait_for("some to be delivered", || {
        Some(source.hop().delivered.count).filter(|count| *count > 0)
    });
    assert!(delivered < ROWS, "{delivered}");
    broker.clear_request_errors(RDKafkaApiKey::Produce);
    wait_for("all rows to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!((hop.delivered.count, hop.event(Event::PossibleDuplicates)), (ROWS, 0), "{hop:?}");
}

/// A broker whose answers about the leader are scripted.
struct Scripted {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    addr: String,
    _process: Peer,
}

impl Scripted {
    fn start() -> Option<Scripted> {
        if !need_python_module("confluent_kafka") {
            return None;
        }
        let mut command = Command::new(find_tool("weir-python").unwrap());
        command.arg(root().join("crates/testkit/servers/kafka_mock.py")).arg("records");
        let mut process = Peer::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let input = process.0.stdin.take().unwrap();
        let output = BufReader::new(process.0.stdout.take().unwrap());
        let mut broker = Scripted { input, output, addr: String::new(), _process: process };
        broker.addr = broker.line();
        Some(broker)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// What the next answer says about the leader.
    fn leader(&mut self, broker: i32, epoch: i32) {
        writeln!(self.input, "leader {broker} {epoch}").unwrap();
        assert_eq!(self.line(), "done");
    }
}

/// A client that believes a leader of a later epoch to be gone takes all later news for old, for as long as it lives.
#[test]
fn a_client_that_finds_no_leader_any_more_is_replaced() {
    let Some(mut broker) = Scripted::start() else { return };
    let options = to(broker.addr.parse().unwrap(), "records");
    let options = KafkaOptions { delivery_max: Duration::from_secs(5), ..options };
    let delivery =
        DeliveryOptions { answer_max: Duration::from_secs(60), ..DeliveryOptions::default() };
    let mut source =
        Source::to_one(SinkOptions { delivery, ..sink_options(protobuf(options.clone())) });
    let meter = source.meters().remove(0);
    // The first client asks twice before it has its first message.
    for _ in 0..2 {
        broker.leader(-1, 1_000);
    }
    source.send(0..100);
    wait_for("a client to wait in vain", || (hop(&meter).event(Event::Retries) > 0).then_some(()));
    wait_for_up_to(2 * DEADLINE, "all rows to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!((hop.delivered.count, hop.event(Event::PossibleDuplicates)), (100, 0), "{hop:?}");
    assert_eq!(stored(&options), 100);
}
