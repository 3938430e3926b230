//! What is certain from little information stays so when more is known.

use super::compiled::Random;
use super::*;

/// A close event for a socket: without what no event reports and, in half of the cases, without what an abort clears.
fn event<'a>(socket: &SocketMessage<'a>, random: &mut Random) -> SocketMessage<'a> {
    let mut event = *socket;
    (event.uid, event.inode) = (0, 0);
    (event.mark, event.cgroup_id, event.congestion) = (None, None, None);
    if random.below(2) == 0 {
        event.id.dst.set_port(0);
        event.receive_queue = 0;
        event.id.src.set_ip(match socket.family {
            Family::Inet => Ipv4Addr::UNSPECIFIED.into(),
            Family::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        });
    }
    event
}

#[test]
fn what_a_close_event_decides_its_row_would_have_decided_as_well() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut certain, mut open) = (0, 0);
    for round in 0..6_000 {
        let text = random.text(round % 5);
        let Ok(filter) = Filter::parse_with(&text, &FixedNames) else { continue };
        for _ in 0..30 {
            let mut socket = random.socket();
            socket.inode = 77;
            let interface = ["", "lo", "eth0"].get(socket.id.interface_index as usize).copied();
            let facts = Facts { netns: Some("blue"), interface, ..Facts::default() };
            let event = event(&socket, &mut random);
            let poor = Facts { origin: Origin::Close, ..facts };
            match filter.evaluate(&event, &poor) {
                Verdict::Unknown => open += 1,
                verdict => {
                    certain += 1;
                    let row = filter.evaluate(&socket, &facts);
                    // For TIME-WAIT the row does not know the owner either.
                    let is_sound = row == verdict || row == Verdict::Unknown;
                    assert!(is_sound, "{filter}: {verdict:?} of {event:?}, {row:?} of {socket:?}");
                }
            }
        }
    }
    assert!(certain > 20_000 && open > 20_000, "{certain} were certain and {open} open");
}

#[test]
fn minisocks_have_no_owner_and_no_file() {
    let mut socket = message("10.0.0.1:40000", "10.0.0.2:443");
    let says =
        |socket: &SocketMessage<'_>, text: &str| parse(text).evaluate(socket, &Facts::default());
    // Not accepted yet, or closed by its program: the kernel reports root up to Linux 6.16.
    assert_eq!(says(&socket, "uid = 0"), Verdict::Unknown);
    assert_eq!(says(&socket, "inode = 0"), Verdict::True);
    assert_eq!(says(&socket, "process = x"), Verdict::False);
    socket.uid = 33;
    assert_eq!(says(&socket, "uid = 33"), Verdict::True);
    (socket.uid, socket.inode) = (0, 5);
    assert_eq!(says(&socket, "uid = 0"), Verdict::True);
    assert_eq!(says(&socket, "process = x"), Verdict::Unknown);
    for state in [State::TimeWait, State::SynReceived, State::NewSynReceived] {
        let mut minisock = message("10.0.0.1:40000", "10.0.0.2:443");
        minisock.state = state;
        for text in ["uid = 0", "not uid = 0", "inode = 0", "not process = x", "cc = reno"] {
            assert_eq!(says(&minisock, text), Verdict::Unknown, "{text} of {state:?}");
        }
        // As in the kernel's programs.
        assert_eq!(says(&minisock, "cgroup = /c1"), Verdict::False);
    }
}

#[test]
fn an_event_asks_for_every_state_that_there_was() {
    let mut event = message("10.0.0.1:40000", "10.0.0.2:443");
    event.state = State::Closed;
    let had = States::of(State::SynSent) | States::of(State::Established);
    let of = |text: &str, asked| {
        let filter = parse(text);
        let asked = filter.states().unwrap_or(asked);
        of_close(filter.expression(), asked, had, &event, &Facts::default())
    };
    assert_eq!(of("", States::ALL), Verdict::True);
    assert_eq!(of("", States::of(State::Listen)), Verdict::False);
    assert_eq!(of("state established", States::ALL), Verdict::True);
    assert_eq!(of("exclude established", States::ALL), Verdict::True);
    assert_eq!(of("state time-wait", States::ALL), Verdict::False);
    assert_eq!(of("state established and uid = 0", States::ALL), Verdict::Unknown);
    assert_eq!(of("state time-wait and uid = 0", States::ALL), Verdict::False);
    assert_eq!(
        of("sport = :40000 and not ( state syn-sent or uid = 0 )", States::ALL),
        Verdict::Unknown
    );
    assert_eq!(
        of("( state established or sport = :1 ) and dport = :443", States::ALL),
        Verdict::True
    );
    assert_eq!(
        of("( state established and state time-wait )", States::ALL),
        Verdict::False,
        "it is never in two at once"
    );
}
