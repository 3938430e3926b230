//! One full record of 110 fields to bytes, in each encoding: 128 different connections in turn, so that the processor cannot
//! learn one record's values by heart. The time is of one record; the output goes into one buffer, emptied every 128 records.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

#[path = "../tests/record/support.rs"]
mod support;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use record::{DatagramPacker, Encoder, Encoding, FieldSet, SocketRecord, decode_protobuf};
use std::hint::black_box;

const RECORDS: usize = 128;

fn records() -> Vec<SocketRecord<'static>> {
    let mut random = testkit::Random(1);
    (0..RECORDS).map(|_| support::realistic(&mut random)).collect()
}

/// A cursor over all records, and a buffer that is emptied whenever it starts over.
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

fn decode(c: &mut Criterion) {
    let mut encoder = Encoder::new(Encoding::Protobuf, &FieldSet::ALL);
    let encoded: Vec<Vec<u8>> = records()
        .iter()
        .map(|record| {
            let mut out = Vec::new();
            encoder.encode(record, &mut out);
            // Without the length before it, which takes two bytes.
            out.split_off(2)
        })
        .collect();
    let mut turn = encoded.iter().cycle();
    c.bench_function("decode one record of protobuf", |b| {
        b.iter_batched(
            || turn.next().expect("a cycle has no end"),
            |bytes| decode_protobuf(bytes).expect("it is ours").rtt_us,
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, encode, decode);
criterion_main!(benches);
