use super::{FixedNames, message, parse};
use crate::attribution::Process;
use crate::filter::evaluate::fits;
use crate::filter::names::cgroup_mount;
use crate::filter::{Facts, Names, Verdict};
use std::time::Duration;
use wire::inet_diag::TcpInfo;

/// A `tcp_info` with these fields, and zeros elsewhere.
fn payload(fields: &[(&str, u64)]) -> [u8; 280] {
    let mut payload = [0; 280];
    for &(name, value) in fields {
        let known = wire::inet_diag::tcp_info::FIELDS;
        known.iter().find(|field| field.name == name).unwrap().write(&mut payload, value);
    }
    payload
}

#[test]
fn words_of_columns_that_the_kernel_has_no_field_for() {
    let payload = payload(&[
        ("last_data_sent_ms", 90_000),
        ("last_data_recv_ms", 61_000),
        ("total_retrans_segments", 1),
        ("busy_time_us", 1_000),
        ("rwnd_limited_us", 300),
        ("bytes_sent", 5_000),
    ]);
    let mut socket = message("10.0.0.1:40000", "10.0.0.2:443");
    socket.tcp_info = Some(TcpInfo::decode(&payload).unwrap());
    socket.type_of_service = Some(0xb9);
    let facts = Facts::default();
    let check =
        |text: &str, expected| assert_eq!(parse(text).matches(&socket, &facts), expected, "{text}");
    check("idle > 1min", true);
    check("idle > 62s", false);
    check("limited = rwnd", true);
    check("limited != rwnd", false);
    check("sent = 5000", true);
    check("dscp = ef", true);
    check("dscp = cs5", false);
    check("retrans > 0", true);
    check("retrans_now > 0", false);
    check("waiting >= 0", false);
    check("peer in 10.0.0.0/30,[::1]", true);
    check("host 10.0.0.2", true);
    check("host 10.0.0.3", false);
}

#[test]
fn evaluation_of_what_the_kernel_does_not_know() {
    let payload = payload(&[
        ("rtt_us", 150_000),
        ("min_rtt_us", u64::from(u32::MAX)),
        ("last_data_recv_ms", 61_000),
    ]);
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
    // Without tcp_info nothing is known about it, so neither a comparison nor its opposite passes.
    for text in ["rtt > 0", "rtt < 1s", "rtt != 1s", "not rtt > 0"] {
        assert_eq!(parse(text).evaluate(&listener, &facts), Verdict::Unknown, "{text}");
    }
}

#[test]
fn patterns() {
    let check =
        |pattern, text, expected| assert_eq!(fits(pattern, text), expected, "{pattern} on {text}");
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
