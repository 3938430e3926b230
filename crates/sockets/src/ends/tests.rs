use super::*;

const ENDS: &str = include_str!("../../testdata/ends.tsv");

/// One end of a connection whose end was provoked.
struct Case<'a> {
    name: &'a str,
    end: &'a str,
    /// Acceptable words of [`CloseReason`], or `not_a_connection`.
    truth: Vec<&'a str>,
    look: Look,
    event: Final,
    before: Option<Before>,
}

/// What is known besides the event, in a run over all cases.
#[derive(Clone, Copy, Default)]
struct Known {
    poll: bool,
    look: bool,
}

/// How many answers were right, `unknown`, and wrong.
type Score = (usize, usize, usize);

fn cases() -> Vec<Case<'static>> {
    ENDS.lines().filter(|line| !line.starts_with('#')).map(case).collect()
}

fn case(line: &'static str) -> Case<'static> {
    let mut words = line.split('\t');
    let (name, end) = (words.next().unwrap(), words.next().unwrap());
    let truth = words.next().unwrap().split('|').collect();
    words.next();
    words.next();
    let look = match words.next() {
        Some("minisock") => Look::Minisock,
        Some("listener") => Look::Listener,
        _ => Look::Nothing,
    };
    let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    let [peer_port, receive_queue, send_queue, retransmits, probes, lost, ..] = numbers[..] else {
        panic!("{line}")
    };
    let event = Final {
        peer_port: peer_port as u16,
        receive_queue: receive_queue as u32,
        send_queue: send_queue as u32,
        retransmits: retransmits as u8,
        probes: probes as u8,
        lost: lost as u32,
        total_retrans: numbers[6] as u32,
        delivered: numbers[7] as u32,
        notsent_bytes: numbers[8] as u32,
        min_rtt_us: Some(numbers[9] as u32),
        snd_wnd_bytes: numbers[10] as u32,
        counters: counters(&numbers[11..19]),
    };
    let before = (numbers.len() > 19).then(|| before(&numbers[19..]));
    Case { name, end, truth, look, event, before }
}

fn counters(numbers: &[u64]) -> Counters {
    Counters {
        bytes_sent: Some(numbers[0]),
        bytes_retrans: numbers[1],
        bytes_acked: numbers[2],
        bytes_received: numbers[3],
        segs_in: numbers[4] as u32,
        segs_out: numbers[5] as u32,
        data_segs_in: numbers[6] as u32,
        data_segs_out: numbers[7] as u32,
    }
}

fn before(numbers: &[u64]) -> Before {
    let state = State::from_number(numbers[0] as u8);
    let (send_queue, notsent) = (numbers[1] as u32, numbers[2] as u32);
    let counters = counters(&numbers[3..]);
    Before {
        state,
        role: role_of_row(state, &counters, send_queue, notsent),
        was_remnant: false,
        is_all_acked: send_queue == 0,
        counters: Some(counters),
    }
}

fn answer(case: &Case<'_>, known: Known) -> &'static str {
    let before = case.before.as_ref().filter(|_| known.poll);
    let wanted = known.look && needs_look(&case.event, before);
    match end_of(&case.event, before, wanted.then_some(case.look)) {
        End::NoConnection => "not_a_connection",
        End::Connection(reason) => {
            CloseReason::WORDS.entries.iter().find(|(number, _)| *number == reason.0).unwrap().1
        }
    }
}

/// Answers all cases. Lists the wrong ones with the answer given, once per case and end.
fn run(known: Known) -> (Score, Vec<String>) {
    let (mut score, mut wrong) = ((0, 0, 0), Vec::new());
    for case in cases() {
        let answer = answer(&case, known);
        if case.truth.contains(&answer) {
            score.0 += 1;
        } else if answer == "unknown" {
            score.1 += 1;
        } else {
            score.2 += 1;
            wrong.push(format!("{} {}: {answer}", case.name, case.end));
        }
    }
    wrong.sort();
    wrong.dedup();
    (score, wrong)
}

#[track_caller]
fn check(known: Known, score: Score, wrong: &[&str]) {
    assert_eq!(run(known), (score, wrong.iter().map(ToString::to_string).collect()));
}

#[test]
fn what_is_no_connection_is_told_by_the_event_alone() {
    for case in cases() {
        for known in [Known::default(), Known { poll: true, look: true }] {
            let says_none = answer(&case, known) == "not_a_connection";
            assert_eq!(says_none, case.truth == ["not_a_connection"], "{} {}", case.name, case.end);
        }
    }
}

/// The kernel answers data that arrives after our close with a reset, and forgets the minisock. A local abort leaves no trace, so
/// with traffic since the poll it looks like the peer's.
#[test]
fn with_a_poll_and_a_look() {
    check(
        Known { poll: true, look: true },
        (386, 24, 4),
        &[
            "close_then_peer_sends/c/b/stale active: peer_close",
            "close_then_peer_sends/s/b/stale active: peer_close",
            "sock_destroy/c/b/stale destroyed: peer_reset",
            "sock_destroy/s/b/stale destroyed: peer_reset",
        ],
    );
}

/// A reset in FIN-WAIT-2 looks like a close of ours.
#[test]
fn with_a_poll_alone() {
    check(
        Known { poll: true, look: false },
        (292, 116, 6),
        &[
            "linger0_in_cw/c/none peer_rst_in_fw2: our_close",
            "linger0_in_cw/s/none peer_rst_in_fw2: our_close",
            "sock_destroy/c/b/stale destroyed: peer_reset",
            "sock_destroy/s/b/stale destroyed: peer_reset",
        ],
    );
}

#[test]
fn never_polled_with_a_look() {
    check(
        Known { poll: false, look: true },
        (346, 56, 12),
        &[
            "close_then_peer_sends/c/b active: peer_close",
            "close_then_peer_sends/c/b/stale active: peer_close",
            "close_then_peer_sends/s/b active: peer_close",
            "close_then_peer_sends/s/b/stale active: peer_close",
            "sock_destroy/c/b destroyed: peer_reset",
            "sock_destroy/c/b/stale destroyed: peer_reset",
            "sock_destroy/s/b destroyed: peer_reset",
            "sock_destroy/s/b/stale destroyed: peer_reset",
        ],
    );
}

#[test]
fn never_polled_and_nobody_looked() {
    check(
        Known { poll: false, look: false },
        (190, 217, 7),
        &[
            "linger0_in_cw/c/none peer_rst_in_fw2: our_close",
            "linger0_in_cw/s/none peer_rst_in_fw2: our_close",
            "sock_destroy/s/b destroyed: peer_reset",
            "sock_destroy/s/b/stale destroyed: peer_reset",
        ],
    );
}

/// An older kernel's `tcp_info` ends before `bytes_sent`: whether a FIN left cannot be told, but the rest can.
#[test]
fn without_the_newer_counters_nothing_is_wrong_that_was_right() {
    for mut case in cases() {
        case.event.counters.bytes_sent = None;
        case.before = None;
        let answer = answer(&case, Known { poll: false, look: true });
        let is_right = answer == "unknown" || case.truth.contains(&answer);
        assert!(is_right, "{} {}: {answer}", case.name, case.end);
    }
}

#[test]
fn a_minisock_that_a_poll_saw_decides_later() {
    let mut case = case(
        "close_eof/c/b\tactive\tour_close\tv4\topener\tnothing\t7000\t0\t0\t0\t0\t0\t0\t5\t0\t26\t65536\t3000\t0\t3002\t6001\t9\t12\t3\t3\t-",
    );
    let before = Before {
        state: State::TimeWait,
        role: Some(Role::Opener),
        was_remnant: true,
        is_all_acked: true,
        counters: Some(Counters { bytes_received: 6_000, ..case.event.counters }),
    };
    case.before = Some(before);
    assert!(!needs_look(&case.event, Some(&before)));
    assert_eq!(answer(&case, Known { poll: true, look: false }), "our_close");
}

#[test]
fn counters_that_lie_are_survived() {
    let extremes = [0, 1, u64::from(u32::MAX), u64::MAX];
    for (at, &extreme) in (0..19).flat_map(|at| extremes.iter().map(move |extreme| (at, extreme))) {
        let mut numbers = [7; 19];
        numbers[at] = extreme;
        let counters = counters(&numbers[11..19]);
        let event =
            Final { peer_port: 1, send_queue: numbers[2] as u32, counters, ..Final::default() };
        let before = Before {
            state: State::Established,
            role: role_of_row(State::Established, &counters, numbers[2] as u32, 0),
            was_remnant: false,
            is_all_acked: true,
            counters: Some(super::Counters { bytes_received: u64::MAX, ..counters }),
        };
        for look in [None, Some(Look::Nothing), Some(Look::Minisock)] {
            let _ = (end_of(&event, Some(&before), look), end_of(&event, None, look));
        }
    }
}
