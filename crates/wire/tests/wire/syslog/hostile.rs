//! Lines that are made to take long.

use super::ARRIVAL;
use std::hint::black_box;
use std::time::{Duration, Instant};
use wire::syslog::parse;

/// Every form's beginning, behind which one byte is repeated.
const FRONTS: [&str; 14] = [
    "",
    "<13>",
    "<13>1 2026-10-11T22:14:15Z h a p m ",
    "<13>1 2026-10-11T22:14:15Z ",
    "<13>1 - - - - - [a b=\"",
    "<13>1 - - - - - [a",
    "<13>Oct 11 22:14:15 ",
    "<13>Oct 11 22:14:15 h ",
    "<13>Oct 11 22:14:15: ",
    "<13>45: ",
    "<13>45: sw1: ",
    "<13>Oct 11 22:14:15 [",
    "<13>Oct 11 22:14:15 h %%10",
    "<13>date=2026-10-11 time=22:14:15 devname=",
];

/// Time to parse a line of so many bytes; the best of some, as others run on the machine too.
fn cost(front: &str, byte: u8, len: usize) -> Duration {
    let mut line = front.as_bytes().to_vec();
    line.resize(len, byte);
    let once = || {
        let start = Instant::now();
        black_box(parse(black_box(&line), ARRIVAL));
        start.elapsed()
    };
    (0..5).map(|_| once()).min().unwrap()
}

#[test]
fn a_line_takes_no_more_than_its_length() {
    for front in FRONTS {
        for byte in 0..=u8::MAX {
            // Eight times as long may take eight times as long, and up to as much again on a busy machine.
            let is_linear = || {
                let (short, long) = (cost(front, byte, 8 << 10), cost(front, byte, 64 << 10));
                long < short * 16 + Duration::from_micros(20)
            };
            assert!((0..20).any(|_| is_linear()), "{front:?} and {byte:#04x}");
        }
    }
}
