//! Messages of a real kernel, compared with how `ss` prints the same bytes.
use std::collections::BTreeMap;

use crate::support::{BOTH, BOTH_TEXT, DESTROY, SS, decoded, sockets};
use wire::inet_diag::{Family, SocketMessage, State, Timer, decode, encode};
use wire::netlink::{Messages, NLMSG_DONE, done_status};

#[test]
fn the_dump_ends_well() {
    let messages: Vec<_> = Messages::new(BOTH).map(Result::unwrap).collect();
    let (done, answers) = messages.split_last().unwrap();
    assert_eq!((done.kind, done_status(done.body)), (NLMSG_DONE, Ok(0)));
    assert!(
        answers.iter().all(|answer| (answer.kind, answer.flags, answer.sequence) == (18, 2, 7))
    );
    assert_eq!(answers.len(), 22);
}

/// Encoding reproduces the kernel's bytes, except for keys and the order of nested attributes.
#[test]
fn encoding_gives_the_bytes_that_were_decoded() {
    let mut same = 0;
    for message in sockets(BOTH).chain(sockets(SS)).chain(sockets(DESTROY)) {
        let socket = decode(message.body).unwrap();
        let mut bytes = Vec::new();
        encode(&socket, message.kind, message.flags, message.sequence, &mut bytes);
        assert_eq!(decode(&bytes[16..]), Ok(socket));
        if !socket.has_md5
            && socket.ulp.is_none_or(|ulp| ulp.mptcp.is_none())
            && socket.protocol.is_none()
        {
            assert_eq!(bytes[16..], *message.body, "{socket:?}");
            same += 1;
        }
    }
    assert_eq!(same, 19 + 18);
}

/// One line of `ss`, as values by name.
struct Line<'a> {
    columns: Vec<&'a str>,
    fields: BTreeMap<&'a str, &'a str>,
    text: &'a str,
}

fn lines() -> Vec<Line<'static>> {
    let line = |text: &'static str| Line {
        columns: text.split_ascii_whitespace().take(5).collect(),
        fields: text
            .split_ascii_whitespace()
            .skip(5)
            .filter_map(|word| word.split_once(':'))
            .collect(),
        text,
    };
    BOTH_TEXT.lines().map(line).collect()
}

impl Line<'_> {
    fn number(&self, name: &str) -> Option<u64> {
        self.fields.get(name).map(|text| text.parse().unwrap())
    }

    /// Parses milliseconds with a fraction into microseconds.
    fn micros(text: &str) -> u64 {
        (text.parse::<f64>().unwrap() * 1000.0).round() as u64
    }
}

#[test]
fn every_socket_is_what_ss_says() {
    let sockets = decoded(BOTH);
    let lines = lines();
    assert_eq!(sockets.len(), lines.len());
    for line in &lines {
        let cookie = u64::from_str_radix(line.fields["sk"], 16).unwrap();
        let socket = sockets.iter().find(|socket| socket.id.cookie == cookie).unwrap();
        check_header(socket, line);
        check_attributes(socket, line);
        check_tcp_info(socket, line);
    }
}

fn check_header(socket: &SocketMessage<'_>, line: &Line<'_>) {
    let [state, receive, send, src, dst] = line.columns[..] else { panic!("{}", line.text) };
    assert_eq!(state, socket.state.printed());
    assert_eq!((receive.parse(), send.parse()), (Ok(socket.receive_queue), Ok(socket.send_queue)));
    // `ss` prints a dual-stack wildcard as `*`, and port 0 as `*`.
    let shown = |address: std::net::SocketAddr| {
        let any = socket.family == Family::Inet6
            && address.ip().is_unspecified()
            && socket.v6_only == Some(false);
        let host = if any {
            "*".to_owned()
        } else {
            address.to_string().rsplit_once(':').unwrap().0.to_owned()
        };
        format!(
            "{host}:{}",
            if address.port() == 0 { "*".to_owned() } else { address.port().to_string() }
        )
    };
    assert_eq!((src, dst), (&*shown(socket.id.src), &*shown(socket.id.dst)), "{}", line.text);
    assert_eq!(line.number("ino"), Some(socket.inode.into()));
    let timer = line
        .fields
        .get("timer")
        .map_or("off", |timer| timer.trim_matches('(').split(',').next().unwrap());
    assert_eq!(timer, socket.timer.printed());
    assert_eq!(socket.timer == Timer::Off, socket.expires_ms == 0);
}

fn check_attributes(socket: &SocketMessage<'_>, line: &Line<'_>) {
    let hex = |name| {
        line.fields
            .get(name)
            .map(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap())
    };
    assert_eq!(hex("tos"), socket.type_of_service.map(u32::from), "{}", line.text);
    assert_eq!(hex("tclass"), socket.traffic_class.map(u32::from));
    assert_eq!(hex("class_id"), socket.class_id);
    assert_eq!(hex("fwmark"), socket.mark.filter(|mark| *mark != 0));
    assert_eq!(line.number("v6only"), socket.v6_only.map(u64::from));
    assert_eq!(line.text.contains("md5keys"), socket.has_md5);
    assert_eq!(line.fields.contains_key("cgroup"), socket.cgroup_id == Some(1));
    let arrow = socket.shutdown.map(|shutdown| match shutdown {
        0 => " <-> ",
        1 => " --> ",
        2 => " <-- ",
        _ => " --- ",
    });
    assert!(arrow.is_none_or(|arrow| line.text.contains(arrow)), "{}", line.text);
    if let Some(options) = socket.socket_options {
        let shown =
            line.text.split_once("inet-sockopt: (").unwrap().1.split_once(')').unwrap().0.trim();
        assert_eq!(options.names().collect::<Vec<_>>().join(" "), shown);
    }
    if let Some(memory) = socket.memory {
        let shown = format!(
            "(r{},rb{},t{},tb{},f{},w{},o{},bl{},d{})",
            memory.rmem_alloc_bytes,
            memory.rcvbuf_bytes,
            memory.wmem_alloc_bytes,
            memory.sndbuf_bytes,
            memory.fwd_alloc_bytes,
            memory.wmem_queued_bytes,
            memory.optmem_bytes,
            memory.backlog_bytes,
            memory.drops.unwrap()
        );
        assert_eq!(line.fields["skmem"], shown);
    }
    assert_eq!(
        line.text.contains("tcp-ulp-mptcp"),
        socket.ulp.is_some_and(|ulp| ulp.name == Some("mptcp"))
    );
    if let Some(mptcp) = socket.ulp.and_then(|ulp| ulp.mptcp) {
        let token = |token: Option<u32>, id: Option<u8>| {
            format!("{:04x}(id:{})", token.unwrap(), id.unwrap())
        };
        let shown = token(mptcp.token_remote, mptcp.id_remote)
            + "/"
            + &token(mptcp.token_local, mptcp.id_local);
        assert_eq!(line.fields["token"], shown);
        assert_eq!(line.fields["seq"], format!("{:x}", mptcp.map_sequence.unwrap()));
    }
    if let Some(name) = socket.congestion {
        assert!(line.text.contains(&format!(" {name} ")), "{}", line.text);
    }
    assert_eq!(line.fields.contains_key("bbr"), socket.bbr.is_some());
}

/// Checks the figures that `ss` prints unchanged. It omits those that are 0.
fn check_tcp_info(socket: &SocketMessage<'_>, line: &Line<'_>) {
    let Some(info) = socket.tcp_info else {
        assert!(matches!(socket.state, State::TimeWait | State::Closed));
        return;
    };
    assert_eq!((info.length_bytes(), info.tail()), (280, &[][..]));
    assert_eq!(info.state(), Some(socket.state.number()));
    if socket.state == State::Listen {
        assert_eq!(info.unacked_segments(), Some(socket.receive_queue));
        assert_eq!(info.sacked_segments(), Some(socket.send_queue));
        return;
    }
    let wide = |value: Option<u32>| value.map(u64::from);
    let pairs = [
        ("mss", wide(info.snd_mss_bytes())),
        ("pmtu", wide(info.pmtu_bytes())),
        ("rcvmss", wide(info.rcv_mss_bytes())),
        ("advmss", wide(info.advmss_bytes())),
        ("cwnd", wide(info.snd_cwnd_segments())),
        ("bytes_sent", info.bytes_sent()),
        ("bytes_retrans", info.bytes_retrans()),
        ("bytes_acked", info.bytes_acked()),
        ("bytes_received", info.bytes_received()),
        ("segs_out", wide(info.segs_out())),
        ("segs_in", wide(info.segs_in())),
        ("data_segs_out", wide(info.data_segs_out())),
        ("data_segs_in", wide(info.data_segs_in())),
        ("lastsnd", wide(info.last_data_sent_ms())),
        ("lastrcv", wide(info.last_data_recv_ms())),
        ("lastack", wide(info.last_ack_recv_ms())),
        ("delivered", wide(info.delivered_segments())),
        ("unacked", wide(info.unacked_segments())),
        ("dsack_dups", wide(info.dsack_dups())),
        ("rcv_space", wide(info.rcv_space_bytes())),
        ("rcv_ssthresh", wide(info.rcv_ssthresh_bytes())),
        ("snd_wnd", wide(info.snd_wnd_bytes())),
    ];
    for (name, value) in pairs {
        assert_eq!(line.number(name).unwrap_or(0), value.unwrap(), "{name}: {}", line.text);
    }
    assert_eq!(line.text.contains(" app_limited"), info.delivery_rate_app_limited() == Some(1));
    if let Some((rtt, variation)) = line.fields.get("rtt").and_then(|text| text.split_once('/')) {
        assert_eq!(
            (Some(Line::micros(rtt)), Some(Line::micros(variation))),
            (wide(info.rtt_us()), wide(info.rttvar_us()))
        );
        assert_eq!(
            line.fields.get("minrtt").map(|text| Line::micros(text)),
            wide(info.min_rtt_us())
        );
        assert_eq!(line.number("rto"), info.rto_us().map(|us| u64::from(us) / 1000));
        let scales = format!("{},{}", info.snd_wscale().unwrap(), info.rcv_wscale().unwrap());
        assert_eq!(line.fields["wscale"], scales);
    }
}

#[test]
fn entries_of_time_wait_have_no_info() {
    let small: Vec<_> =
        decoded(BOTH).into_iter().filter(|socket| socket.state == State::TimeWait).collect();
    assert_eq!(small.len(), 2);
    for socket in small {
        assert_eq!((socket.uid, socket.inode, socket.tcp_info, socket.memory), (0, 0, None, None));
        assert_eq!((socket.timer, socket.mark), (Timer::TimeWait, Some(0x77)));
        assert!((1..=60_000).contains(&socket.expires_ms));
    }
}

#[test]
fn closes_are_told_with_final_counters() {
    let events = decoded(DESTROY);
    assert!(
        sockets(DESTROY)
            .all(|message| (message.kind, message.flags, message.sequence) == (20, 0, 0))
    );
    let counted = |family, count| {
        let of = |socket: &&SocketMessage<'_>| socket.family == family;
        let (sent, received): (Vec<_>, Vec<_>) = events
            .iter()
            .filter(of)
            .map(|socket| socket.tcp_info.unwrap())
            .map(|info| (info.bytes_sent().unwrap(), info.bytes_received().unwrap()))
            .unzip();
        assert!(
            sent.contains(&count)
                && received.iter().any(|bytes| (count..=count + 1).contains(bytes))
        );
    };
    counted(Family::Inet, 77);
    counted(Family::Inet6, 55);
    assert!(events.iter().all(|socket| socket.protocol == Some(6) && socket.inode == 0));
}

#[test]
fn keys_stay_inside() {
    let mut shown = String::new();
    let mut written = Vec::new();
    for socket in decoded(BOTH) {
        shown += &format!("{socket:?}");
        encode(&socket, 20, 0, 0, &mut written);
        assert!(socket.unknown_attributes().all(|(kind, _)| kind != 18));
    }
    let key = |bytes: &[u8]| bytes.windows(8).any(|window| window == b"SECRETK!");
    assert!(key(BOTH) && !key(&written) && !key(shown.as_bytes()));
    assert!(!shown.contains("83, 69, 67, 82"));
}
