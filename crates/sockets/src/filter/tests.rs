use super::names::{cgroup_mount, service_in, user_in};
use super::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use wire::inet_diag::bytecode::{self, Entry, Operations, Privilege};
use wire::inet_diag::{Family, SocketId, State, TcpInfo};

/// A few names, the same on every host.
struct FixedNames;

impl Names for FixedNames {
    fn service(&self, name: &str) -> Option<u16> {
        service_in(
            "# comment\nhttp 80/tcp www # web\ndomain 53/udp\ndomain 53/tcp\nntp 123/udp\n",
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

/// The filter is read, printed so, and what is printed is read as the same.
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
    reads("delivery_rate < 1MB", "delivery_rate < 1MB");
    reads("rate < 1Mbit/s", "delivery_rate < 125kB");
    reads("rate >= 9bit", "delivery_rate >= 9bit");
    reads("bytes_acked >= 10MiB", "bytes_acked >= 10485760");
    reads("retrans > 0", "retrans > 0");
    reads("cwnd 10", "snd_cwnd = 10");
    reads("lastrcv > 1min", "last_data_recv > 1min");
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
        assert_eq!(parse(&zero).to_string(), format!("{} = 0", field.word()));
    }
}

/// The first line of the error, the marked part and the help.
fn fails(text: &str, marked: &str, message: &str, help: Option<&str>) {
    let error = Filter::parse_with(text, &FixedNames).expect_err(text);
    assert_eq!(error.message, message, "{text}");
    assert_eq!(text.get(error.span.clone()), Some(marked), "{text}: {error}");
    assert_eq!(error.help.as_deref(), help, "{text}");
}

#[test]
fn mistakes_are_marked_and_mended() {
    let word = |word: &str| format!("`{word}` is no word of the filter language");
    fails("dprt = :443", "dprt", &word("dprt"), Some("did you mean `dport`?"));
    fails(
        "state established and retans > 3",
        "retans",
        &word("retans"),
        Some("did you mean `retrans`?"),
    );
    fails("DPORT = :443", "DPORT", &word("DPORT"), Some("did you mean `dport`?"));
    fails(
        "10.0.0.1",
        "10.0.0.1",
        &word("10.0.0.1"),
        Some("write `src 10.0.0.1` or `dst 10.0.0.1`"),
    );
    fails(":443", ":443", &word(":443"), Some("write `src :443` or `dst :443`"));
    fails("443", "443", &word("443"), Some("write `sport = :443` or `dport = :443`"));
    fails("established", "established", &word("established"), Some("write `state established`"));
    fails("xyzzy = 3", "xyzzy", &word("xyzzy"), None);
    fails(
        "state estalbished",
        "estalbished",
        "`estalbished` is no state",
        Some("did you mean `established`?"),
    );
    fails("state", "", "a state is missing behind `state`", None);
    fails("exclude all", "exclude all", "no state is left", None);
    fails("sport", "", "a port is missing behind `sport`", None);
    fails("sport and dport = :1", "and", "a port is expected behind `sport`", None);
    fails("sport = :70000", "70000", "70000 is no port", Some("ports end at 65535"));
    fails("sport = :htp", "htp", "`htp` is neither a port nor a service of /etc/services", None);
    fails("sport = ntp", "ntp", "`ntp` is neither a port nor a service of /etc/services", None);
    fails(
        "sport = 10-20",
        "10-20",
        "`10-20` is neither a port nor a service of /etc/services",
        Some("a range is written `sport >= :1000 and sport <= :2000`"),
    );
    fails("sport >= *", "*", "any port has no order", None);
    fails("src >= 10.0.0.1", ">=", "`src` has no order", Some("it takes `=` and `!=`"));
    fails("src 10.0.0.1/33", "33", "`33` is no prefix length", Some("0 to 32 bits"));
    fails("src 10.0.0.0/255.0.255.0", "255.0.255.0", "the mask 255.0.255.0 has holes", None);
    fails(
        "src 10.0.0.256",
        "10.0.0.256",
        "`10.0.0.256` is neither an address nor a host that can be looked up",
        None,
    );
    fails(
        "src 10.0.0.01",
        "10.0.0.01",
        "`10.0.0.01` is neither an address nor a host that can be looked up",
        None,
    );
    fails(
        "src [::1",
        "[::1",
        "the [ is never closed",
        Some("an IPv6 address with a port is written `[2001:db8::1]:443`"),
    );
    fails("src [::1]x", "x", "a colon and a port are expected behind the ]", None);
    fails("src inet6:10.0.0.1", "10.0.0.1", "`10.0.0.1` is no address of family inet6", None);
    fails(
        "src unix:/run/x",
        "unix:",
        "only TCP sockets are read",
        Some("the families are `inet:` and `inet6:`"),
    );
    fails(
        "src \"\"",
        "\"\"",
        "an address or a port is missing",
        Some("`*` stands for any address"),
    );
    fails("( sport = :1", "(", "this ( is never closed", None);
    fails("sport = :1 )", ")", "this ) was never opened", None);
    fails("sport = :1 and ( )", "( )", "there is nothing between the parentheses", None);
    fails("sport = :1 and", "", "something to test is missing here", None);
    fails("not", "", "something to test is missing here", None);
    fails("and sport = :1", "and", "something to test is missing before `and`", None);
    fails("= :1", "=", "there is nothing to compare before this", None);
    fails(
        "\"sport\" = :1",
        "\"sport\"",
        "a word of the language is expected, not a quoted one",
        None,
    );
    fails("process = \"x", "\"x", "the \" is never closed", None);
    fails(
        "rtt > 100",
        "100",
        "`100` lacks its unit",
        Some("`rtt` takes a time with its unit (us, ms, s, min, h, d), such as `100ms`"),
    );
    fails(
        "rtt > 5kB",
        "5kB",
        "`5kB` has a unit that does not fit",
        Some("`rtt` takes a time with its unit (us, ms, s, min, h, d), such as `100ms`"),
    );
    fails(
        "rtt > fast",
        "fast",
        "`fast` is not a number",
        Some("`rtt` takes a time with its unit (us, ms, s, min, h, d), such as `100ms`"),
    );
    fails(
        "rtt > 0.5us",
        "0.5us",
        "`0.5us` is finer than what the kernel counts in",
        Some("`rtt` takes a time with its unit (us, ms, s, min, h, d), such as `100ms`"),
    );
    fails(
        "bytes_acked > 99999999999999999999",
        "99999999999999999999",
        "`99999999999999999999` is too large",
        Some("`bytes_acked` takes a size, such as `1500`, `64KiB` or `1MB`"),
    );
    fails("uid = nobdy", "nobdy", "there is no user `nobdy`", None);
    fails("uid > 3", ">", "`uid` has no order", Some("it takes `=` and `!=`"));
    fails(
        "fwmark = red",
        "red",
        "`red` is no mark",
        Some("it is a number, or a number and a mask: `0x10/0xff`"),
    );
    fails("family ipx", "ipx", "`ipx` is no family", Some("the families are `inet` and `inet6`"));
    fails(
        "cgroup = /nothing",
        "/nothing",
        "there is no cgroup `/nothing`",
        Some("a pattern such as `/system.slice/*` is compared with paths and needs no such cgroup"),
    );
    fails(
        "dev = far-too-long-a-name",
        "far-too-long-a-name",
        "an interface's name has 1 to 15 bytes",
        None,
    );
    fails("sport = :1 🦀", "🦀", &word("🦀"), None);
}

#[test]
fn the_error_is_printed_with_a_caret() {
    let error = Filter::parse_with("state established and dprt = :443", &FixedNames).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`dprt` is no word of the filter language\n  state established and dprt = :443\n                        ^^^^\nhelp: did you mean `dport`?"
    );
    let long = format!("{}dprt = :443", "sport = :1 or ".repeat(40));
    let printed = Filter::parse_with(&long, &FixedNames).unwrap_err().to_string();
    let lines: Vec<&str> = printed.lines().collect();
    let column = lines[2].find('^').unwrap();
    assert!(lines[1].chars().count() < 120, "{printed}");
    assert_eq!(lines[1].chars().skip(column).take(4).collect::<String>(), "dprt");
}

#[test]
fn interfaces_are_checked_when_asked() {
    let filter = parse("dev = lo or dev = eth9");
    assert!(filter.depends_on_namespace());
    let error = filter.check_devices(&FixedNames).unwrap_err();
    assert_eq!(error.message, "there is no interface `eth9` here");
    assert_eq!(error.span, 18..22);
    assert_eq!(parse("dev = lo").check_devices(&FixedNames), Ok(()));
}

#[test]
fn bounds_hold() {
    let deep = |levels: usize| format!("{}autobound{}", "( ".repeat(levels), " )".repeat(levels));
    assert!(Filter::parse_with(&deep(MAX_NESTING - 1), &NoNames).is_ok());
    assert!(Filter::parse_with(&deep(MAX_NESTING + 1), &NoNames).is_err());
    assert!(Filter::parse_with(&deep(20_000), &NoNames).is_err());
    assert!(Filter::parse_with(&"not ".repeat(10_000), &NoNames).is_err());
    let alternating = format!("autobound{}", " or autobound and autobound".repeat(MAX_NESTING));
    let error = Filter::parse_with(&alternating, &NoNames).unwrap_err();
    assert_eq!(error.message, format!("nested deeper than {MAX_NESTING}"));
    let too_long = "x".repeat(MAX_TEXT_BYTES + 1);
    assert!(Filter::parse_with(&too_long, &NoNames).unwrap_err().to_string().len() < 500);
}

fn target() -> Target<'static> {
    Target { operations: Operations::ALL, ..Target::new(&FixedNames) }
}

/// What the kernel gets and what is left.
fn splits(text: &str, program_bytes: usize, rest: &str) {
    let compiled = parse(text).compile(&target());
    let left = compiled.rest.map_or(String::new(), |rest| rest.to_string());
    assert_eq!((compiled.bytecode.len(), left.as_str()), (program_bytes, rest), "{text}");
    if program_bytes > 0 {
        assert_eq!(bytecode::audit(&compiled.bytecode, Privilege::NetAdmin), Ok(()), "{text}");
    }
}

#[test]
fn the_kernel_gets_what_it_can() {
    splits("", 0, "");
    splits("state listening", 0, "");
    splits("src *", 0, "");
    splits("sport = :80", 8, "");
    splits("src 10.0.0.0/8", 16, "");
    splits("family inet6", 28, "");
    splits("sport = :80 and rtt > 1ms", 8, "rtt > 1ms");
    splits("sport = :80 or rtt > 1ms", 0, "sport = :80 or rtt > 1ms");
    splits(
        "( sport = :80 and rtt > 1ms ) or dport = :80",
        20,
        "( sport = :80 and rtt > 1ms ) or dport = :80",
    );
    splits("not ( sport = :80 or rtt > 1ms )", 12, "not ( sport = :80 or rtt > 1ms )");
    splits("not ( sport = :80 and rtt > 1ms )", 0, "not ( sport = :80 and rtt > 1ms )");
    splits("dev = lo", 8, "");
    splits("dev = eth9", 4, "");
    splits("cgroup = /c5 and fwmark = 1", 24, "");
    splits("autobound", 20, "");
    splits("sport = :1 and ( state listening or state established )", 8, "");
    let many: Vec<String> = (0..2_000).map(|port| format!("sport != :{port}")).collect();
    let compiled = parse(&many.join(" and ")).compile(&target());
    assert!(compiled.bytecode.len() > 16_000 && compiled.rest.is_some());
}

#[test]
fn states_become_the_requests() {
    let states = |text: &str| parse(text).compile(&target()).states;
    assert_eq!(states(""), States::DEFAULT);
    assert_eq!(states("sport = :1"), States::DEFAULT);
    assert_eq!(states("state listening"), States::LISTENING);
    assert_eq!(states("sport = :1 and state listening"), States::LISTENING);
    assert_eq!(
        states("state connected and sport = :1 and not state established"),
        States::CONNECTED - State::Established.into()
    );
    assert_eq!(
        states("( state listening and sport = :1 ) or state established"),
        States::LISTENING | State::Established.into()
    );
    assert_eq!(states("state listening or sport = :1"), States::ALL);
    assert!(states("( state listening and state established )").is_empty());
}

#[test]
fn without_privilege_or_an_old_kernel_the_rest_grows() {
    let basic = Target { operations: Operations::BASIC, ..target() };
    let compiled = parse("fwmark = 1 and cgroup = /c5 and sport = :80").compile(&basic);
    assert_eq!(compiled.rest.unwrap().to_string(), "fwmark = 0x1 and cgroup = /c5");
    assert_eq!(compiled.bytecode.len(), 12);
    assert!(compiled.needs.contains(Needs::MARK.with(Needs::CGROUP_ID)));
}

#[test]
fn explanations_name_the_place() {
    let lines: Vec<String> =
        parse("state established and dport = :443 and rtt > 1ms and ( sport = :1 or rtt > 2ms )")
            .explain(&target())
            .iter()
            .map(ToString::to_string)
            .collect();
    assert_eq!(
        lines,
        [
            "kernel  established  (the states asked for)",
            "kernel  dport = :443  (a program of the request)",
            "weir    rtt > 1ms  (the kernel's programs do not know `rtt`)",
            "weir    sport = :1 or rtt > 2ms  (the kernel's programs do not know `rtt`)",
        ]
    );
    let without = parse("fwmark = 1").explain(&Target::new(&FixedNames));
    assert_eq!(without.last().map(|line| line.place), Some(Place::Here));
    assert!(without.last().unwrap().reason.contains("CAP_NET_ADMIN"));
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

#[test]
fn evaluation_of_what_the_kernel_does_not_know() {
    let mut payload = [0; 280];
    for (name, value) in
        [("rtt_us", 150_000), ("min_rtt_us", u64::from(u32::MAX)), ("last_data_recv_ms", 61_000)]
    {
        let field =
            wire::inet_diag::tcp_info::FIELDS.iter().find(|field| field.name == name).unwrap();
        field.write(&mut payload, value);
    }
    let info = TcpInfo::decode(&payload).unwrap();
    let mut socket = message("10.0.0.1:40000", "10.0.0.2:443");
    let listener = socket;
    socket.tcp_info = Some(info);
    socket.congestion = Some("bbr");
    socket.uid = 33;
    let processes = [Process { pid: 7, name: "nginx" }, Process { pid: 8, name: "sh" }];
    let facts = Facts {
        netns: Some("blue"),
        unit: Some("nginx.service"),
        processes: &processes,
        age: Some(Duration::from_secs(30)),
        interface: Some("eth0"),
        ..Facts::default()
    };
    let check =
        |text: &str, expected| assert_eq!(parse(text).matches(&socket, &facts), expected, "{text}");
    check("rtt > 100ms", true);
    check("rtt > 150ms", false);
    check("rtt = 0.15s", true);
    check("min_rtt < 1s", false);
    check("min_rtt > 1s", false);
    check("lastrcv > 1min", true);
    check("cc = bbr", true);
    check("cc != cubic", true);
    check("user = www-data", true);
    check("process = ng*x", true);
    check("process = bash", false);
    check("pid = 8", true);
    check("unit = *.service", true);
    check("unit = *.slice", false);
    check("pod = *", false);
    check("netns = blue", true);
    check("age >= 30s", true);
    check("autobound", true);
    check("dev = eth0", false);
    check("state established and not state listening", true);
    check("state listening", false);
    check("cookie = 5", true);
    // Without tcp_info every comparison is false, and its opposite true.
    assert!(!parse("rtt > 0").matches(&listener, &facts));
    assert!(!parse("rtt < 1s").matches(&listener, &facts));
    assert!(parse("rtt != 1s").matches(&listener, &facts));
}

#[test]
fn patterns() {
    let check = |pattern, text, expected| {
        assert_eq!(evaluate::fits(pattern, text), expected, "{pattern} on {text}")
    };
    check("abc", "abc", true);
    check("abc", "abcd", false);
    check("*", "", true);
    check("a*", "a", true);
    check("a*a", "a", false);
    check("a*a", "aa", true);
    check("*b*", "abc", true);
    check("a*b*c", "aXbYbc", true);
    check("a*bc*bc", "abc", false);
    check("**", "x", true);
    check("a**b", "ab", true);
}

#[test]
fn system_files_are_read() {
    assert_eq!(FixedNames.service("www"), Some(80));
    assert_eq!(FixedNames.service("ntp"), None);
    assert_eq!(FixedNames.service("domain"), Some(53));
    assert_eq!(FixedNames.user("www-data"), Some(33));
    assert_eq!(
        cgroup_mount("proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
        Some("/sys/fs/cgroup")
    );
    assert_eq!(cgroup_mount("proc /proc proc rw 0 0\n"), None);
}

/// A small xorshift generator: the same cases on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn one_of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }

    fn text(&mut self, depth: usize) -> String {
        const TESTS: &[&str] = &[
            "src 10.0.0.0/9",
            "dst 10.0.0.1",
            "src [2001:db8::/33]",
            "dst ::ffff:10.0.0.1",
            "sport = :80",
            "dport >= :81",
            "sport < :81",
            "src 10.0.0.1:80",
            "dst *",
            "dev = lo",
            "dev = eth0",
            "dev = eth9",
            "fwmark = 1/3",
            "cgroup = /c1",
            "state established",
            "state != listening",
            "state connected",
            "family inet",
            "family inet6",
            "src inet:*",
            "uid = 33",
            "cc = b*",
            "rqueue > 10",
            "cookie = 1",
            "netns = blue",
        ];
        if depth == 0 {
            return self.one_of(TESTS).to_owned();
        }
        match self.below(5) {
            0 => format!("not {}", self.text(depth - 1)),
            1 => format!("( {} )", self.text(depth - 1)),
            _ => {
                let join = self.one_of(&[" and ", " or ", " "]);
                format!("{}{join}{}", self.text(depth - 1), self.text(depth - 1))
            }
        }
    }

    fn socket(&mut self) -> SocketMessage<'static> {
        const ENDS: &[&[&str]] = &[
            &["10.0.0.1:80", "10.128.0.1:81", "10.0.0.2:0"],
            &["[2001:db8::1]:80", "[2001:db8:8000::1]:81", "[::ffff:10.0.0.1]:80", "[::]:0"],
        ];
        let ends = ENDS[self.below(2)];
        let (src, dst) = (self.one_of(ends), self.one_of(ends));
        let mut socket = message(src, dst);
        socket.state =
            [State::Established, State::Listen, State::TimeWait, State::Closed][self.below(4)];
        socket.id.interface_index = u32::try_from(self.below(3)).unwrap();
        socket.id.cookie = self.below(2) as u64;
        socket.mark = Some(u32::try_from(self.below(8)).unwrap());
        socket.cgroup_id = Some(self.below(3) as u64);
        socket.uid = [0, 33][self.below(2)];
        socket.receive_queue = [0, 11][self.below(2)];
        socket.congestion = [None, Some("bbr"), Some("cubic")][self.below(3)];
        socket
    }
}

fn entry(socket: &SocketMessage<'_>) -> Entry {
    Entry {
        source: socket.id.src.ip(),
        destination: socket.id.dst.ip(),
        source_port: socket.id.src.port(),
        destination_port: socket.id.dst.port(),
        interface_index: socket.id.interface_index,
        autobound: false,
        mark: socket.mark.unwrap_or(0),
        cgroup_id: socket.cgroup_id.unwrap_or(0),
    }
}

#[test]
fn the_parts_together_decide_as_the_whole() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let facts = Facts { netns: Some("blue"), ..Facts::default() };
    let (mut passed, mut in_kernel) = (0, 0);
    for round in 0..6_000 {
        let text = random.text(round % 5);
        let Ok(filter) = Filter::parse_with(&text, &FixedNames) else {
            // The only mistake that such texts can have.
            assert!(
                Filter::parse_with(&text, &FixedNames).unwrap_err().message.contains("no state"),
                "{text}"
            );
            continue;
        };
        assert_eq!(parse(&filter.to_string()), filter, "{text} printed as {filter}");
        let operations = if round % 3 == 0 { Operations::BASIC } else { Operations::ALL };
        let compiled =
            filter.compile(&Target { operations, default_states: States::ALL, ..target() });
        assert!(
            compiled.bytecode.is_empty()
                || bytecode::audit(&compiled.bytecode, Privilege::NetAdmin).is_ok()
        );
        in_kernel += u32::from(compiled.rest.is_none());
        for _ in 0..30 {
            let socket = random.socket();
            let device = ["", "lo", "eth0"][usize::try_from(socket.id.interface_index).unwrap()];
            let facts = Facts { interface: Some(device), ..facts };
            let asked = evaluate::state_in(socket.state, compiled.states);
            let split = asked
                && bytecode::run(&compiled.bytecode, &entry(&socket))
                && compiled.matches(&socket, &facts);
            assert_eq!(
                split,
                filter.matches(&socket, &facts),
                "{text} as {filter} on {socket:?}: {compiled:?}"
            );
            passed += u32::from(split);
        }
    }
    assert!(
        (20_000..160_000).contains(&passed),
        "{passed} sockets passed: the cases lean to one side"
    );
    assert!(in_kernel > 500, "{in_kernel} filters ran in the kernel alone");
}
