//! The Kafka sink against Apache Kafka.

use crate::support::{Source, fields, hop, numbered, options};
use ledger::{HopSnapshot, Reason, RejectClass};
use record::{Encoding, FieldSet, PollTotals, Record, SocketRecord, decode_record, decode_totals};
use sink::{
    BatchLimits, Connector, Content, DeliveryOptions, KafkaCompression, KafkaKey, KafkaOptions,
    QueueOptions, Sink, SinkOptions, kafka,
};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use testkit::readback::{self, Message, make_kafka_topic};
use testkit::servers::{Server, unique};
use testkit::wait_for;

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
    const COUNT: u64 = 100_000;
    let Some(broker) = Server::Kafka.shared() else { return };
    let topic = unique("records");
    make_kafka_topic(broker, &topic, 4);
    make_kafka_topic(broker, &format!("{topic}-polls"), 1);

    let options = KafkaOptions { key: KafkaKey::Connection, ..to(broker, &topic) };
    let mut source = Source::to_one(sink_options(protobuf(options)));
    (0..COUNT).for_each(|number| source.writer.record(&record(number)));
    source.writer.end_of_poll(&PollTotals { poll: Some(7), ..PollTotals::default() });
    wait_for("all rows to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!((hop.delivered.count, hop.delivered), (COUNT + 1, hop.received));

    let messages = readback::kafka(broker, &topic);
    assert_eq!(messages.len(), COUNT as usize);
    let mut seen = HashSet::new();
    let mut partition_of = std::collections::HashMap::new();
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
