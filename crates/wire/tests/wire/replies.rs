//! Which reply answers which request: the meaning of captured messages, from hand-written bytes and a real kernel.
use std::collections::BTreeMap;

use crate::support::{BOTH, DESTROY, PROTOCOLS, SS, body};
use wire::DecodeError;
use wire::capture::Asked::{Destroy, Dump, LookUp};
use wire::capture::Meaning::{Close, End, Lost, Nothing, Other, Tcp, Untold};
use wire::capture::{Asked, Failure, Meaning, Protocol, Replies, read};
use wire::inet_diag::{Request, decode};
use wire::netlink::{Message, MessageWriter, Messages, NLM_F_DUMP, NLM_F_MULTI, NLM_F_REQUEST};

const UDP: Protocol = Protocol::Inet(17);
const RAW: Protocol = Protocol::Inet(255);
const SCTP: Protocol = Protocol::Inet(132);
const MPTCP: Protocol = Protocol::Inet(262);
const UNIX: Protocol = Protocol::Family(1);

/// One message with a port.
fn message(kind: u16, flags: u16, port: u32, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    MessageWriter::begin(&mut bytes, kind, flags, sequence).bytes(body).finish();
    bytes[12..16].copy_from_slice(&port.to_ne_bytes());
    bytes
}

/// `struct inet_diag_req_v2` of a protocol, or with `family` the beginning of another family's request.
fn request(port: u32, sequence: u32, family: u8, protocol: u8) -> Vec<u8> {
    let mut request = [0; 56];
    (request[0], request[1]) = (family, protocol);
    message(20, NLM_F_REQUEST | NLM_F_DUMP, port, sequence, &request)
}

fn row(port: u32, sequence: u32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    message(20, NLM_F_MULTI, port, sequence, &body(attributes))
}

fn done(port: u32, sequence: u32, status: i32) -> Vec<u8> {
    message(3, NLM_F_MULTI, port, sequence, &status.to_ne_bytes())
}

/// `NLMSG_ERROR` as the kernel sends it: the code and the request.
fn error(port: u32, code: i32, request: &[u8]) -> Vec<u8> {
    let sequence = u32::from_ne_bytes(request[8..12].try_into().unwrap());
    message(2, 0, port, sequence, &[&code.to_ne_bytes()[..], request].concat())
}

/// The meaning of each message, and the protocols of unanswered requests.
fn judged(messages: &[Vec<u8>]) -> (Vec<Meaning>, Vec<Option<Protocol>>) {
    let mut replies = Replies::new(None);
    let meanings = judged_by(&mut replies, messages);
    (meanings, replies.unanswered().collect())
}

fn judged_by(replies: &mut Replies, messages: &[Vec<u8>]) -> Vec<Meaning> {
    let messages = messages.iter().map(|bytes| Message::first(bytes).unwrap());
    messages.map(|message| replies.judge(&message).unwrap()).collect()
}

/// Checks the meaning of the messages after the first, none of which is left open.
#[track_caller]
fn check(messages: &[Vec<u8>], expected: &[Meaning]) {
    let (meanings, unanswered) = judged(messages);
    assert_eq!((&meanings[1..], &unanswered[..]), (expected, &[][..]));
    assert_eq!(meanings[0], Meaning::Request);
}

const INFO: (u16, &[u8]) = (2, &[1; 280]);
/// `struct mptcp_info` of Linux 6.18.
const MPTCP_INFO: (u16, &[u8]) = (2, &[1; 96]);

#[test]
fn a_reply_is_of_the_protocol_that_was_asked_for() {
    let bare = || row(77, 5, &[]);
    for (protocol, expected) in [(6, Tcp), (17, Other(UDP)), (255, Other(RAW)), (132, Other(SCTP))]
    {
        check(
            &[request(0, 5, 2, protocol), bare(), bare(), done(77, 5, 0)],
            &[expected, expected, End],
        );
        check(&[request(77, 5, 10, protocol), bare(), done(77, 5, 0)], &[expected, End]);
    }
    for family in [1, 16, 17, 30, 40, 43, 44] {
        let mut other = bare();
        other[16] = family;
        let expected = Other(Protocol::Family(family));
        check(&[request(0, 5, family, 0), other, done(77, 5, 0)], &[expected, End]);
    }
    // The number in the attribute counts; the byte is its lowest eight bits.
    let mut bytes = Vec::new();
    let kind = wire::inet_diag::Kind::Family(wire::inet_diag::Family::Inet);
    Request { kind, protocol: 262, ..Request::dump(5) }.encode(&mut bytes);
    check(
        &[bytes, row(77, 5, &[MPTCP_INFO]), bare(), done(77, 5, 0)],
        &[Other(MPTCP), Other(MPTCP), End],
    );
    // The older request is TCP's, and its replies have its type.
    let old = message(18, NLM_F_REQUEST | NLM_F_DUMP, 0, 5, &[2; 60]);
    check(&[old, message(18, 2, 77, 5, &body(&[])), done(77, 5, 0)], &[Tcp, End]);
    let dccp = message(19, NLM_F_REQUEST | NLM_F_DUMP, 0, 5, &[2; 60]);
    let expected = Other(Protocol::Inet(33));
    check(&[dccp, message(19, 2, 77, 5, &body(&[])), done(77, 5, 0)], &[expected, End]);
}

/// A damaged reply to a TCP request stays TCP: decoding says what is wrong with it.
#[test]
fn a_damaged_reply_is_of_the_protocol_that_was_asked_for() {
    let mut damaged = row(77, 5, &[]);
    damaged[16] = 99;
    check(&[request(0, 5, 2, 6), damaged.clone(), done(77, 5, 0)], &[Tcp, End]);
    check(&[request(0, 5, 2, 17), damaged.clone(), done(77, 5, 0)], &[Other(UDP), End]);
    let (meanings, _) = judged(&[damaged]);
    assert_eq!(meanings, [Tcp]);
    let short = row(77, 5, &[(2, &[1; 96])]);
    check(&[request(0, 5, 2, 6), short, done(77, 5, 0)], &[Tcp, End]);
}

#[test]
fn a_reply_without_a_request_is_judged_by_what_it_says() {
    let mut without_socket = row(77, 5, &[]);
    without_socket[17] = 6;
    let mut unix = row(77, 5, &[]);
    unix[16] = 1;
    for (reply, expected) in [
        (row(77, 5, &[INFO]), Tcp),
        (row(77, 5, &[(4, b"cubic\0")]), Tcp),
        (row(77, 5, &[(4, b"cubic\0"), MPTCP_INFO]), Tcp),
        (row(77, 5, &[(19, &[])]), Tcp),
        (without_socket, Tcp),
        (row(77, 5, &[MPTCP_INFO]), Other(MPTCP)),
        (row(77, 5, &[(12, &[0; 128]), INFO]), Other(SCTP)),
        (row(77, 5, &[(13, &[0; 128])]), Other(SCTP)),
        // The kernel includes the number only in replies for raw sockets, even for those of TCP's own protocol.
        (row(77, 5, &[(10, &[6])]), Other(RAW)),
        (unix, Other(UNIX)),
        // UDP, or TCP in a dump that did not ask for more.
        (row(77, 5, &[]), Untold),
        (row(77, 5, &[(7, &[0; 36]), (8, &[0])]), Untold),
    ] {
        let (meanings, unanswered) = judged(&[reply.clone(), done(77, 5, 0)]);
        assert_eq!((&meanings[..], unanswered.len()), (&[expected, End][..], 0));
        let mut replies = Replies::new(Some(Protocol::Tcp));
        let in_a_dump_of_ss = judged_by(&mut replies, &[reply])[0];
        assert_eq!(in_a_dump_of_ss, if expected == Untold { Tcp } else { expected });
    }
    // Each judged by itself: if an end was not captured, the rows of the next dump seem to follow.
    let rows =
        [row(77, 5, &[INFO]), row(77, 5, &[]), row(77, 5, &[MPTCP_INFO]), row(77, 5, &[INFO])];
    let (meanings, unanswered) = judged(&rows);
    assert_eq!(meanings, [Tcp, Untold, Other(MPTCP), Tcp]);
    assert_eq!(unanswered, [Some(Protocol::Tcp)]);
    let mut replies = Replies::new(Some(Protocol::Tcp));
    assert_eq!(judged_by(&mut replies, &rows), [Tcp, Tcp, Other(MPTCP), Tcp]);
}

#[test]
fn events_say_their_protocol() {
    let event = |number: u8| message(20, 0, 0, 0, &body(&[(10, &[number]), INFO]));
    let (meanings, unanswered) = judged(&[event(6), event(17), request(0, 0, 2, 17), event(6)]);
    assert_eq!(meanings, [Close, Other(UDP), Meaning::Request, Close]);
    assert_eq!(unanswered, [Some(UDP)]);
    let mut replies = Replies::new(None);
    let real: Vec<_> =
        Messages::new(DESTROY).map(|each| replies.judge(&each.unwrap()).unwrap()).collect();
    assert!(real.len() == 4 && real.iter().all(|meaning| *meaning == Close), "{real:?}");
}

/// `ss` numbers all its requests 123456 and leaves its port out of them.
#[test]
fn dumps_of_one_number_follow_each_other() {
    let dump = |protocol, expected: Meaning| {
        let messages =
            [request(0, 123_456, 2, protocol), row(8, 123_456, &[]), done(8, 123_456, 0)];
        (messages, [Meaning::Request, expected, End])
    };
    let (tcp, udp) = (dump(6, Tcp), dump(17, Other(UDP)));
    let messages = [tcp.0.clone(), udp.0, tcp.0].concat();
    assert_eq!(judged(&messages).0, [tcp.1, udp.1, tcp.1].concat());
}

#[test]
fn two_requests_at_once_are_told_apart_where_the_capture_tells_them() {
    let (tcp, udp, unix) = (request(0, 5, 2, 6), request(0, 5, 2, 17), request(0, 5, 1, 0));
    let mut of_unix = row(9, 5, &[]);
    of_unix[16] = 1;
    // Told apart by family.
    check(
        &[tcp.clone(), unix, of_unix, row(8, 5, &[]), done(9, 5, 0), row(8, 5, &[]), done(8, 5, 0)],
        &[Meaning::Request, Other(UNIX), Tcp, End, Tcp, End],
    );
    // Told apart by sequence number.
    check(
        &[
            request(0, 6, 2, 17),
            tcp.clone(),
            row(9, 6, &[]),
            row(8, 5, &[]),
            done(8, 5, 0),
            done(9, 6, 0),
        ],
        &[Meaning::Request, Other(UDP), Tcp, End, End],
    );
    // Told apart by port, if the request has it.
    check(
        &[
            request(8, 5, 2, 6),
            request(9, 5, 2, 17),
            row(9, 5, &[]),
            row(8, 5, &[]),
            done(9, 5, 0),
            done(8, 5, 0),
        ],
        &[Meaning::Request, Other(UDP), Tcp, End, End],
    );
    // Not told apart: each is judged by itself, and what may be UDP is never taken for TCP.
    check(
        &[
            tcp,
            udp,
            row(9, 5, &[]),
            row(8, 5, &[INFO]),
            row(9, 5, &[]),
            done(9, 5, 0),
            row(8, 5, &[INFO]),
            done(8, 5, 0),
        ],
        &[Meaning::Request, Untold, Tcp, Untold, End, Tcp, End],
    );
}

/// A monitor may lose a message too: the next dump of the same socket is not taken for the rest of the previous one.
#[test]
fn a_dump_whose_end_was_not_captured_does_not_go_on_as_the_next() {
    let messages = [
        request(0, 5, 2, 6),
        row(8, 5, &[]),
        request(0, 5, 2, 17),
        row(8, 5, &[]),
        row(8, 5, &[]),
        done(8, 5, 0),
    ];
    let (meanings, unanswered) = judged(&messages);
    assert_eq!(meanings[3..], [Untold, Untold, End]);
    assert_eq!(unanswered, [None]);
}

#[test]
fn look_ups_end_with_their_reply() {
    let look_up = |sequence| {
        let mut bytes = request(0, sequence, 2, 6);
        bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
        bytes
    };
    let found = message(20, 0, 8, 5, &body(&[]));
    let not_found = Failure { protocol: Some(Protocol::Tcp), asked: LookUp, errno: 2 };
    check(
        &[look_up(5), found, look_up(6), error(8, -2, &look_up(6))],
        &[Tcp, Meaning::Request, Meaning::Failed(not_found)],
    );
    assert_eq!(judged(&[look_up(5)]).1, [Some(Protocol::Tcp)]);
}

#[test]
fn what_fails_says_what_was_asked() {
    let failed =
        |protocol, asked: Asked, errno| Meaning::Failed(Failure { protocol, asked, errno });
    let tcp = request(0, 5, 2, 6);
    check(&[tcp.clone(), done(8, 5, -105)], &[failed(Some(Protocol::Tcp), Dump, 105)]);
    check(
        &[tcp.clone(), row(8, 5, &[]), done(8, 5, -12)],
        &[Tcp, failed(Some(Protocol::Tcp), Dump, 12)],
    );
    check(&[tcp.clone(), error(8, -22, &tcp)], &[failed(Some(Protocol::Tcp), Dump, 22)]);
    // Only the header comes back if the socket asked for that.
    check(&[tcp.clone(), error(8, -22, &tcp[..16])], &[failed(Some(Protocol::Tcp), Dump, 22)]);
    // Without a request, the error contains it.
    let udp = request(0, 5, 10, 17);
    assert_eq!(judged(&[error(8, -2, &udp)]).0, [failed(Some(UDP), Dump, 2)]);
    assert_eq!(judged(&[error(8, -2, &udp[..16])]).0, [failed(None, Dump, 2)]);
    assert_eq!(judged(&[done(8, 5, i32::MIN)]).0, [failed(None, Dump, i32::MAX)]);
    // While a socket is busy with one dump, the next is refused, and the first continues.
    check(
        &[
            tcp.clone(),
            row(8, 5, &[]),
            tcp.clone(),
            error(8, -16, &tcp),
            row(8, 5, &[]),
            done(8, 5, 0),
        ],
        &[Tcp, Meaning::Request, failed(Some(Protocol::Tcp), Dump, 16), Tcp, End],
    );
    // `ss --kill`: the refused request is not a dump.
    let mut kill = request(0, 5, 2, 6);
    kill[4..6].copy_from_slice(&21_u16.to_ne_bytes());
    check(
        &[tcp, kill.clone(), error(9, -1, &kill), row(8, 5, &[]), done(8, 5, 0)],
        &[Meaning::Request, failed(Some(Protocol::Tcp), Destroy, 1), Tcp, End],
    );
}

#[test]
fn what_else_there_is() {
    let messages = [
        message(2, 0, 8, 5, &[0; 20]),
        message(1, 0, 0, 0, &[]),
        message(4, 0, 8, 5, &[]),
        message(3, 2, 8, 5, &[]),
    ];
    assert_eq!(judged(&messages).0, [Nothing, Nothing, Lost, End]);
    for (bytes, expected) in [
        (message(22, 0, 8, 5, &[]), DecodeError::UnknownKind(22)),
        (message(21, 0, 8, 5, &[]), DecodeError::UnknownKind(21)),
        (message(3, 2, 8, 5, &[0; 3]), DecodeError::Truncated { need: 4, have: 3 }),
        (message(2, 0, 8, 5, &[0; 3]), DecodeError::Truncated { need: 4, have: 3 }),
    ] {
        let judged = Replies::new(None).judge(&Message::first(&bytes).unwrap());
        assert_eq!(judged, Err(expected));
    }
}

#[test]
fn dumps_without_begin_or_end_or_disturbed_are_counted() {
    let disturbed = |mut bytes: Vec<u8>| {
        bytes[if cfg!(target_endian = "little") { 6 } else { 7 }] |= 0x10;
        bytes
    };
    let mut replies = Replies::new(None);
    let messages = [
        row(8, 5, &[INFO]),
        disturbed(row(8, 5, &[INFO])),
        disturbed(row(8, 5, &[INFO])),
        disturbed(done(8, 5, 0)),
        disturbed(done(8, 6, 0)),
    ];
    judged_by(&mut replies, &messages);
    assert_eq!((replies.interrupted_dumps(), replies.unanswered().count()), (2, 0));
    // Replies alone, as written by `ss -D`, have no beginning.
    assert_eq!(replies.headless_dumps(), 0);
    judged_by(
        &mut replies,
        &[request(0, 7, 2, 6), row(8, 7, &[]), row(9, 9, &[]), request(0, 3, 1, 0)],
    );
    // For another protocol, nothing that would be shown is missing.
    judged_by(&mut replies, &[row(9, 10, &[MPTCP_INFO]), done(9, 10, 0)]);
    assert_eq!(replies.headless_dumps(), 2);
    assert_eq!(replies.unanswered().collect::<Vec<_>>(), [Some(Protocol::Tcp), None, Some(UNIX)]);
    // A program that writes the end of a dump may leave the port out.
    let rows = [row(8, 11, &[INFO]), done(0, 11, 0), row(8, 12, &[INFO]), done(9, 12, 0)];
    let mut written = Replies::new(None);
    judged_by(&mut written, &rows);
    assert_eq!(written.unanswered().collect::<Vec<_>>(), [Some(Protocol::Tcp)]);
    // The end of a file that we wrote ends everything.
    assert_eq!(judged_by(&mut replies, &[done(0, 0, 0)]), [End]);
    assert_eq!(replies.unanswered().count(), 0);
}

/// What `ss --all` asks for, from a real kernel: TCP sockets are recognized as TCP, and no others.
#[test]
fn a_capture_of_every_protocol() {
    let mut replies = Replies::new(None);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for captured in read(PROTOCOLS).unwrap() {
        let message = captured.unwrap().message;
        let what = match replies.judge(&message).unwrap() {
            Tcp => {
                let socket = decode(message.body).unwrap();
                assert!(socket.tcp_info.is_some(), "{socket:?}");
                "TCP".to_owned()
            }
            Other(protocol) => protocol.to_string(),
            Meaning::Failed(failure) => {
                assert_eq!((failure.errno, failure.asked), (2, Dump));
                format!("no {}", failure.protocol.unwrap())
            }
            meaning => format!("{meaning:?}"),
        };
        *counts.entry(what).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(what, count)| (what.as_str(), *count)).collect();
    assert_eq!(
        counts,
        [
            ("End", 9),
            ("MPTCP", 6),
            ("Request", 14),
            ("TCP", 12),
            ("UDP", 4),
            ("netlink", 9),
            ("no SCTP", 2),
            ("no raw", 2),
            ("no vsock", 1),
            ("packet", 1),
            ("unix", 2)
        ]
    );
    assert_eq!(replies.unanswered().count(), 0);
    assert_eq!((replies.headless_dumps(), replies.interrupted_dumps()), (0, 0));
}

/// Without its requests, no other socket of the same capture is taken for TCP: less is known, but nothing is wrong.
#[test]
fn a_capture_of_every_protocol_without_its_requests() {
    let mut with = Replies::new(None);
    let mut without = Replies::new(None);
    let mut known = 0;
    for captured in read(PROTOCOLS).unwrap() {
        let message = captured.unwrap().message;
        let meaning = with.judge(&message).unwrap();
        if meaning != Meaning::Request {
            let alone = without.judge(&message).unwrap();
            let is_socket = matches!(meaning, Tcp | Other(_));
            assert!(!is_socket || alone == meaning || alone == Untold, "{meaning:?} {alone:?}");
            known += u64::from(is_socket && alone == meaning);
        }
    }
    // All except those of UDP.
    assert_eq!(known, 30);
}

/// More than a host can have open at once: forgotten requests count as unanswered, and memory and time stay bounded.
#[test]
fn requests_without_answers_are_bounded() {
    let mut replies = Replies::new(None);
    for sequence in 0..1_000 {
        judged_by(&mut replies, &[request(0, sequence, 2, 6)]);
    }
    assert_eq!(replies.unanswered().count(), 1_000);
    assert_eq!(judged_by(&mut replies, &[row(8, 0, &[]), row(8, 999, &[])]), [Untold, Tcp]);
}

/// A dump of `ss -D` and one of ours, each complete, and each without its end.
#[test]
fn whole_files_leave_nothing_open() {
    for (file, sockets) in [(SS, 21), (BOTH, 22)] {
        for (file, left) in [(file, 0), (&file[..file.len() - 20], 1)] {
            let reader = read(file).unwrap();
            let mut replies = reader.replies();
            let meanings: Vec<_> =
                reader.map(|captured| replies.judge(&captured.unwrap().message).unwrap()).collect();
            assert_eq!(meanings.iter().filter(|meaning| **meaning == Tcp).count(), sockets);
            assert_eq!(replies.unanswered().count(), left);
        }
    }
}

#[test]
fn protocols_have_names() {
    let protocols = [Protocol::Tcp, UDP, RAW, SCTP, MPTCP, UNIX, Protocol::Family(16)];
    let names: Vec<_> = protocols.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["TCP", "UDP", "raw", "SCTP", "MPTCP", "unix", "netlink"]);
    assert_eq!(Protocol::Inet(200).to_string(), "IP protocol 200");
    assert_eq!(Protocol::Family(99).to_string(), "address family 99");
    assert!(decode(&body(&[])).is_ok());
}
