//! Messages written out byte by byte: every attribute, every truncation, wrong lengths.
use crate::support::{address, body};
use wire::DecodeError::{self, BadLength, BadText, ShortAttribute, Truncated, UnknownFamily};
use wire::inet_diag::attribute as kind;
use wire::inet_diag::request::{Extensions, Kind, Request};
use wire::inet_diag::*;
use wire::netlink::{Message, MessageWriter};

#[rustfmt::skip]
#[cfg(target_endian = "little")]
const LISTENER: &[u8] = &[
    10, 10, 0, 0,                                       // AF_INET6, LISTEN, no timer, nothing retransmitted
    0x01, 0xbb, 0, 0,                                   // port 443 to 0
    0x20, 1, 0x0d, 0xb8, 0,0,0,0, 0,0,0,0, 0,0,0,1,     // 2001:db8::1
    0,0,0,0, 0,0,0,0, 0,0,0,0, 0,0,0,0,                 // ::
    3, 0, 0, 0,  0x78, 0x56, 0x34, 0x12, 1, 0, 0, 0,    // interface 3, cookie 0x1_1234_5678
    0, 0, 0, 0,  2, 0, 0, 0,  128, 0, 0, 0,             // expires, 2 of 128 wait
    0xe8, 3, 0, 0,  0x15, 0xcd, 0x5b, 7,                // uid 1000, inode 123456789
    5, 0, 8, 0,  0, 0, 0, 0,                            // SHUTDOWN none, padding
    5, 0, 6, 0,  0xb8, 0, 0, 0,                         // TCLASS
    5, 0, 11, 0,  1, 0, 0, 0,                           // SKV6ONLY
    12, 0, 21, 0,  0x31, 0x92, 0, 0, 0, 0, 0, 0,        // CGROUP_ID
    6, 0, 22, 0,  0b0101_0010, 0b001, 0, 0,             // SOCKOPT
    10, 0, 4, 0,  b'c', b'u', b'b', b'i', b'c', 0, 0, 0, // CONG
];

#[test]
#[cfg(target_endian = "little")]
fn a_listener() {
    let message = decode(LISTENER).unwrap();
    assert_eq!(
        (message.family, message.state, message.timer),
        (Family::Inet6, State::Listen, Timer::Off)
    );
    assert_eq!((message.id.src, message.id.dst), (address("[2001:db8::1]:443"), address("[::]:0")));
    assert_eq!((message.id.interface_index, message.id.cookie), (3, 0x1_1234_5678));
    assert_eq!((message.receive_queue, message.send_queue), (2, 128));
    assert_eq!((message.uid, message.inode), (1000, 123_456_789));
    assert_eq!(
        (message.shutdown, message.traffic_class, message.v6_only),
        (Some(0), Some(0xb8), Some(true))
    );
    assert_eq!((message.cgroup_id, message.congestion), (Some(0x9231), Some("cubic")));
    let options = message.socket_options.unwrap();
    assert_eq!(
        options.names().collect::<Vec<_>>(),
        ["is_icsk", "mc_loop", "mc_all", "bind_address_no_port"]
    );
    assert!(options.has("mc_all") && !options.has("nodefrag") && !options.has("no such option"));
    assert_eq!((message.tcp_info, message.memory, message.has_md5), (None, None, false));
    assert_eq!(encode_header(&message), LISTENER[..72]);
}

/// Cut at the end of an attribute, a message is a shorter message; cut anywhere else, it gives one error of one class.
#[test]
#[cfg(target_endian = "little")]
fn every_truncation_of_a_listener() {
    for end in 0..72 {
        assert_eq!(decode(&LISTENER[..end]), Err(Truncated { need: 72, have: end as u32 }));
    }
    let mut whole = 0;
    for end in 72..=LISTENER.len() {
        match decode(&LISTENER[..end]) {
            Ok(_) => whole += 1,
            Err(Truncated { need: 4, have: 1..4 } | BadLength { .. }) => {}
            Err(other) => panic!("{end}: {other:?}"),
        }
    }
    // After the header; after each attribute and, if padding follows, after each byte of it.
    assert_eq!(whole, 1 + 4 + 4 + 4 + 1 + 3 + 3);
}

#[test]
fn a_v4_mapped_address_stays_ipv6() {
    let mut bytes = body(&[]);
    bytes[0] = 10;
    bytes[8..24].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
    let message = decode(&bytes).unwrap();
    assert_eq!(message.id.src, address("[::ffff:10.0.0.1]:80"));
    assert_eq!(message.id.family(), Family::Inet6);
}

#[test]
fn families_that_are_not_inet_are_refused() {
    for family in (0..=255).filter(|family| ![2, 10].contains(family)) {
        let mut bytes = body(&[]);
        bytes[0] = family;
        assert_eq!(decode(&bytes), Err(UnknownFamily(family)));
    }
}

#[test]
fn unknown_states_and_timers_are_kept() {
    let mut bytes = body(&[]);
    for number in 0..=255 {
        (bytes[1], bytes[2]) = (number, number);
        let message = decode(&bytes).unwrap();
        assert_eq!((message.state.number(), message.timer.number()), (number, number));
        assert_eq!(encode_header(&message), bytes[..]);
    }
}

/// Attributes with structures, and the length of their shortest form.
const STRUCTURES: &[(u16, usize)] = &[
    (kind::MEMINFO, 16),
    (kind::INFO, 104),
    (kind::VEGASINFO, 16),
    (kind::TOS, 1),
    (kind::TCLASS, 1),
    (kind::SKMEMINFO, 32),
    (kind::SHUTDOWN, 1),
    (kind::DCTCPINFO, 16),
    (kind::PROTOCOL, 1),
    (kind::SKV6ONLY, 1),
    (kind::MARK, 4),
    (kind::BBRINFO, 20),
    (kind::CLASS_ID, 4),
    (kind::CGROUP_ID, 8),
    (kind::SOCKOPT, 2),
];

#[test]
fn an_attribute_shorter_than_its_structure_is_an_error_and_a_longer_one_is_not() {
    for &(kind, need) in STRUCTURES {
        for have in 0..need {
            let refused = ShortAttribute { kind, need: need as u32, have: have as u32 };
            assert_eq!(decode(&body(&[(kind, &vec![1; have])])), Err(refused));
        }
        for have in [need, need + 1, need + 64] {
            let bytes = body(&[(kind, &vec![1; have])]);
            let message = decode(&bytes).unwrap();
            assert_ne!(
                message,
                decode(&bytes[..72]).unwrap(),
                "attribute {kind} of {have} bytes left no trace"
            );
            assert_eq!(message.unknown_attributes().count(), 0);
        }
    }
}

#[test]
fn words_are_read_in_order() {
    let words: Vec<u8> = (1..=13_u32).flat_map(u32::to_ne_bytes).collect();
    let bytes = body(&[
        (kind::SKMEMINFO, &words[..36]),
        (kind::MEMINFO, &words[..16]),
        (kind::VEGASINFO, &words[..16]),
        (kind::BBRINFO, &words[..52]),
        (kind::MARK, &words[4..8]),
        (kind::CLASS_ID, &words[8..12]),
    ]);
    let message = decode(&bytes).unwrap();
    let Memory {
        rmem_alloc_bytes,
        rcvbuf_bytes,
        wmem_alloc_bytes,
        sndbuf_bytes,
        fwd_alloc_bytes,
        ..
    } = message.memory.unwrap();
    let Memory { wmem_queued_bytes, optmem_bytes, backlog_bytes, drops, .. } =
        message.memory.unwrap();
    assert_eq!(
        [rmem_alloc_bytes, rcvbuf_bytes, wmem_alloc_bytes, sndbuf_bytes, fwd_alloc_bytes],
        [1, 2, 3, 4, 5]
    );
    assert_eq!([wmem_queued_bytes, optmem_bytes, backlog_bytes], [6, 7, 8]);
    assert_eq!(drops, Some(9));
    let meminfo = MemInfo { rmem_bytes: 1, wmem_bytes: 2, fmem_bytes: 3, tmem_bytes: 4 };
    assert_eq!(message.meminfo, Some(meminfo));
    let vegas = Vegas { enabled: 1, rtt_count: 2, rtt_us: 3, min_rtt_us: 4 };
    assert_eq!(message.vegas, Some(vegas));
    let bbr = message.bbr.unwrap();
    assert_eq!((bbr.bandwidth_bytes_per_sec, bbr.min_rtt_us), (2 << 32 | 1, 3));
    assert_eq!((bbr.pacing_gain, bbr.cwnd_gain, bbr.tail), (4, 5, &words[20..52]));
    assert_eq!((message.mark, message.class_id), (Some(2), Some(3)));
}

/// Linux before 4.7 sends eight words: a capture from such a kernel can be read, and does not claim zero drops.
#[test]
fn memory_of_a_kernel_that_does_not_count_drops_has_none() {
    let words: Vec<u8> = (1..=9_u32).flat_map(u32::to_ne_bytes).collect();
    for (len, drops) in [(32, None), (35, None), (36, Some(9))] {
        let bytes = body(&[(kind::SKMEMINFO, &words[..len])]);
        let message = decode(&bytes).unwrap();
        let memory = message.memory.unwrap();
        assert_eq!((memory.backlog_bytes, memory.drops), (8, drops));
        let mut out = Vec::new();
        encode(&message, 20, 0, 1, &mut out);
        assert_eq!(decode(&out[16..]).unwrap().memory, Some(memory));
    }
}

#[test]
fn dctcp_has_two_halves_in_front() {
    let mut payload = [1_u16.to_ne_bytes(), 2_u16.to_ne_bytes()].concat();
    payload.extend([1024_u32, 7, 9].iter().flat_map(|word| word.to_ne_bytes()));
    let bytes = body(&[(kind::DCTCPINFO, &payload)]);
    let dctcp = Dctcp { enabled: 1, ce_state: 2, alpha: 1024, ab_ecn_bytes: 7, ab_tot_bytes: 9 };
    assert_eq!(decode(&bytes).unwrap().dctcp, Some(dctcp));
}

#[test]
fn names_end_at_their_zero() {
    let name = |payload: &[u8]| {
        decode(&body(&[(kind::CONG, payload)])).map(|message| message.congestion.map(str::to_owned))
    };
    assert_eq!(name(b"bbr\0"), Ok(Some("bbr".to_owned())));
    assert_eq!(name(b"bbr\0junk\xff"), Ok(Some("bbr".to_owned())));
    assert_eq!(name(b"no_zero_in_here!"), Ok(Some("no_zero_in_here!".to_owned())));
    assert_eq!(name(b""), Ok(Some(String::new())));
    assert_eq!(name(b"\xff\xfe\0"), Err(BadText { kind: kind::CONG }));
}

fn ulp_body(write: impl FnOnce(&mut MessageWriter<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = MessageWriter::begin(&mut bytes, 20, 0, 0);
    writer.bytes(&body(&[]));
    writer.nested(kind::ULP_INFO, write);
    writer.finish();
    bytes.split_off(16)
}

#[test]
fn kernel_tls() {
    let bytes = ulp_body(|out| {
        out.text(1, "tls");
        out.nested(2 | 0x8000, |out| {
            out.attribute(1, &0x0304_u16.to_ne_bytes()).attribute(2, &52_u16.to_ne_bytes());
            out.attribute(3, &2_u16.to_ne_bytes()).attribute(4, &3_u16.to_ne_bytes());
            out.attribute(6, &[]).attribute(99, &[1, 2, 3]);
        });
    });
    let ulp = decode(&bytes).unwrap().ulp.unwrap();
    let tls = ulp.tls.unwrap();
    assert_eq!((ulp.name, ulp.mptcp), (Some("tls"), None));
    assert_eq!((tls.version, tls.cipher), (Some(0x0304), Some(52)));
    assert_eq!((tls.tx_conf, tls.rx_conf), (Some(2), Some(3)));
    assert_eq!(
        (tls.zero_copy_tx, tls.rx_no_padding, tls.tx_max_payload_bytes),
        (false, true, None)
    );
}

#[test]
fn mptcp_subflows_and_their_absence() {
    let bytes = ulp_body(|out| {
        out.text(1, "mptcp");
        out.nested(3, |out| {
            out.attribute(1, &0xaabb_ccdd_u32.to_ne_bytes()).attribute(2, &5_u32.to_ne_bytes());
            out.attribute(11, &[]).attribute(4, &6_u64.to_ne_bytes());
            out.attribute(8, &0x41_u32.to_ne_bytes()).attribute(9, &[7]).attribute(10, &[8]);
        });
    });
    let mptcp = decode(&bytes).unwrap().ulp.unwrap().mptcp.unwrap();
    assert_eq!((mptcp.token_remote, mptcp.token_local), (Some(0xaabb_ccdd), Some(5)));
    assert_eq!((mptcp.map_sequence, mptcp.subflow_flags), (Some(6), Some(0x41)));
    assert_eq!((mptcp.id_remote, mptcp.id_local, mptcp.map_data_bytes), (Some(7), Some(8), None));
    // A listener's has only the name.
    let bytes = ulp_body(|out| {
        out.text(1, "mptcp").attribute(77, &[0]);
    });
    assert_eq!(
        decode(&bytes).unwrap().ulp,
        Some(Ulp { name: Some("mptcp"), tls: None, mptcp: None })
    );
}

#[test]
fn nested_attributes_that_lie() {
    let refused =
        |write: fn(&mut MessageWriter<'_>)| decode(&ulp_body(write)).map(|_| ()).unwrap_err();
    let short = ShortAttribute { kind: kind::ULP_INFO, need: 2, have: 1 };
    assert_eq!(
        refused(|out| {
            out.nested(2, |out| {
                out.attribute(1, &[3]);
            });
        }),
        short
    );
    assert_eq!(
        refused(|out| {
            out.attribute(2, &[9, 9, 1, 1]);
        }),
        BadLength { length: 0x0909, have: 4 }
    );
    assert_eq!(
        refused(|out| {
            out.attribute(3, &[1]);
        }),
        Truncated { need: 4, have: 1 }
    );
    assert_eq!(
        refused(|out| {
            out.attribute(1, &[0xff]);
        }),
        BadText { kind: kind::ULP_INFO }
    );
}

#[test]
fn what_is_not_known_is_kept_and_what_is_secret_is_not() {
    let bytes = body(&[
        (kind::MD5SIG, b"key one"),
        (23, b"prague"),
        (kind::TOS, &[8]),
        (kind::MD5SIG, b"key two"),
        (kind::PAD, &[]),
        (kind::PEERS, b"sctp"),
        (kind::SK_BPF_STORAGES, b"bpf"),
        (0x3fff, b""),
    ]);
    let message = decode(&bytes).unwrap();
    let unknown: Vec<_> = message.unknown_attributes().collect();
    assert_eq!(unknown, [(23, &b"prague"[..]), (13, b"sctp"), (20, b"bpf"), (0x3fff, b"")]);
    assert!(message.has_md5 && message.type_of_service == Some(8));
    let shown: Vec<u8> =
        b"key one".iter().flat_map(|byte| format!("{byte}, ").into_bytes()).collect();
    let shown = String::from_utf8(shown).unwrap();
    let debug = format!("{message:?}");
    assert!(!debug.contains("key") && !debug.contains(shown.trim_end_matches(", ")), "{debug}");
    let mut written = Vec::new();
    encode(&message, 20, 0, 0, &mut written);
    assert!(!written.windows(3).any(|window| window == b"key"));
    assert_eq!(decode(&written[16..]), Ok(message));
}

#[test]
fn redacting_takes_the_keys_and_leaves_the_rest() {
    let body = body(&[(kind::TOS, &[8]), (kind::MD5SIG, b"secret"), (23, b"secret")]);
    let mut whole = Vec::new();
    MessageWriter::begin(&mut whole, 20, 0, 5).bytes(&body).finish();
    let mut redacted = whole.clone();
    redact(&mut redacted);
    let at = whole.windows(6).position(|window| window == b"secret").unwrap();
    let mut expected = whole.clone();
    expected[at..at + 6].fill(0);
    assert_eq!(redacted, expected);
    // After a wrong length nothing is trusted.
    whole[at - 4..at - 2].copy_from_slice(&[3, 0]);
    redact(&mut whole);
    assert!(whole[at - 4..].iter().all(|byte| *byte == 0));
    // Messages that are not replies, and bytes that are not messages, are left alone.
    for other in [&mut [7; 90][..], &mut expected.clone()[..40]] {
        let before = other.to_vec();
        redact(other);
        assert_eq!(other, before);
    }
}

#[test]
fn the_last_of_two_counts() {
    let bytes = body(&[(kind::TOS, &[1]), (kind::TOS, &[2])]);
    assert_eq!(decode(&bytes).unwrap().type_of_service, Some(2));
}

fn request(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    bytes
}

#[test]
#[cfg(target_endian = "little")]
fn a_request_for_both_families() {
    let bytes = request(&Request {
        states: States::CONNECTED,
        extensions: Extensions::INFO.with(Extensions::MEMORY),
        dst_port: 443,
        bytecode: &[1, 2, 3, 4],
        ..Request::dump(7)
    });
    let mut expected = vec![84, 0, 0, 0, 18, 0, 1, 3, 7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0x42];
    expected.extend([0, 0, 1, 0xbb].iter().chain(&[0; 44]));
    expected.extend([0x7f, 0x1b, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0, 1, 2, 3, 4]);
    assert_eq!(bytes, expected);
}

#[test]
#[cfg(target_endian = "little")]
fn a_request_for_one_family_and_one_for_mptcp() {
    let bytes = request(&Request { kind: Kind::Family(Family::Inet6), ..Request::dump(1) });
    assert_eq!(
        bytes[..24],
        [72, 0, 0, 0, 20, 0, 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 10, 6, 0, 0, 0xff, 0x3f, 0, 0]
    );
    assert_eq!(bytes[24..], [0; 48]);
    let bytes = request(&Request {
        kind: Kind::Family(Family::Inet),
        protocol: wire::inet_diag::request::IPPROTO_MPTCP,
        ..Request::dump(1)
    });
    assert_eq!(bytes[72..], [8, 0, 3, 0, 6, 1, 0, 0]);
}

#[test]
fn a_request_for_one_socket_carries_its_identity() {
    let id = SocketId {
        src: address("[::1]:5"),
        dst: address("[::2]:6"),
        interface_index: 4,
        cookie: 0x1234_5678_9abc,
    };
    let bytes = request(&Request::exact(id, Extensions::ALL, 3));
    let message = Message::first(&bytes).unwrap();
    assert_eq!((message.kind, message.flags, message.sequence, message.body[0]), (20, 1, 3, 10));
    assert!(!is_socket(&message));
    let mut answer = body(&[]);
    answer[0] = 10;
    answer[4..52].copy_from_slice(&message.body[8..56]);
    assert_eq!(decode(&answer).unwrap().id, id);
    assert_eq!(
        id.without_cookie(),
        SocketId { interface_index: 4, ..SocketId::between(id.src, id.dst) }
    );
}

#[test]
fn words_of_states() {
    let check =
        |word: &str, states: Option<States>| assert_eq!(States::from_word(word), states, "{word}");
    for state in State::KNOWN.iter().filter(|state| **state != State::NewSynReceived) {
        check(state.word(), Some(States::of(*state)));
        check(&state.snake().to_uppercase(), Some(States::of(*state)));
        assert_eq!(State::from_number(state.number()), *state);
    }
    check("close", Some(States::of(State::Closed)));
    check("unconnected", Some(States::of(State::Closed)));
    check("syn-rcv", Some(States::of(State::SynReceived)));
    check("Bucket", Some(States::from_bits(1 << 3 | 1 << 6)));
    check("all", Some(States::from_bits(0x3fff)));
    check("big", Some(!States::BUCKET));
    check("new-syn-recv", None);
    check("", None);
    // As listed by `ss -h`: connected is all except listening, closed (and bound); synchronized also excludes syn-sent.
    assert_eq!(States::CONNECTED.bits(), 0b01_1011_0111_1111);
    assert_eq!(States::SYNCHRONIZED.iter().count(), States::CONNECTED.iter().count() - 1);
    assert!(States::of(State::Unknown(77)).is_empty() && !States::ALL.contains(State::Unknown(20)));
    assert_eq!(States::ALL.iter().collect::<States>(), States::from_bits(0x3ffe));
}

#[test]
fn every_error_has_a_class_of_its_own_and_a_text() {
    let errors = [
        Truncated { need: 1, have: 0 },
        BadLength { length: 1, have: 0 },
        ShortAttribute { kind: 1, need: 1, have: 0 },
        BadText { kind: 1 },
        UnknownFamily(1),
        DecodeError::UnknownFormat,
        DecodeError::OtherFormat("it is another"),
        DecodeError::BadBlock(1),
        DecodeError::WrongLinkType(1),
        DecodeError::BadPacket(32),
        DecodeError::UnknownKind(22),
    ];
    let classes: Vec<_> = errors.iter().map(DecodeError::class).collect();
    assert_eq!(classes, DecodeError::CLASSES);
    for error in errors {
        assert!(
            error.to_string().starts_with(&error.class().replace('_', " "))
                || matches!(error, UnknownFamily(_))
        );
    }
}
