use super::{FixedNames, parse};
use crate::filter::{Filter, MAX_NESTING, MAX_TEXT_BYTES, Needs, NoNames};

fn word(word: &str) -> String {
    format!("`{word}` is not a word of the filter language")
}

/// The first line of the error, the marked part and the help, where it matters which.
fn fails(text: &str, marked: &str, message: &str, help: Option<&str>) {
    let error = Filter::parse_with(text, &FixedNames).expect_err(text);
    assert_eq!(error.message, message, "{text}");
    assert_eq!(text.get(error.span.clone()), Some(marked), "{text}: {error}");
    // Whatever is wrong, something is said that helps.
    assert!(error.help.is_some(), "{text}: {error}");
    assert!(help.is_none() || error.help.as_deref() == help, "{text}: {error}");
}

#[test]
fn an_unknown_word_gets_the_nearest_known_one() {
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
    fails("sport = :1 🦀", "🦀", &word("🦀"), None);
}

#[test]
fn states_that_are_none() {
    fails(
        "state estalbished",
        "estalbished",
        "`estalbished` is not a state",
        Some("did you mean `established`?"),
    );
    fails("state", "", "a state is missing after `state`", None);
    fails("exclude all", "exclude all", "no state is left", None);
}

#[test]
fn lists_that_are_none() {
    fails("sport in", "", "a port or a range of ports is missing after `sport`", None);
    fails("sport in 20-10", "20-10", "this range ends before it begins", None);
    let help = Some("write both, or `>=` or `<=` with one");
    fails("sport in 20-", "20-", "a range has two ends", help);
    fails("sport in 80,*", "*", "any port is not an element of a list", None);
    fails(
        "sport in 80,,81",
        "80,,81",
        "a port or a range of ports is missing next to a comma",
        None,
    );
    fails("sport in ,81", ",81", "a port or a range of ports is missing next to a comma", None);
    fails("sport in 80,", "", "a port or a range of ports is missing after `sport`", None);
    fails("sport in 1-70000", "70000", "70000 is not a port", Some("write a number up to 65535"));
    fails(
        "src in 10.0.0.1,10.0.0.2/33",
        "33",
        "`33` is not a prefix length",
        Some("write 0 to 32 bits"),
    );
    let help = Some("write `not sport …`, or `sport not in …`");
    fails("sport not 80", "not", "`in` is expected after `sport not`", help);
    fails(
        "limited = rwn",
        "rwn",
        "`rwn` is not a limit",
        Some("write one of rwnd, sndbuf, app, path"),
    );
}

#[test]
fn columns_that_are_no_words_say_why() {
    for (name, why) in crate::filter::COLUMNS_ONLY {
        fails(&format!("{name} > 1"), name, &word(name), Some(why));
    }
}

#[test]
fn ports_that_are_none() {
    fails("sport", "", "a port is missing after `sport`", None);
    fails("sport and dport = :1", "and", "a port is expected after `sport`", None);
    fails("sport = :70000", "70000", "70000 is not a port", Some("write a number up to 65535"));
    fails("sport = :htp", "htp", "`htp` is neither a port nor a service of /etc/services", None);
    fails("sport = ntp", "ntp", "`ntp` is neither a port nor a service of /etc/services", None);
    fails(
        "sport = 10-20",
        "10-20",
        "`10-20` is neither a port nor a service of /etc/services",
        Some("write `sport in 1000-2000`"),
    );
    fails("sport >= *", "*", "any port has no order", None);
}

#[test]
fn hosts_that_are_none() {
    fails("src >= 10.0.0.1", ">=", "`src` has no order", Some("use `=` or `!=`"));
    fails("src 10.0.0.1/33", "33", "`33` is not a prefix length", Some("write 0 to 32 bits"));
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
        Some("write an IPv6 address with a port as `[2001:db8::1]:443`"),
    );
    fails("src [::1]x", "x", "a colon and a port are expected after the ]", None);
    fails("src inet6:10.0.0.1", "10.0.0.1", "`10.0.0.1` is not an address of family inet6", None);
    fails(
        "src unix:/run/x",
        "unix:",
        "only TCP sockets are read",
        Some("write `inet:` or `inet6:`"),
    );
    fails("src \"\"", "\"\"", "an address or a port is missing", Some("write `*` for any address"));
}

#[test]
fn structure_that_is_broken() {
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
}

#[test]
fn numbers_that_are_none() {
    fails(
        "rtt > 100",
        "100",
        "`100` lacks its unit",
        Some("write a time with its unit (us, ms, s, min, h, d), such as `100ms`"),
    );
    fails(
        "rtt > 5kB",
        "5kB",
        "`5kB` has a unit that does not fit",
        Some("write a time with its unit (us, ms, s, min, h, d), such as `100ms`"),
    );
    fails(
        "rtt > fast",
        "fast",
        "`fast` is not a number",
        Some("write a time with its unit (us, ms, s, min, h, d), such as `100ms`"),
    );
    fails(
        "rtt > 0.5us",
        "0.5us",
        "`0.5us` is finer than what the kernel counts in",
        Some("write a time with its unit (us, ms, s, min, h, d), such as `100ms`"),
    );
    fails(
        "bytes_acked > 99999999999999999999",
        "99999999999999999999",
        "`99999999999999999999` is too large",
        Some("write a size, such as `1500`, `64KiB` or `1MB`"),
    );
}

#[test]
fn other_values_that_are_none() {
    fails(
        "rqueue > 1K",
        "1K",
        "`1K` has a unit that does not fit",
        Some("write a size, such as `1500`, `64KiB` or `1MB`"),
    );
    fails("uid = nobdy", "nobdy", "there is no user `nobdy`", None);
    fails("uid > 3", ">", "`uid` has no order", Some("use `=` or `!=`"));
    fails(
        "fwmark = red",
        "red",
        "`red` is not a mark",
        Some("write a number, or a number and a mask, such as `0x10/0xff`"),
    );
    fails("family ipx", "ipx", "`ipx` is not a family", Some("write `inet` or `inet6`"));
    fails(
        "cgroup = /nothing",
        "/nothing",
        "there is no cgroup `/nothing`",
        Some("write a pattern such as `/system.slice/*`, which is compared with paths"),
    );
    fails(
        "dev = far-too-long-a-name",
        "far-too-long-a-name",
        "an interface's name has 1 to 15 bytes",
        None,
    );
}

#[test]
fn the_error_is_printed_with_a_caret() {
    let error = Filter::parse_with("state established and dprt = :443", &FixedNames).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`dprt` is not a word of the filter language\n  state established and dprt = :443\n                        ^^^^\nFix: did you mean `dport`?"
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
fn a_word_that_asks_for_what_nobody_knows_is_pointed_at() {
    let check = |text: &str, unknown: Needs, span, says: &str| {
        let error = parse(text).check_known(Needs::ALL.without(unknown)).unwrap_err();
        assert_eq!(error.span, span, "{text}");
        assert!(error.message.contains(says), "{text}: {}", error.message);
        assert_eq!(parse(text).check_known(Needs::ALL), Ok(()), "{text}");
    };
    let processes = "which process holds a socket";
    check("rtt > 1ms and process = nginx", Needs::PROCESSES, 14..21, processes);
    check("not pid = 1 or pid = 2", Needs::PROCESSES, 4..7, processes);
    check("age > 1s or rtt > 1ms and age < 9s", Needs::AGE, 0..3, "how long");
    check("sport = :1 and not unit = nginx*", Needs::ATTRIBUTION, 19..23, "cgroup");
    check("pod = x", Needs::ATTRIBUTION, 0..3, "cgroup");
    check("cgroup = /a*", Needs::ATTRIBUTION, 0..6, "cgroup");
    check("netns != blue", Needs::NETNS, 0..5, "network namespace");
    check("dev = lo", Needs::INTERFACE, 0..3, "interface");
    check("fwmark = 7", Needs::MARK, 0..6, "CAP_NET_ADMIN");
    check("cc = bbr", Needs::CONGESTION, 0..2, "no congestion control");
    check("uid = 0 and limited = rwnd", Needs::TCP_INFO, 12..19, "no such figure");
    let all = "unit = nginx* and uid = 0 and dev = 2 and cookie > 5 and state listening";
    assert_eq!(parse(all).check_known(Needs::ATTRIBUTION), Ok(()));
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
