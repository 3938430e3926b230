use super::difference::FRAME_OCTETS_MIN;
use super::*;

fn counters(octets: u64, frames: u32, speed_bits_per_sec: u64) -> PortCounters {
    let absent = u32::MAX;
    PortCounters {
        if_index: 1,
        if_type: 6,
        speed_bits_per_sec,
        direction: 1,
        status: 3,
        in_octets: octets,
        in_ucast_packets: frames,
        in_multicast_packets: absent,
        in_broadcast_packets: absent,
        in_discards: absent,
        in_errors: absent,
        in_unknown_protos: absent,
        out_octets: u64::MAX,
        out_ucast_packets: absent,
        out_multicast_packets: absent,
        out_broadcast_packets: absent,
        out_discards: absent,
        out_errors: absent,
        promiscuous_mode: 2,
    }
}

/// A moment on the agent's clock, with the same on ours.
fn at(uptime_ms: u32) -> Times {
    Times { uptime_ms, arrival_ns: 1 + u64::from(uptime_ms) * 1_000_000 }
}

/// The rate of incoming frames between two polls 20 s apart.
fn frames_per_s(before: PortCounters, after: PortCounters) -> Option<f64> {
    let mut port = Port::default();
    port.take(1, at(0), before, |_| {});
    port.take(2, at(20_000), after, |_| {});
    port.rates()?.input.frames_per_s
}

#[test]
fn a_counter_of_frames_that_may_have_wrapped_twice_shows_no_rate() {
    const GBIT: u64 = 1_000_000_000;
    // 400 Gbit/s of 64-byte frames for 20 s: 15.6 billion frames, 3.6 times what 32 bits count.
    let octets = 400 * GBIT / 8 * 20;
    let shown = frames_per_s(counters(0, 0, 400 * GBIT), counters(octets, 77, 400 * GBIT));
    assert_eq!(shown, None);
    // As many octets as one wrap of smallest frames.
    let octets = FRAME_OCTETS_MIN * u64::from(u32::MAX);
    let shown = frames_per_s(counters(0, 100, 400 * GBIT), counters(octets, 80, 400 * GBIT));
    assert_eq!(shown, Some((f64::from(u32::MAX) - 19.0) / 20.0));
}

#[test]
fn what_an_interface_cannot_carry_is_implausible_and_not_shown() {
    let mut port = Port::default();
    port.take(1, at(0), counters(0, 0, 1_000_000), |_| {});
    port.take(2, at(20_000), counters(1_000_000_000, 1, 1_000_000), |_| {});
    assert_eq!((port.rates(), port.implausible()), (None, 1));
    // Later counters are compared with the last ones received.
    port.take(3, at(40_000), counters(1_002_000_000, 2_001, 1_000_000), |_| {});
    assert_eq!(port.rates().unwrap().input.frames_per_s, Some(100.0));
}

const GBIT: u64 = 1_000_000_000;

/// Polls of an interface: uptime and arrival in milliseconds, octets, speed. Returns what was shown after each in bits per second, and
/// what contradicted something.
fn polled(polls: &[(u32, u64, u64, u64)]) -> (Vec<Option<f64>>, Vec<Discrepancy>) {
    let (mut port, mut noted) = (Port::default(), Vec::new());
    let shown = (1..).zip(polls).map(|(sequence, (uptime_ms, arrival_ms, octets, speed))| {
        let times = Times { uptime_ms: *uptime_ms, arrival_ns: 1 + arrival_ms * 1_000_000 };
        port.hear(times.arrival_ns);
        let frames = (octets / 1_000) as u32;
        port.take(sequence, times, counters(*octets, frames, *speed), |of| noted.push(of));
        port.rates().and_then(|rates| rates.input.bits_per_s)
    });
    (shown.collect(), noted)
}

#[track_caller]
fn check(shown: &[Option<f64>], bits_per_s: f64, within: f64) {
    for one in shown {
        let one = one.expect("a rate is shown");
        assert!((one / bits_per_s - 1.0).abs() < within, "{one:e} in {shown:?}");
    }
}

#[test]
fn clocks_that_dither_show_the_rate_at_every_poll() {
    // Polled every 2 s at 9.5 Gbit/s, and the datagrams leave up to 0.9 s later.
    let uptimes = [1_000, 2_100, 4_900, 6_000, 8_800, 9_900, 12_700];
    let polls =
        uptimes.iter().zip(0..).map(|(at, n)| (*at, u64::from(*at), n * 2_375_000_000, 10 * GBIT));
    let (shown, noted) = polled(&polls.collect::<Vec<_>>());
    check(&shown[1..2], 9.5e9, 0.06);
    check(&shown[2..], 9.5e9, 0.03);
    assert_eq!(noted, []);
}

#[test]
fn clocks_of_whole_seconds_and_clocks_that_stand_still_show_rates() {
    // Polled every 2.5 s.
    let at = |n: u64| n * 2_500;
    let clocks: [fn(u64) -> u64; 3] = [|ms| ms / 1_000 * 1_000, |_| 7_000, |ms| ms / 10];
    for uptime in clocks {
        let polls = (0..20).map(|n| (uptime(at(n)) as u32, at(n), n * 2_500 * 100_000, GBIT));
        let (shown, _) = polled(&polls.collect::<Vec<_>>());
        // Two clocks that differ are compared for five seconds.
        check(&shown[5..], 8e8, 0.11);
    }
    // Of whole seconds, and of fewer of them than the time between two polls has.
    let at = |n: u64| n * 1_400;
    let polls = (0..20).map(|n| ((at(n) / 1_000 * 1_000) as u32, at(n), n * 1_400 * 100_000, GBIT));
    let (shown, noted) = polled(&polls.collect::<Vec<_>>());
    check(&shown[1..], 8e8, 0.01);
    assert_eq!(noted, []);
    // A minute's datagrams that all come at its end are told apart by the agent's clock.
    let polls = (0..4).map(|n: u64| (n as u32 * 20_000, 60_000 + n, n * 2_000_000_000, GBIT));
    check(&polled(&polls.collect::<Vec<_>>()).0[1..], 8e8, 0.01);
}

#[test]
fn a_speed_that_is_higher_than_the_agent_can_say_is_none() {
    // 100 Gbit/s by `ifSpeed`, which has 32 bits.
    let capped = u64::from(u32::MAX);
    let gigabytes = [0, 10, 210, 217, 437, 449];
    let polls = gigabytes.iter().zip(0..);
    let polls = polls.map(|(gb, n)| (n as u32 * 20_000, n * 20_000, gb * 1_000_000_000, capped));
    let (shown, noted) = polled(&polls.collect::<Vec<_>>());
    for (shown, gb) in shown[1..].iter().zip([10.0, 200.0, 7.0, 220.0, 12.0]) {
        check(&[*shown], gb * 8e9 / 20.0, 0.01);
    }
    assert_eq!(noted, []);
    let mut port = Port::default();
    port.take(1, at(0), counters(0, 0, capped), |_| {});
    assert_eq!((port.full_bits_per_sec(), port.speed_bits_per_sec()), (None, None));
}

#[test]
fn an_agent_whose_clock_is_wrong_is_named() {
    let polls = (0..10).map(|n: u64| (n as u32 * 200, n * 20_000, n * 2_000_000_000, GBIT));
    let (shown, noted) = polled(&polls.collect::<Vec<_>>());
    check(&shown[3..], 8e8, 0.01);
    assert!(noted.contains(&Discrepancy::Clock));
}

#[test]
fn a_speed_that_is_wrong_hides_the_interface_for_one_poll() {
    // A tap says 10 Mbit/s, and carries 1 Gbit/s; later three times that.
    let polls =
        (0..10).map(|n: u64| (n as u32 * 20_000, n * 20_000, n * 2_500_000_000, 10_000_000));
    let (shown, noted) = polled(&polls.collect::<Vec<_>>());
    assert_eq!(shown[..2], [None, None]);
    check(&shown[2..], 1e9, 0.01);
    assert!(noted.iter().all(|of| *of == Discrepancy::Speed) && noted.len() == 8, "{noted:?}");
    // One leap is none.
    let leap = [0, 2_000_000, 900_000_000_000, 900_002_000_000, 900_004_000_000];
    let polls = leap
        .iter()
        .zip(0..)
        .map(|(octets, n)| (n as u32 * 20_000, n * 20_000, *octets, 10_000_000));
    let (shown, noted) = polled(&polls.collect::<Vec<_>>());
    check(&shown[1..], 8e5, 0.01);
    assert_eq!(noted, []);
}

#[test]
fn a_link_that_loses_a_member_shows_what_it_carried() {
    let polls = [(0, 20), (47_500, 20), (95_000, 20), (142_500, 10), (160_000, 10)];
    let polls = polls
        .iter()
        .zip(0..)
        .map(|((mb, speed), n)| (n as u32 * 20_000, n * 20_000, mb * 1_000_000, speed * GBIT));
    let (shown, noted) = polled(&polls.collect::<Vec<_>>());
    check(&shown[1..4], 19e9, 0.01);
    check(&shown[4..], 7e9, 0.01);
    assert_eq!(noted, []);
}

#[test]
fn octets_of_32_bits_wrap_and_do_not_restart() {
    let wrap = 1u64 << 32;
    let polls = [wrap - 2_000_000_000, wrap - 1_000_000_000, 0, 1_000_000_000];
    let mut port = Port::default();
    let mut take = |n: u32, octets, frames| {
        port.take(n, at(n * 20_000), counters(octets, frames, GBIT), |_| {});
        port.rates().and_then(|rates| rates.input.bits_per_s)
    };
    let shown: Vec<_> = (1..).zip(polls).map(|(n, octets)| take(n, octets, n * 1_000)).collect();
    check(&shown[1..], 4e8, 0.01);
    // Frames went back as well: everything began anew.
    assert_eq!(take(5, 900_000_000, 3), Some(4e8));
    assert_eq!(port.implausible(), 1);
}

#[test]
fn a_restart_that_keeps_counters_loses_no_interval() {
    let port_of = |kept: u64| {
        let mut port = Port::default();
        for (n, at) in [(1, 20_000), (2, 40_000)] {
            let times = Times { uptime_ms: 1_000_000 + at, arrival_ns: u64::from(at) * 1_000_000 };
            port.take(n, times, counters(u64::from(n) * 1_000_000_000, n * 1_000, GBIT), |_| {});
        }
        port.restart();
        let times = Times { uptime_ms: 3_000, arrival_ns: 60_000_000_000 };
        let compared = port.take(1, times, counters(kept, 3_000, GBIT), |_| {});
        matches!(compared, Some(Compared::With(_)))
    };
    assert!(port_of(3_000_000_000));
    assert!(!port_of(5_000), "they went back");
    assert!(!port_of(90_000_000_000), "more than the interface carries");
}
