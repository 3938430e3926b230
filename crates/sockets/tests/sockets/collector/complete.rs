//! Every socket that `ss` lists is recorded, field by field, exactly once, including the odd ones.

use super::people::{Crowd, Ends, ss};
use super::watch::Watch;
use crate::support::{RARELY, options};
use ledger::{Gauge, TcpState};
use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};
use sockets::Scope;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;
use testkit::{Netns, need_root_netns, run, say, within};

#[test]
fn every_socket_of_ss_is_there_once_with_the_same_fields() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let crowds = [Ends::V4, Ends::V6, Ends::Mapped].map(|ends| Crowd::new(&netns, ends, 500));
    for crowd in &crowds {
        for (at, (client, _)) in crowd.pairs.iter().enumerate() {
            let client = SockRef::from(client);
            match at % 3 {
                0 => client.set_recv_buffer_size(40_000 + at).unwrap(),
                1 => client.set_send_buffer_size(50_000 + at).unwrap(),
                _ => client.set_tcp_congestion(b"reno").unwrap(),
            }
        }
    }
    let watch = Watch::start(&netns, options(RARELY, Scope::Own));
    watch.wait_polls(1);
    let (told, _) = watch.stop();
    let theirs = ss(&netns);
    let ours = told.cookies_of(1);
    assert_eq!(ours, theirs.keys().copied().collect());
    assert_eq!(ours.len(), 3_003);
    let mut mapped = 0;
    for seen in told.polled() {
        let fields = seen.fields();
        compare(&fields, &theirs[&seen.cookie]);
        let is_v4 = text(&fields, "src_address").parse::<std::net::Ipv4Addr>().is_ok();
        mapped += usize::from(is_v4 && text(&fields, "family") == "inet6");
    }
    assert_eq!(mapped, 500, "accepted by a listener of both families");
}

/// Compares a record with a line of `ss -tinemHOa`, for everything that does not change.
#[track_caller]
fn compare(fields: &Value, words: &[String]) {
    let value = |prefix: &str| words.iter().find_map(|word| word.strip_prefix(prefix));
    let number = |prefix: &str| value(prefix).and_then(|text| text.parse::<u64>().ok());
    let state = match words[0].as_str() {
        "ESTAB" => "established",
        "LISTEN" => "listen",
        other => panic!("{other}"),
    };
    assert_eq!(text(fields, "state"), state, "{words:?}");
    for (name, word) in [("receive_queue", 1), ("send_queue", 2)] {
        assert_eq!(fields[name].as_u64(), words[word].parse().ok(), "{name} of {words:?}");
    }
    for (side, word) in [("src", 3), ("dst", 4)] {
        let (address, port) = words[word].rsplit_once(':').unwrap();
        let address = address.trim_start_matches('[').trim_end_matches(']');
        // A peer has one text in records, whichever socket has it.
        let address = address.trim_start_matches("::ffff:");
        // `ss` prints a listener of both families as a star.
        let ours = text(fields, &format!("{side}_address"));
        assert!(address == ours || address == "*" && ours == "::", "{ours}, {words:?}");
        let port = port.parse().unwrap_or(0);
        assert_eq!(fields[format!("{side}_port")].as_u64(), Some(port), "{words:?}");
    }
    assert_eq!(fields["uid"].as_u64(), Some(number("uid:").unwrap_or(0)), "{words:?}");
    assert_eq!(fields["inode"].as_u64(), number("ino:"), "{words:?}");
    let memory = value("skmem:").unwrap().trim_matches(|c| c == '(' || c == ')');
    let memory = memory.split(',').collect::<Vec<_>>();
    for (name, prefix) in [("rcvbuf_bytes", "rb"), ("sndbuf_bytes", "tb"), ("drops", "d")] {
        let theirs = memory.iter().find_map(|part| part.strip_prefix(prefix)?.parse::<u64>().ok());
        assert_eq!(fields[name].as_u64(), theirs, "{name} of {words:?}");
    }
    let algorithm = text(fields, "congestion_algorithm");
    assert!(words.iter().any(|word| word == algorithm), "{algorithm}, {words:?}");
    if state == "established" {
        for (name, prefix) in [
            ("snd_mss_bytes", "mss:"),
            ("rcv_mss_bytes", "rcvmss:"),
            ("advmss_bytes", "advmss:"),
            ("pmtu_bytes", "pmtu:"),
            ("snd_cwnd_segments", "cwnd:"),
            ("segs_out", "segs_out:"),
            ("segs_in", "segs_in:"),
            ("snd_wnd_bytes", "snd_wnd:"),
        ] {
            let ours = fields[name].as_u64();
            // `ss` leaves out zeros.
            assert_eq!(ours.filter(|&count| count != 0), number(prefix), "{name} of {words:?}");
        }
        assert_eq!(
            fields["min_rtt_us"].as_u64().map(|us| us as f64 / 1_000.0),
            value("minrtt:").and_then(|text| text.parse().ok()),
            "{words:?}"
        );
    }
}

fn text<'v>(fields: &'v Value, name: &str) -> &'v str {
    fields[name].as_str().unwrap_or_else(|| panic!("no {name} in {fields}"))
}

#[test]
fn what_is_left_of_connections_and_handshakes_is_there_as_ss_has_it() {
    if !need_root_netns() {
        return;
    }
    let (here, there) = (Netns::new(), Netns::new());
    here.connect("va", &there, "vb");
    here.ip("addr add 10.81.0.1/24 dev va");
    there.ip("addr add 10.81.0.2/24 dev vb");
    // Two of 1,000 end each way: client ends stay in TIME-WAIT.
    let mut crowd = Crowd::new(&there, Ends::V4, 1_000);
    let more = Crowd::new(&there, Ends::Mapped, 200);
    for (client, server) in crowd.pairs.drain(..) {
        drop(client);
        drop(server);
    }
    // Answers to the client's SYN are lost.
    there.ip("neigh add 10.81.0.1 lladdr 02:00:00:00:00:77 dev vb nud permanent");
    let listener = there.inside(|| TcpListener::bind("10.81.0.2:0").unwrap());
    let to = listener.local_addr().unwrap();
    let waiting: Vec<Socket> = here.inside(|| (0..100).map(|_| connect(to)).collect());
    let count = |words: &BTreeMap<u64, Vec<String>>, state: &str| {
        words.values().filter(|words| words[0] == state).count()
    };
    let came = within(Duration::from_secs(10), || count(&ss(&there), "SYN-RECV") >= 100);
    assert!(came, "no handshakes under way");

    let watch = Watch::start(&there, options(RARELY, Scope::Own));
    watch.wait_polls(1);
    let theirs = ss(&there);
    let (told, hops) = watch.stop();
    super::law::check_all(&told, &hops);
    assert_eq!(told.cookies_of(1), theirs.keys().copied().collect());
    assert_eq!((count(&theirs, "TIME-WAIT"), count(&theirs, "SYN-RECV")), (1_000, 100));
    for seen in told.polled() {
        let fields = seen.fields();
        if matches!(text(&fields, "state"), "time_wait" | "syn_recv") {
            assert!(fields["rtt_us"].is_null() && fields["rcvbuf_bytes"].is_null(), "{fields}");
            // The kernel writes 0 for both, but root is not their owner.
            assert!(fields["inode"].is_null() && fields["uid"].is_null(), "{fields}");
        }
    }
    let open: Vec<_> = hops[0]
        .gauges
        .iter()
        .filter(|(name, count)| name.to_string().starts_with("open_") && **count > 0)
        .collect();
    say(&format!("{open:?}"));
    assert_eq!(hops[0].gauges[&Gauge::OpenIpv4(TcpState::TimeWait)], 1_000);
    assert_eq!(hops[0].gauges[&Gauge::OpenIpv6(TcpState::Established)], 200);
    drop((waiting, more));
}

fn connect(to: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    assert!(socket.connect(&to.into()).is_err(), "it is under way");
    socket
}

/// A namespace with a name that nobody would type.
struct Odd(Vec<u8>);

impl Odd {
    fn new(name: &[u8]) -> Odd {
        let odd = Odd(name.to_vec());
        odd.ip(&["netns", "add"]);
        odd
    }

    fn ip(&self, args: &[&str]) {
        use std::os::unix::ffi::OsStrExt;
        let name = std::ffi::OsStr::from_bytes(&self.0);
        run(Command::new("ip").args(args).arg(name));
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        self.ip(&["netns", "del"]);
    }
}

#[test]
fn names_of_any_bytes_are_records_all_the_same() {
    if !need_root_netns() {
        return;
    }
    let home = Netns::new();
    let mut long = format!("weir-long-{}-", std::process::id());
    long.push_str(&"x".repeat(255 - long.len()));
    let odd = format!("weir \x1b[31m\t\n\"\\'{}", std::process::id());
    let mut broken = format!("weir-{}-", std::process::id()).into_bytes();
    broken.extend_from_slice(b"\xff\xc3");
    let spaces = [long.as_bytes(), odd.as_bytes(), &broken].map(Odd::new);
    let names = [long, odd, String::from_utf8_lossy(&broken).into_owned()];
    let listeners = spaces.iter().map(|space| {
        use std::os::unix::ffi::OsStrExt;
        let path = std::path::Path::new("/run/netns").join(std::ffi::OsStr::from_bytes(&space.0));
        let namespace = sys::namespace::OpenNamespace::open(&path).unwrap();
        let way = sys::namespace::Home::remember().unwrap();
        way.enter(&namespace, || TcpListener::bind("127.0.0.1:0").unwrap()).unwrap()
    });
    let listeners: Vec<_> = listeners.collect();
    let watch = Watch::start(&home, options(RARELY, Scope::Named(names.to_vec())));
    watch.wait_polls(1);
    let (told, _) = watch.stop();
    assert_eq!(told.problems_of("no_such_namespace"), [] as [&str; 0]);
    for (name, listener) in names.iter().zip(&listeners) {
        let seen: Vec<_> = told.polled().filter(|seen| seen.netns.as_ref() == Some(name)).collect();
        assert_eq!(seen.len(), 1, "{name:?}");
        let fields = seen[0].fields();
        assert_eq!(fields["src_port"].as_u64(), Some(listener.local_addr().unwrap().port().into()));
        assert_eq!(fields["netns_name"].as_str(), Some(name.as_str()));
    }
}
