//! Reads a line of syslog. The unit of each benchmark is one line of 200 bytes, of one form. `bench/syslog/run.sh` has other parsers beside it.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wire::syslog::{Arrival, parse};

const LINES: &str = include_str!("../../../bench/syslog/lines.tsv");
/// November 2026.
const ARRIVAL: Arrival<'_> = Arrival::utc(1_795_348_800_000_000_000);

fn named(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once('\t'))
}

fn syslog(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("syslog");
    group.throughput(Throughput::Elements(1));
    for (name, line) in named(LINES) {
        assert_eq!(line.len(), 200, "{name}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| parse(black_box(line.as_bytes()), ARRIVAL));
        });
    }
    group.finish();
}

criterion_group!(benches, syslog);
criterion_main!(benches);
