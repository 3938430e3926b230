//! sFlow rows with every possible field, through brokers and stores, as other readers see them.

use crate::rows::any_message;
use crate::support::{Source, check_law};
use record::{
    Chunk, ChunkBuilder, CounterRecord, FlowRecord, FlowTotals, RecordKind, RowKind,
    decode_counter_record, decode_flow_record, decode_flow_totals, decode_record,
};
use testkit::readback::{self, Message};
use testkit::servers::{Server, unique};
use testkit::{Random, wait_for};

/// The time of the first row; each following one is a microsecond later.
const START_UNIX_NS: u64 = 1_795_372_920_000_000_000;

/// Rows between checks whether the queue has room for more.
const LOOK_ROWS: usize = 500;

/// Rows of each kind with their messages, `count` in total.
pub(crate) fn rows(count: u64) -> Vec<(RowKind, Vec<u8>)> {
    let mut random = Random(15);
    let row = |number| {
        let kind = match number % 20 {
            0..13 => RowKind::Flow,
            13..19 => RowKind::Counters,
            _ => RowKind::FlowTotals,
        };
        let message = any_message(&mut random, kind.fields());
        (kind, chunk_of(kind, &message, number).rows().next().unwrap().bytes.to_vec())
    };
    (0..count).map(row).collect()
}

/// A chunk with the row of a message, with its kind, number and time.
fn chunk_of(kind: RowKind, message: &[u8], number: u64) -> Chunk {
    let mut chunk = ChunkBuilder::new(1, [7; 16]);
    let (run_id, time_unix_ns) = (Some(7), Some(START_UNIX_NS + number * 1_000));
    let sequence = Some(number);
    match kind {
        RowKind::Flow => {
            let (row, record_kind) = (decode_flow_record(message).unwrap(), Some(RecordKind::FLOW));
            chunk.flow(&FlowRecord { record_kind, run_id, sequence, time_unix_ns, ..row }, 0);
        }
        RowKind::Counters => {
            let (row, record_kind) =
                (decode_counter_record(message).unwrap(), Some(RecordKind::COUNTERS));
            let row = CounterRecord { record_kind, run_id, sequence, time_unix_ns, ..row };
            chunk.counters(&row, 0);
        }
        _ => {
            let (row, record_kind) =
                (decode_flow_totals(message).unwrap(), Some(RecordKind::FLOW_TOTALS));
            let next_sequence = sequence;
            let row = FlowTotals { record_kind, run_id, next_sequence, time_unix_ns, ..row };
            chunk.flow_totals(&row);
        }
    }
    chunk.cut(None).unwrap()
}

/// Offers the rows as there is room.
pub(crate) fn write(source: &mut Source, rows: &[(RowKind, Vec<u8>)]) {
    for some in rows.chunks(LOOK_ROWS) {
        for (kind, message) in some {
            match kind {
                RowKind::Flow => source.writer.flow(&decode_flow_record(message).unwrap(), 1),
                RowKind::Counters => {
                    source.writer.counters(&decode_counter_record(message).unwrap(), 2);
                }
                _ => source.writer.flow_totals(&decode_flow_totals(message).unwrap()),
            }
        }
        source.writer.flush();
        source.wait_for_room();
    }
}

/// Sends the rows, and waits until all have arrived.
fn send(source: &mut Source, rows: &[(RowKind, Vec<u8>)]) {
    write(source, rows);
    wait_for("all rows to leave", || source.is_empty());
    let hop = source.hop();
    check_law(&hop);
    assert_eq!((hop.delivered.count, hop.delivered), (rows.len() as u64, hop.received), "{hop:?}");
}

/// Checks that each row is there once, with every field unchanged, in any order.
#[track_caller]
fn same(rows: Vec<(RowKind, Vec<u8>)>, found: impl Iterator<Item = Vec<u8>>) {
    let mut found: Vec<Vec<u8>> = found.collect();
    let mut sent: Vec<Vec<u8>> = rows.into_iter().map(|(_, message)| message).collect();
    assert_eq!(found.len(), sent.len());
    found.sort_unstable();
    sent.sort_unstable();
    for (found, sent) in found.iter().zip(&sent) {
        assert_eq!(decode_record(found).unwrap(), decode_record(sent).unwrap());
        assert!(found == sent, "{found:?} is not {sent:?}");
    }
}

fn payloads(messages: Vec<Message>) -> impl Iterator<Item = Vec<u8>> {
    messages.into_iter().map(|message| message.payload)
}

#[cfg(feature = "kafka")]
#[test]
fn kafka_has_every_field() {
    use crate::kafka::{protobuf, sink_options, to};
    let Some(broker) = Server::Kafka.shared() else { return };
    let topic = unique("flows");
    readback::make_kafka_topic(broker, &topic, 4);
    let rows = rows(testkit::rows());
    send(&mut Source::to_one(sink_options(protobuf(to(broker, &topic)))), &rows);

    let messages = readback::kafka(broker, &topic);
    for message in &messages {
        let word = message.headers.iter().find(|(name, _)| name == "weir-kind");
        let kind = record::decode_record(&message.payload).unwrap();
        let wanted: &[u8] = match kind {
            record::Record::Flow(_) => b"flow",
            record::Record::Counters(_) => b"counters",
            _ => b"flow_totals",
        };
        assert_eq!(word.map(|(_, word)| word.as_slice()), Some(wanted));
    }
    same(rows, payloads(messages));
}

#[test]
fn nsq_has_every_field() {
    use crate::nsq::{protobuf, sink_options, to};
    let Some(nsqd) = Server::Nsqd.shared() else { return };
    let topic = unique("flows");
    let rows = rows(testkit::rows());
    send(&mut Source::to_one(sink_options(protobuf(to(nsqd, &topic)))), &rows);
    same(rows, payloads(readback::nsq(nsqd, &topic)));
}

#[cfg(feature = "nats")]
#[test]
fn jetstream_has_every_field() {
    use crate::nats::{records, sink_options, to};
    let Some(server) = Server::Nats.shared() else { return };
    let name = unique("flows");
    readback::make_jetstream(server, &name, &[&name]);
    let options = to(server, &name, sink::NatsService::JetStream);
    let rows = rows(testkit::rows());
    send(&mut Source::to_one(sink_options(records(options))), &rows);
    same(rows, payloads(readback::jetstream(server, &name)));
}

#[cfg(feature = "redis")]
#[test]
fn redis_has_every_field() {
    use crate::redis::{field, records, sink_options, to};
    let Some(server) = Server::Redis.shared() else { return };
    let stream = unique("flows");
    let rows = rows(testkit::rows());
    send(&mut Source::to_one(sink_options(records(to(server, &stream)))), &rows);
    let entries = readback::redis_stream(server, &stream);
    same(rows, entries.iter().map(|entry| field(&entry.headers, "record").to_vec()));
}

/// The engine itself compares the rows that the sink inserted with those it reads from JSON lines: all columns
/// of all rows.
#[cfg(feature = "http")]
#[test]
fn clickhouse_has_every_field() {
    use crate::clickhouse::{sink, to};
    let Some(server) = Server::ClickHouse.shared() else { return };
    let (by_sink, by_lines) = (unique("weir"), unique("weir"));
    let rows = rows(testkit::rows());
    send(&mut Source::to_one(sink(to(server, &by_sink), 25_000)), &rows);

    post(server, "default", "", format!("CREATE DATABASE `{by_lines}`").as_bytes());
    let path = testkit::root().join("deploy/clickhouse/flows.sql");
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    for statement in lines.join("\n").split_inclusive(";\n") {
        post(server, &by_lines, "", statement.trim_end_matches(";\n").as_bytes());
    }
    for kind in [RowKind::Flow, RowKind::Counters, RowKind::FlowTotals] {
        let table = kind.table();
        let insert = format!("INSERT INTO {table}_json FORMAT JSONEachRow");
        post(server, &by_lines, &insert, &lines_of(&rows, kind));

        let sum = |database: &str| {
            let query = format!(
                "SELECT count() AS count, groupBitXor(cityHash64(tuple(* EXCEPT ingest_time))) AS sum FROM `{database}`.{table}"
            );
            readback::clickhouse(server, &query).remove(0)
        };
        let (inserted, wanted) = (sum(&by_sink), sum(&by_lines));
        let count = rows.iter().filter(|(of, _)| *of == kind).count();
        assert_eq!((&inserted, &inserted["count"]), (&wanted, &count.into()), "{table}");
    }
}

/// The rows of one kind as JSON lines, with the encoder of crate `record`.
#[cfg(any(feature = "http", feature = "parquet"))]
pub(crate) fn lines_of(rows: &[(RowKind, Vec<u8>)], kind: RowKind) -> Vec<u8> {
    use record::{Encoder, Encoding, FieldSet, Frame};
    let mut encoder = Encoder::new(Encoding::Jsonl, &FieldSet::ALL).framed(Frame::OneKind);
    let mut lines = Vec::new();
    for (_, message) in rows.iter().filter(|(of, _)| *of == kind) {
        encoder.row(kind, message, &mut lines).unwrap();
    }
    lines
}

/// Sends a request with a body, which must succeed.
#[cfg(feature = "http")]
#[track_caller]
fn post(server: std::net::SocketAddr, database: &str, query: &str, body: &[u8]) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(testkit::DEADLINE)).unwrap();
    let query = query.replace(' ', "%20");
    let head = format!(
        "POST /?database={database}&query={query} HTTP/1.0\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.split(' ').nth(1) == Some("200"), "{answer}");
}
