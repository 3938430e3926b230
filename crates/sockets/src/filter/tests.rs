mod certain;
mod compiled;
mod evaluated;
mod mistakes;
mod recorded;

use super::names::{service_in, user_in};
use super::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use wire::inet_diag::{Family, SocketId, State};

/// A few names, the same on every host.
struct FixedNames;

impl Names for FixedNames {
    fn service(&self, name: &str) -> Option<u16> {
        service_in(
            "# comment\nhttp 80/tcp www # web\nhttps-x 443/tcp\ndomain 53/udp\ndomain 53/tcp\nntp 123/udp\n",
            name,
        )
    }

    fn host(&self, name: &str) -> Vec<IpAddr> {
        match name {
            "localhost" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            _ => Vec::new(),
        }
    }

    fn user(&self, name: &str) -> Option<u32> {
        user_in("root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/:\n", name)
    }

    fn device(&self, name: &str) -> Option<u32> {
        ["lo", "eth0"]
            .iter()
            .position(|known| *known == name)
            .and_then(|at| u32::try_from(at + 1).ok())
    }

    fn cgroup(&self, path: &str) -> Option<u64> {
        path.strip_prefix("/c").and_then(|id| id.parse().ok())
    }
}

fn parse(text: &str) -> Filter {
    Filter::parse_with(text, &FixedNames).unwrap_or_else(|error| panic!("{error}"))
}

/// Parses the filter and checks its printed form, which must parse to the same filter.
fn reads(text: &str, printed: &str) {
    let filter = parse(text);
    assert_eq!(filter.to_string(), printed, "{text}");
    assert_eq!(parse(printed), filter, "{text} printed as {printed}");
}

#[test]
fn states_in_front() {
    reads("", "");
    reads("state established", "state established");
    reads("state ESTAB", "state established");
    reads("state established state syn-sent", "state established state syn-sent");
    reads("exclude listening exclude time-wait", "exclude time-wait exclude listening");
    reads("excl close-wait", "exclude close-wait");
    reads(
        "state connected exclude time-wait",
        "exclude time-wait exclude closed exclude listening exclude bound-inactive",
    );
    reads("state bucket", "state bucket");
    reads("state all exclude listening", "exclude listening");
    reads("state = listening", "state listening");
    reads("state established sport = :80", "state established and sport = :80");
    reads(
        "state established and ( dport = :443 or src 10.0.0.0/8 )",
        "state established and ( dport = :443 or src 10.0.0.0/8 )",
    );
    reads(
        "state established sport = :80 or sport = :81",
        "state established and ( sport = :80 or sport = :81 )",
    );
}

#[test]
fn states_within() {
    reads("state established or sport = :22", "( state established or sport = :22 )");
    reads("( state established )", "( state established )");
    reads("sport = :22 and state != listening", "sport = :22 and state != listening");
    reads("sport = :22 exclude listening", "sport = :22 and state != listening");
    reads("exclude listening or sport = :1", "( state != listening or sport = :1 )");
    reads("state != listening sport = :1", "exclude listening and sport = :1");
    reads("( state != listening ) sport = :1", "( state != listening and sport = :1 )");
}

#[test]
fn hosts() {
    reads("src 10.0.0.1", "src 10.0.0.1");
    reads("dst = 10.0.0.1:443", "dst 10.0.0.1:443");
    reads("dst == 10.0.0.1:http", "dst 10.0.0.1:80");
    reads("src 10/8", "src 10.0.0.0/8");
    reads("src 10", "src 10.0.0.0");
    reads("src 10.0.0.0/255.255.0.0", "src 10.0.0.0/16");
    reads("src 10.1.2.3/8:80", "src 10.1.2.3/8:80");
    reads("src [2001:db8::1]:443", "src [2001:db8::1]:443");
    reads("src 2001:db8::/32", "src [2001:db8::/32]");
    reads("src 2001:db8::/32:443", "src [2001:db8::/32]:443");
    reads("src [2001:db8::]/32:443", "src [2001:db8::/32]:443");
    reads("src [2001:db8::/32]:443", "src [2001:db8::/32]:443");
    reads("src [::]/0", "src [::/0]");
    reads("src ::1", "src [::1]");
    reads("src 2001:db8::1", "src [2001:db8::1]");
    reads("src ::ffff:10.0.0.1", "src [::ffff:10.0.0.1]");
    reads("src *", "src *");
    reads("src any:80", "sport = :80");
    reads("src *:80", "sport = :80");
    reads("src :80", "sport = :80");
    reads("src 10.0.0.1:*", "src 10.0.0.1");
    reads("src 10.0.0.1:", "src 10.0.0.1");
    reads("src localhost:80", "src 127.0.0.1:80 or src [::1]:80");
    reads("src != 10.0.0.1", "src != 10.0.0.1");
    reads("src inet:10.0.0.1", "family = inet and src 10.0.0.1");
    reads("src inet6:localhost", "family = inet6 and src [::1]");
    reads(
        "src inet6:*:80 or dport = inet6:81",
        "family = inet6 and ( sport = :80 or dport = :81 )",
    );
    reads("src inet:10.0.0.1 or src inet6:[::1]", "src 10.0.0.1 or src [::1]");
}

#[test]
fn ports() {
    for (written, printed) in [
        ("=", "="),
        ("==", "="),
        ("eq", "="),
        ("", "="),
        ("!=", "!="),
        ("ne", "!="),
        ("neq", "!="),
        (">=", ">="),
        ("ge", ">="),
        ("geq", ">="),
        ("<=", "<="),
        ("le", "<="),
        ("leq", "<="),
        (">", ">"),
        ("gt", ">"),
        ("<", "<"),
        ("lt", "<"),
    ] {
        reads(&format!("sport {written} :80"), &format!("sport {printed} :80"));
        reads(&format!("dport {written} http"), &format!("dport {printed} :80"));
    }
    reads("sport=:80", "sport = :80");
    reads("dport>=1024", "dport >= :1024");
    reads("sport = 0x50", "sport = :80");
    reads("sport = :www", "sport = :80");
    reads("sport = *", "src *");
    reads("sport != *", "src != *");
    reads("not sport >= :80", "sport < :80");
}

#[test]
fn lists_and_ranges() {
    reads("sport in 80", "sport = :80");
    reads("sport in 1-1024", "sport >= :1 and sport <= :1024");
    reads(
        "dport in 80,https-x,8000-8999",
        "dport = :80 or dport = :443 or ( dport >= :8000 and dport <= :8999 )",
    );
    reads("dport in 80, :81,  www", "dport = :80 or dport = :81 or dport = :80");
    reads("sport not in 80,81", "not ( sport = :80 or sport = :81 )");
    reads("sport not in 80", "sport != :80");
    reads("sport in '80,81' and dport = :1", "( sport = :80 or sport = :81 ) and dport = :1");
    reads("src in 10.0.0.0/8,[fd00::/8]:53", "src 10.0.0.0/8 or src [fd00::/8]:53");
    reads("dst not in 10/8,localhost", "not ( dst 10.0.0.0/8 or dst 127.0.0.1 or dst [::1] )");
    reads("host 10.0.0.1", "src 10.0.0.1 or dst 10.0.0.1");
    reads("host != :80", "not ( sport = :80 or dport = :80 )");
    reads(
        "host in 10.0.0.1,10.0.0.2",
        "src 10.0.0.1 or dst 10.0.0.1 or src 10.0.0.2 or dst 10.0.0.2",
    );
    reads("local 10/8 peer 10.0.0.1:80", "src 10.0.0.0/8 and dst 10.0.0.1:80");
}

#[test]
fn names_of_columns_are_words() {
    reads("recv_q > 1KiB and send_q = 0", "rqueue > 1024 and wqueue = 0");
    reads("waiting > 0 and backlog < 128", "waiting > 0 and backlog < 128");
    reads("limited = rwnd or limited != s*", "limited = rwnd or limited != s*");
    reads("idle > 5min", "idle > 5m");
    reads("sent > 1MB received > 1k", "sent > 1000000 and bytes_received > 1000");
    reads("pacing > 1Mbit/s", "pacing_rate > 125kB/s");
    reads("namespace = blue", "netns = blue");
    reads("seen > 1s", "age > 1s");
    reads("rmem > 0 rcvbuf < 1MiB", "rmem > 0 and rcvbuf < 1048576");
}

#[test]
fn classes_of_service() {
    for (written, printed) in [
        ("ef", "ef"),
        ("EF", "ef"),
        ("46", "ef"),
        ("cs5", "cs5"),
        ("40", "cs5"),
        ("0x28", "cs5"),
        ("af41", "af41"),
        ("be", "cs0"),
        ("va", "va"),
        ("1", "1"),
        ("3", "3"),
        ("63", "63"),
    ] {
        reads(&format!("dscp = {written}"), &format!("dscp = {printed}"));
    }
    for wrong in ["64", "0x40", "cs8", "af44", "af51", "eff", "cs"] {
        let error = Filter::parse_with(&format!("dscp = {wrong}"), &FixedNames).unwrap_err();
        assert!(error.help.unwrap().contains("`cs5`"), "{wrong}");
    }
}

#[test]
fn operators_are_read_from_left_to_right() {
    reads("sport = :1 or sport = :2 and sport = :3", "( sport = :1 or sport = :2 ) and sport = :3");
    reads("sport = :1 sport = :2 | sport = :3", "( sport = :1 and sport = :2 ) or sport = :3");
    reads("sport = :1 & ( sport = :2 && sport = :3 )", "sport = :1 and sport = :2 and sport = :3");
    reads("(sport=:1||sport=:2)dport=:3", "( sport = :1 or sport = :2 ) and dport = :3");
    reads("not sport = :1 and sport = :2", "sport != :1 and sport = :2");
    reads("! ( sport = :1 or autobound )", "not ( sport = :1 or autobound )");
    reads("not not autobound", "not not autobound");
    assert_eq!(parse("sport = :1 or sport = :2 and sport = :3").notes().len(), 1);
    assert_eq!(parse("sport = :1 and sport = :2 or sport = :3").notes().len(), 0);
    assert_eq!(parse("src fe80::1:80").notes().len(), 1);
    assert_eq!(parse("src 10").notes().len(), 1);
}

#[test]
fn other_words() {
    reads("dev lo", "dev = lo");
    reads("dev != 2", "dev != 2");
    reads("dev = \"2\"", "dev = \"2\"");
    reads("fwmark = 16", "fwmark = 0x10");
    reads("fwmark 0x1/0x3", "fwmark = 0x1/0x3");
    reads("cgroup = /c7", "cgroup = /c7");
    reads("cgroup = /system.slice/*", "cgroup = /system.slice/*");
    reads("uid = www-data", "uid = 33");
    reads("user != 0", "uid != 0");
    reads("family inet6", "family = inet6");
    reads("cc = bbr", "cc = bbr");
    reads("rtt > 100ms", "rtt > 100ms");
    reads("rtt_us > 0.25ms", "rtt > 250us");
    reads("min_rtt <= 1.5s", "min_rtt <= 1500ms");
    reads("delivery_rate < 1MB", "delivery_rate < 1MB/s");
    reads("rate < 1Mbit/s", "delivery_rate < 125kB/s");
    reads("rate >= 9bit", "delivery_rate >= 9bit/s");
    reads("bytes_acked >= 10MiB", "bytes_acked >= 10485760");
    // The column's total, not the kernel's field of that name.
    reads("retrans > 0", "total_retrans > 0");
    reads("retrans_now > 0", "retrans_now > 0");
    reads("retrans_segments > 0", "retrans_now > 0");
    reads("cwnd 10", "snd_cwnd = 10");
    reads("lastrcv > 1min", "last_data_recv > 1m");
    reads("age > 2h", "age > 2h");
    reads("delivered_ce > 2", "delivered_ce > 2");
    reads("delivered_ce_bytes > 2k", "delivered_ce_bytes > 2000");
    reads("netns = blue and pod = 1234*", "netns = blue and pod = 1234*");
    reads("process = 'my server'", "process = \"my server\"");
    reads("process = and\\ more", "process = \"and more\"");
    reads(r"unit = system-getty\x2d1.service", "unit = \"system-getty\\\\x2d1.service\"");
    reads("process = \"not\"", "process = \"not\"");
    reads("process = \"\"", "process = \"\"");
    reads("container != abc*", "container != abc*");
    reads("pid = 1 or inode = 77 or cookie = 0x10", "pid = 1 or inode = 77 or cookie = 16");
}

#[test]
fn every_number_has_a_word_that_is_read() {
    for word in words() {
        let field = Field::from_word(word).unwrap_or_else(|| panic!("{word}"));
        assert_eq!(Field::from_word(field.word()), Some(field), "{word}");
        let zero = format!("{word} = 0");
        let printed = if word == "dscp" { "cs0" } else { "0" };
        assert_eq!(parse(&zero).to_string(), format!("{} = {printed}", field.word()));
    }
}

fn message(src: &str, dst: &str) -> SocketMessage<'static> {
    let (src, dst): (SocketAddr, SocketAddr) = (src.parse().unwrap(), dst.parse().unwrap());
    let family = if src.is_ipv4() { Family::Inet } else { Family::Inet6 };
    SocketMessage::new(
        family,
        State::Established,
        SocketId { src, dst, interface_index: 0, cookie: 5 },
    )
}
