//! Full records of 110 fields, as protobuf messages, into a Parquet file in memory: 65,536 different ones. CPU time of the
//! thread, in the best of its rounds. `cargo bench -p sink --features parquet --bench parquet`; without `--bench` it runs once.
//! The file is kept in the build directory, and `benches/parquet.py FILE` measures how long pyarrow takes to write the same rows.

#![expect(clippy::print_stdout, reason = "a bench prints what it finds")]

#[path = "../../record/tests/record/support.rs"]
mod support;

use columns::{Table, TableWriter};
use record::{CellReader, Chunk, ChunkBuilder, FieldSet};
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

    let mut writer = TableWriter::new(table).expect("the table is a schema");
    let mut file = Vec::new();
    best("write a file", rounds, || file = write(&mut writer, &chunk));

    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench.parquet");
    std::fs::write(&path, &file).expect("the folder of the build can be written");
    println!("{:.1} bytes a row: {}", file.len() as f64 / ROWS as f64, path.display());
}
