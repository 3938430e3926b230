//! Full records of 110 fields, as protobuf messages, into a Parquet file in memory: 65,536 different ones for each file. The time is
//! of one file.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

#[path = "../../record/tests/record/support.rs"]
mod support;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use record::{CellReader, ChunkBuilder, FieldSet};
use sink::parquet::{Table, TableWriter};
use std::hint::black_box;

const ROWS: u64 = 65_536;

fn encode(c: &mut Criterion) {
    let (mut random, mut builder) = (testkit::Random(1), ChunkBuilder::new(1, [0; 16]));
    (0..ROWS).for_each(|_| builder.record(&support::realistic(&mut random)));
    let chunk = builder.cut(None).expect("it has rows");
    let table = Table::sockets(&FieldSet::ALL);

    let mut group = c.benchmark_group("parquet");
    group.throughput(Throughput::Elements(ROWS)).sample_size(10);

    let mut reader = CellReader::new(&table.fields);
    group.bench_function("read the values of the messages", |b| {
        b.iter(|| {
            for row in chunk.rows() {
                let read = reader.read(row.bytes, |column, cell| {
                    black_box((column, cell));
                });
                read.expect("it is ours");
            }
        });
    });

    let mut writer = TableWriter::new(table).expect("the table is a schema");
    group.bench_function("write a file", |b| {
        b.iter(|| {
            for row in chunk.rows() {
                writer.push(row.bytes).expect("it is ours");
                writer.end_full_group().expect("memory takes every byte");
            }
            writer.finish().expect("memory takes every byte").len()
        });
    });
    group.finish();
}

criterion_group!(benches, encode);
criterion_main!(benches);
