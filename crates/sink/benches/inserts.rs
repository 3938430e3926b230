//! Cost of inserting rows into ClickHouse as `Native` and as `Protobuf`: CPU time per row here, from its message to the
//! body of an uncompressed insert, and CPU time and seconds of the engine per 100,000 rows, into the table of
//! `deploy/clickhouse` and into one that discards them. 100,000 different records of about 110 fields; the best of nine rounds.
//! `cargo bench -p sink --bench inserts`; it needs the engine (`make tools`). Without `--bench` it runs once, with 1,000 rows.

#![expect(clippy::print_stdout, reason = "a bench prints what it finds")]

#[path = "../../record/tests/record/support.rs"]
mod support;

use record::{Chunk, ChunkBuilder, Encoder, Encoding, FieldSet, Native, SocketRecord};
use std::fs;
use std::path::Path;
use std::process::Command;
use sys::clock::thread_cpu_ns;
use testkit::{TempDir, find_tool, need_python_module, root, run};

const START_UNIX_NS: u64 = 1_795_190_400_000_000_000;

/// Rows in order of time, 5,000 per poll, one poll every 10 s.
fn chunk(count: u64) -> Chunk {
    let mut random = testkit::Random(1);
    let mut builder = ChunkBuilder::new(1, [7; 16]);
    for number in 0..count {
        let poll = number / 5_000;
        builder.record(&SocketRecord {
            time_unix_ns: Some(START_UNIX_NS + poll * 10_000_000_000),
            poll: Some(poll),
            sequence: Some(number),
            ..support::realistic(&mut random)
        });
    }
    builder.cut(None).expect("it has rows")
}

/// Encodes all rows in each round; returns the bytes, and the lowest CPU time per row in nanoseconds.
fn encoded(
    chunk: &Chunk,
    rounds: usize,
    mut encode: impl FnMut(&Chunk, &mut Vec<u8>),
) -> (Vec<u8>, f64) {
    let (mut out, mut best) = (Vec::new(), f64::MAX);
    for _ in 0..=rounds {
        // The first round allocates the memory.
        out.clear();
        let began = thread_cpu_ns();
        encode(chunk, &mut out);
        best = best.min((thread_cpu_ns() - began) as f64 / chunk.row_count() as f64);
    }
    (out, best)
}

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let (rows, rounds) = if is_bench { (100_000, 9) } else { (1_000, 1) };
    if !need_python_module("chdb") {
        return;
    }
    let chunk = chunk(rows);
    let folder = TempDir::new();
    let say = |name: &str, (bytes, ns): (Vec<u8>, f64)| {
        let row_bytes = bytes.len() as f64 / rows as f64;
        println!("{name:9}: {ns:5.0} ns and {row_bytes:5.0} bytes a row here");
        fs::write(folder.file(name), bytes).expect("a temporary folder can be written");
    };

    let mut native = Native::new(record::RowKind::Record, &FieldSet::ALL);
    say(
        "Native",
        encoded(&chunk, rounds, |chunk, out| {
            for row in chunk.rows() {
                native.push(row.bytes).expect("it was encoded here");
            }
            out.append(&mut native.finish());
        }),
    );
    let mut protobuf = Encoder::new(Encoding::Protobuf, &FieldSet::ALL);
    say(
        "Protobuf",
        encoded(&chunk, rounds, |chunk, out| {
            for row in chunk.rows() {
                protobuf.row(row.kind, row.bytes, out).expect("it was encoded here");
            }
        }),
    );

    let columns = Native::columns(record::RowKind::Record);
    let script = Path::new(&root()).join("crates/sink/benches/inserts.py");
    let mut engine = Command::new(find_tool("weir-clickhouse").expect("asked for before"));
    engine.arg(script).arg(root()).arg(folder.path()).args([columns, rounds.to_string()]);
    print!("{}", run(&mut engine));
}
