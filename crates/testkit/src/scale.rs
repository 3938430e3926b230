//! Sizes of tests whose full size takes too long for every run; `make bench` with `BENCH_ARGS=sinks` and `BENCH_ARGS=group` runs
//! them at full size.

use std::env;
use std::time::Duration;

/// How many rows a test sends through a destination: `WEIR_TEST_ROWS`, or 100,000.
pub fn rows() -> u64 {
    number("WEIR_TEST_ROWS", 100_000)
}

/// How many rows a test inserts into a store and a database: `WEIR_TEST_ROWS`, or 20,000, because a store in a debug build is slow.
pub fn history_rows() -> u64 {
    number("WEIR_TEST_ROWS", 20_000)
}

/// How many datagrams a test sends through several sockets of one address: `WEIR_TEST_DATAGRAMS`, or `usual`.
pub fn datagrams(usual: u64) -> u64 {
    number("WEIR_TEST_DATAGRAMS", usual)
}

/// How long a server is down in a test: `WEIR_TEST_OUTAGE` in seconds, or 10.
pub fn outage() -> Duration {
    Duration::from_secs(number("WEIR_TEST_OUTAGE", 10))
}

#[track_caller]
fn number(name: &str, usual: u64) -> u64 {
    let given = env::var(name).ok();
    given.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}
