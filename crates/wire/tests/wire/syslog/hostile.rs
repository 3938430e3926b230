//! Lines that are made to take long, and lines that were changed.

use super::ARRIVAL;
use std::hint::black_box;
use std::time::{Duration, Instant};
use testkit::Random;
use wire::syslog::{Format, parse};

/// Every form's beginning, behind which one byte is repeated.
const FRONTS: [&str; 18] = [
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
    "<13>date=2026-10-11 time=22:14:15 ",
    "<13>device=\"",
    "<13>45: 46: ",
    "<13>[",
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

/// `WEIR_MUTATIONS` sets how many.
#[test]
fn changed_lines_never_panic_and_name_only_what_they_hold() {
    const SEEDS: [&str; 12] = [
        "<189>Oct 11 22:14:16 relay1 3401: sw01: 3397: *Oct 11 22:14:15.116 UTC: %SYS-5-CONFIG_I: x",
        "<134>1 1791756855.426960608 mx84 urls src=192.0.2.1:5334",
        "<189>date=2026-10-11 time=22:14:15 devname=\"fg1\" tz=\"+0200\" level=\"notice\"",
        "<13>Oct 11 22:14:15 [na1: wafl_1: callhome.reboot:notice]: x",
        "<187>Oct 11 22:14:15:524 2026 sw1 %%10IFNET/3/LINK_UPDOWN(l)[7]: x",
        "<13>Oct 11 22:14:16 relay1 <34>1 2026-10-11T22:14:15Z gw1 su - - [a b=\"c\"] x",
        "<165>1 2003-10-11T22:14:15.003Z host app 8710 ID47 [a@1 b=\"\\\"c\"][d] \u{feff}text",
        "<189>000045: router1: *Oct 11 22:14:15.123 UTC: %SYS-5-CONFIG_I: Configured",
        "<189>45: RP/0/RSP0/CPU0:Oct 11 22:14:15.123 : config[65]: %MGBL-SYS-5-CONFIG_I : x",
        "<34>2026-10-12T00:14:15+02:00 web-17 app[1]: x\n",
        "<189>Oct  1 2026 22:14:15 fw1 : %ASA-6-302013: Built",
        "<38>Oct 11 22:14:15.5 2025 Message forwarded from aix1: sshd[5]: x",
    ];
    let count = std::env::var("WEIR_MUTATIONS").map_or(100_000, |count| count.parse().unwrap());
    let mut random = Random(7);
    let mut parsed = 0;
    for turn in 0..count {
        let mut line = SEEDS[turn % SEEDS.len()].as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(line.len() as u64) as usize;
            match random.below(4) {
                0 => line.truncate(at + 1),
                1 => line.insert(at, b" :[]<>%\"\\-1"[random.below(11) as usize]),
                2 => drop(line.remove(at)),
                _ => line[at] = random.next() as u8,
            }
            if line.is_empty() {
                break;
            }
        }
        let said = parse(&line, ARRIVAL);
        parsed += u64::from(said.format != Format::Unparsed);
        let texts = [said.hostname, said.app_name, said.proc_id, said.msg_id];
        let texts = texts.into_iter().flatten().map(str::as_bytes);
        for part in texts.chain(said.structured_data).chain(said.message) {
            assert!(!part.is_empty() && line.as_slice().as_ptr_range().contains(&part.as_ptr()));
        }
    }
    assert!(parsed > count as u64 / 4, "{parsed}");
}
