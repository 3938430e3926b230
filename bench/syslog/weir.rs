//! Reads the lines of a file (each a name, a tab and a message) so many times each: weir LINES ROUNDS [NAME]. Prints nanoseconds a line. Built
//! and called by run.sh.

use std::hint::black_box;
use wire::syslog::{Arrival, parse};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds: u32 = args[2].parse().expect("rounds");
    let text = std::fs::read_to_string(&args[1]).expect("lines");
    // November 2026.
    let arrival = Arrival::utc(1_795_348_800_000_000_000);
    for (name, line) in text.lines().filter_map(|line| line.split_once('\t')) {
        if args.get(3).is_some_and(|only| only != name) {
            continue;
        }
        let start = cpu_ns();
        for _ in 0..rounds {
            black_box(parse(black_box(line.as_bytes()), arrival));
        }
        println!("{name}\t{:.1}", (cpu_ns() - start) as f64 / f64::from(rounds));
    }
}

/// CPU time of this thread (proc(5), schedstat).
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}
