//! Full records of 110 fields, as protobuf messages, into a Parquet file in memory: 65,536 different ones, and the same number from 32
//! polls of 2,048 connections, with each way to store numbers. CPU time of the thread, in the best of its rounds. `cargo bench -p sink --features parquet --bench parquet`; without `--bench` it runs once.
//! The file is kept in the build directory, and `benches/parquet.py FILE` measures how long pyarrow takes to write the same rows.

#![expect(clippy::print_stdout, reason = "a bench prints what it finds")]

#[path = "../../record/tests/record/support.rs"]
mod support;

use columns::{Table, TableWriter};
use record::{CellReader, Chunk, ChunkBuilder, FieldSet, SocketRecord};
use std::hint::black_box;
use std::path::Path;
use sys::clock::thread_cpu_ns;

const ROWS: u64 = 65_536;
const ROUNDS: usize = 20;

fn best(what: &str, rounds: usize, mut round: impl FnMut()) {
    let times = (0..rounds).map(|_| {
        let began_ns = thread_cpu_ns();
        round();
        thread_cpu_ns() - began_ns
    });
    let best_ns = times.min().unwrap_or_default() as f64 / ROWS as f64;
    println!("{what}: {best_ns:.0} ns a row, {:.0} rows/s", 1e9 / best_ns);
}

fn write(writer: &mut TableWriter, chunk: &Chunk) -> Vec<u8> {
    for row in chunk.rows() {
        writer.push(row.bytes).expect("it is ours");
        writer.end_full_group().expect("memory takes every byte");
    }
    writer.finish().expect("memory takes every byte")
}

/// All connections in one poll after another: counters grow, and the rest mostly stays.
fn polls(random: &mut testkit::Random) -> Chunk {
    const CONNECTIONS: u64 = 2_048;
    const INTERVAL_NS: u64 = 10_000_000_000;
    let mut connections: Vec<SocketRecord<'_>> =
        (0..CONNECTIONS).map(|_| support::realistic(random)).collect();
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    for number in 0..ROWS {
        let record = &mut connections[(number % CONNECTIONS) as usize];
        let segments = random.below(1_000);
        record.time_unix_ns =
            Some(1_795_190_400_000_000_000 + number / CONNECTIONS * INTERVAL_NS + number * 2_000);
        record.sequence = Some(number);
        record.poll = Some(number / CONNECTIONS);
        record.rtt_us = record.rtt_us.map(|rtt_us| rtt_us + random.below(100) as u32);
        record.segs_out = record.segs_out.map(|count| count + segments as u32);
        record.bytes_acked = record.bytes_acked.map(|bytes| bytes + segments * 1_100);
        builder.record(record);
    }
    builder.cut(None).expect("it has rows")
}

fn main() {
    let rounds = if std::env::args().any(|argument| argument == "--bench") { ROUNDS } else { 1 };
    let (mut random, mut builder) = (testkit::Random(1), ChunkBuilder::new(1, [0; 16]));
    (0..ROWS).for_each(|_| builder.record(&support::realistic(&mut random)));
    let chunk = builder.cut(None).expect("it has rows");
    let table = Table::sockets(&FieldSet::ALL);

    let reader = CellReader::new(&table.fields);
    best("read the values of the messages", rounds, || {
        for row in chunk.rows() {
            let read = reader.read(row.bytes, |column, cell| {
                black_box((column, cell));
            });
            read.expect("it is ours");
        }
    });

    let polled = polls(&mut random);
    let mut file = Vec::new();
    for (what, chunk) in [("polls", &polled), ("different records", &chunk)] {
        for encoding in ["delta", "plain"] {
            let mut writer = TableWriter::new(table.clone()).expect("the table is a schema");
            if encoding == "plain" {
                writer = writer.with_plain_numbers();
            }
            best(&format!("write {what}, numbers {encoding}"), rounds, || {
                file = write(&mut writer, chunk);
            });
            println!("{:.1} bytes a row", file.len() as f64 / ROWS as f64);
            let name = format!("bench-{encoding}.parquet");
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            std::fs::write(&path, &file).expect("the folder of the build can be written");
            println!("{}", path.display());
        }
    }
}
