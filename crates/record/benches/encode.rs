//! Encodes one full record of 110 fields, in each encoding: 128 different connections in turn, so that the branch predictor
//! cannot learn one record's values by heart. The time is per record; the output goes into one buffer, emptied every 128
//! records.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

#[path = "../tests/record/support.rs"]
mod support;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use record::{
    DatagramPacker, Encoder, Encoding, FieldSet, Frame, Native, RowKind, SocketRecord,
    decode_protobuf,
};
use std::hint::black_box;
use wire::syslog::{Arrival, parse};

const RECORDS: usize = 128;

fn records() -> Vec<SocketRecord<'static>> {
    let mut random = testkit::Random(1);
    (0..RECORDS).map(|_| support::realistic(&mut random)).collect()
}

/// Iterates over all records, with a buffer that is emptied at each restart.
struct Turn {
    records: Vec<SocketRecord<'static>>,
    at: usize,
    out: Vec<u8>,
}

impl Turn {
    fn new() -> Turn {
        Turn { records: records(), at: 0, out: Vec::with_capacity(RECORDS * 4096) }
    }

    #[inline(always)]
    fn next(&mut self) -> (&SocketRecord<'static>, &mut Vec<u8>) {
        self.at = (self.at + 1) % RECORDS;
        if self.at == 0 {
            self.out.clear();
        }
        (&self.records[self.at], &mut self.out)
    }
}

fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode one record");
    group.throughput(Throughput::Elements(1));
    for &encoding in Encoding::ALL {
        let (mut encoder, mut turn) = (Encoder::new(encoding, &FieldSet::ALL), Turn::new());
        group.bench_function(encoding.name(), |b| {
            b.iter(|| {
                let (record, out) = turn.next();
                encoder.encode(black_box(record), out);
            });
        });
    }
    let fields =
        "identity,endpoints,rtt_us,bytes_acked,bytes_received".parse().expect("known names");
    let (mut encoder, mut turn) = (Encoder::new(Encoding::Protobuf, &fields), Turn::new());
    group.bench_function("protobuf, 16 fields chosen", |b| {
        b.iter(|| {
            let (record, out) = turn.next();
            encoder.encode(black_box(record), out);
        });
    });
    let (mut packer, mut turn) = (DatagramPacker::new(7, 1_472, &FieldSet::ALL), Turn::new());
    group.bench_function("protobuf into datagrams", |b| {
        b.iter(|| {
            let (record, _) = turn.next();
            black_box(packer.push(black_box(record)).expect("it fits"));
        });
    });
    group.finish();
}

/// The records as protobuf messages.
fn messages() -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(Encoding::Protobuf, &FieldSet::ALL).framed(Frame::Alone);
    let message = |record: &SocketRecord<'_>| {
        let mut out = Vec::new();
        encoder.encode(record, &mut out);
        out
    };
    records().iter().map(message).collect()
}

/// Rows in a block.
const BLOCK_ROWS: usize = 50_000;

/// What a sink does with a row: from its message to the store's format.
fn transcode(c: &mut Criterion) {
    let (messages, mut out) = (messages(), Vec::with_capacity(RECORDS * 4096));
    let mut group = c.benchmark_group("transcode one record");
    group.throughput(Throughput::Elements(1));
    for encoding in [Encoding::Protobuf, Encoding::Jsonl] {
        let mut encoder = Encoder::new(encoding, &FieldSet::ALL);
        let mut turn = messages.iter().cycle();
        group.bench_function(encoding.name(), |b| {
            b.iter(|| {
                out.clear();
                encoder.row(RowKind::Record, turn.next().expect("a cycle has no end"), &mut out)
            });
        });
    }
    let mut turn = messages.iter().cycle();
    let mut block = Native::new(RowKind::Record, &FieldSet::ALL);
    let mut rows = 0;
    group.bench_function("Native", |b| {
        b.iter(|| {
            rows += 1;
            if rows % BLOCK_ROWS == 0 {
                black_box(block.finish());
            }
            block.push(turn.next().expect("a cycle has no end"))
        });
    });
    group.finish();
}

/// Parses a datagram of 120 bytes with structured data into its fields and message.
fn datagram(c: &mut Criterion) {
    let datagram = support::realistic_datagram(&mut testkit::Random(1));
    let payload = datagram.payload.expect("it has one");
    let arrival = Arrival::utc(1_795_348_800_000_000_000);
    c.bench_function("parse one RFC 5424 datagram", |b| {
        b.iter(|| parse(black_box(payload), arrival).severity);
    });
    c.bench_function("parse one RFC 3164 datagram", |b| {
        let payload = b"<38>Oct 11 22:14:15 web-17 sshd[4711]: Accepted publickey for root from 192.0.2.1 port 50022 ssh2";
        b.iter(|| parse(black_box(payload), arrival).severity);
    });
    let mut encoder = Encoder::new(Encoding::Protobuf, &FieldSet::ALL);
    let mut out = Vec::with_capacity(4096);
    c.bench_function("encode one datagram as protobuf", |b| {
        b.iter(|| {
            out.clear();
            encoder.datagram(black_box(&datagram), &mut out);
        });
    });
}

fn decode(c: &mut Criterion) {
    let encoded = messages();
    let mut turn = encoded.iter().cycle();
    c.bench_function("decode one record of protobuf", |b| {
        b.iter_batched(
            || turn.next().expect("a cycle has no end"),
            |bytes| decode_protobuf(bytes).expect("it is ours").rtt_us,
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, encode, transcode, datagram, decode);
criterion_main!(benches);
