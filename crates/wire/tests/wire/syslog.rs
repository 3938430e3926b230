//! Lines from real senders, each with its expected parts, written by hand.

mod corpus;
mod faults;
mod hostile;
mod senders;
mod zones;

use wire::syslog::{Arrival, Fault, Format, Syslog, Zone, parse};

/// 22 November 2026, 12:00 UTC.
const NOON: u64 = 1_795_348_800;
const ARRIVAL: Arrival<'_> = Arrival::utc(NOON * 1_000_000_000);

/// The expected parts of a line; `None` where there is none.
#[derive(Clone, Copy, Default)]
struct Said {
    priority: Option<u8>,
    /// Nanoseconds since 1970.
    time: Option<u64>,
    hostname: Option<&'static str>,
    app_name: Option<&'static str>,
    proc_id: Option<&'static str>,
    msg_id: Option<&'static str>,
    data: Option<&'static str>,
    fault: Option<Fault>,
    message: Option<&'static str>,
}

#[track_caller]
fn check(format: Format, line: &str, said: Said) {
    check_at(ARRIVAL, format, line, said);
}

#[track_caller]
fn check_at(arrival: Arrival<'_>, format: Format, line: &str, said: Said) {
    let parsed = parse(line.as_bytes(), arrival);
    let wanted = Syslog {
        format,
        // The corpus checks the forms.
        form: parsed.form,
        fault: said.fault,
        facility: said.priority.map(|priority| priority / 8),
        severity: said.priority.map(|priority| priority % 8),
        time_unix_ns: said.time,
        hostname: said.hostname,
        app_name: said.app_name,
        proc_id: said.proc_id,
        msg_id: said.msg_id,
        structured_data: said.data.map(str::as_bytes),
        message: said.message.map(str::as_bytes),
    };
    assert_eq!(parsed, wanted, "{line}");
}

/// Seconds and nanoseconds as nanoseconds.
const fn at(seconds: u64, nanoseconds: u64) -> Option<u64> {
    Some(seconds * 1_000_000_000 + nanoseconds)
}

/// 11 October 2026, 22:14:15 UTC.
const OCTOBER: u64 = 1_791_756_855;

#[test]
fn rfc5424_examples() {
    // RFC 5424 section 6.5, examples 1 to 4.
    check(
        Format::Rfc5424,
        "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \u{feff}'su root' failed for lonvick on /dev/pts/8",
        Said {
            priority: Some(34),
            time: at(1_065_910_455, 3_000_000),
            hostname: Some("mymachine.example.com"),
            app_name: Some("su"),
            msg_id: Some("ID47"),
            message: Some("'su root' failed for lonvick on /dev/pts/8"),
            ..Said::default()
        },
    );
    check(
        Format::Rfc5424,
        "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time to make the do-nuts.",
        Said {
            priority: Some(165),
            time: at(1_061_727_255, 3_000),
            hostname: Some("192.0.2.1"),
            app_name: Some("myproc"),
            proc_id: Some("8710"),
            message: Some("%% It's time to make the do-nuts."),
            ..Said::default()
        },
    );
    let data = "[exampleSDID@32473 iut=\"3\" eventSource=\"Application\" eventID=\"1011\"][examplePriority@32473 class=\"high\"]";
    let example = |message| Said {
        priority: Some(165),
        time: at(1_065_910_455, 3_000_000),
        hostname: Some("mymachine.example.com"),
        app_name: Some("evntslog"),
        msg_id: Some("ID47"),
        data: Some(data),
        message,
        ..Said::default()
    };
    let header = "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 ";
    check(Format::Rfc5424, &format!("{header}{data}"), example(None));
    let text = "An application event log entry...";
    check(Format::Rfc5424, &format!("{header}{data} \u{feff}{text}"), example(Some(text)));
}

#[test]
fn rfc5424_of_programs() {
    // logger -n 127.0.0.1 -P 514 -d --rfc5424 --msgid M1 --sd-id flow@32473 --sd-param 'rtt="3"' text (util-linux 2.40)
    check(
        Format::Rfc5424,
        "<13>1 2026-11-22T12:00:00.123456+01:00 web-17 root - M1 [timeQuality tzKnown=\"1\" isSynced=\"1\" syncAccuracy=\"250500\"][flow@32473 rtt=\"3\"] text",
        Said {
            priority: Some(13),
            time: at(NOON - 3600, 123_456_000),
            hostname: Some("web-17"),
            app_name: Some("root"),
            msg_id: Some("M1"),
            data: Some(
                "[timeQuality tzKnown=\"1\" isSynced=\"1\" syncAccuracy=\"250500\"][flow@32473 rtt=\"3\"]",
            ),
            message: Some("text"),
            ..Said::default()
        },
    );
    // rsyslog, RSYSLOG_SyslogProtocol23Format.
    check(
        Format::Rfc5424,
        "<30>1 2026-11-22T12:00:00.000001+00:00 web-17 systemd 1 - -  Started session.\n",
        Said {
            priority: Some(30),
            time: at(NOON, 1_000),
            hostname: Some("web-17"),
            app_name: Some("systemd"),
            proc_id: Some("1"),
            message: Some(" Started session."),
            ..Said::default()
        },
    );
    // Junos, structured-data.
    check(
        Format::Rfc5424,
        "<165>1 2026-11-22T12:00:00.123Z mx1 mgd 1234 UI_DBASE_LOGIN_EVENT [junos@2636.1.1.1.2.18 username=\"user\"] User 'user' entering configuration mode",
        Said {
            priority: Some(165),
            time: at(NOON, 123_000_000),
            hostname: Some("mx1"),
            app_name: Some("mgd"),
            proc_id: Some("1234"),
            msg_id: Some("UI_DBASE_LOGIN_EVENT"),
            data: Some("[junos@2636.1.1.1.2.18 username=\"user\"]"),
            message: Some("User 'user' entering configuration mode"),
            ..Said::default()
        },
    );
    // Nothing known; escapes; a space before the bracket; no space before the end of the line.
    let only = |data, message| Said { priority: Some(0), data, message, ..Said::default() };
    check(Format::Rfc5424, "<0>1 - - - - - -", only(None, None));
    check(Format::Rfc5424, "<0>1 - - - - - -\n", only(None, None));
    check(Format::Rfc5424, "<0>1 - - - - - - ", only(None, None));
    check(Format::Rfc5424, "<0>1 - - - - - - \u{feff}", only(None, None));
    let data = r#"[a b="\"]\\" c="é"][d ]"#;
    check(Format::Rfc5424, &format!("<0>1 - - - - - {data} x"), only(Some(data), Some("x")));
}

/// A program and its text after a host, in October.
fn october(
    priority: u8,
    hostname: &'static str,
    app_name: &'static str,
    proc_id: Option<&'static str>,
    message: &'static str,
) -> Said {
    Said {
        priority: Some(priority),
        time: at(OCTOBER, 0),
        hostname: Some(hostname),
        app_name: Some(app_name),
        proc_id,
        message: Some(message),
        ..Said::default()
    }
}

#[test]
fn rfc3164_of_programs() {
    // RFC 3164 section 5.4, with the colon that all programs write.
    check(
        Format::Rfc3164,
        "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8",
        october(34, "mymachine", "su", None, "'su root' failed for lonvick on /dev/pts/8"),
    );
    check(
        Format::Rfc3164,
        "<38>Oct 11 22:14:15 web-17 sshd[4711]: Accepted publickey for root from 192.0.2.1 port 50022 ssh2\n",
        october(
            38,
            "web-17",
            "sshd",
            Some("4711"),
            "Accepted publickey for root from 192.0.2.1 port 50022 ssh2",
        ),
    );
    check(
        Format::Rfc3164,
        "<6>Oct 11 22:14:15 web-17 kernel: [12345.678901] eth0: link up",
        october(6, "web-17", "kernel", None, "[12345.678901] eth0: link up"),
    );
    check(
        Format::Rfc3164,
        "<22>Oct 11 22:14:15 mail postfix/smtpd[99]: connect from unknown[192.0.2.1]",
        october(22, "mail", "postfix/smtpd", Some("99"), "connect from unknown[192.0.2.1]"),
    );
    check(
        Format::Rfc3164,
        "<86>Oct 11 22:14:15 fe80::1 CRON(pam_unix)[7]: session opened",
        october(86, "fe80::1", "CRON(pam_unix)", Some("7"), "session opened"),
    );
    // Junos.
    check(
        Format::Rfc3164,
        "<28>Oct 11 22:14:15 mx1 mgd[1234]: UI_COMMIT: User 'x' requested 'commit'",
        october(28, "mx1", "mgd", Some("1234"), "UI_COMMIT: User 'x' requested 'commit'"),
    );
    // The same with `time-format year millisecond`.
    check(
        Format::Rfc3164,
        "<28>Oct 11 22:14:15.500 2025  mx1 mgd[1234]: x",
        Said {
            time: at(OCTOBER - 365 * 86_400, 500_000_000),
            ..october(28, "mx1", "mgd", Some("1234"), "x")
        },
    );
    // AIX.
    check(
        Format::Rfc3164,
        "<38>Oct 11 22:14:15 Message forwarded from aix1: sshd[5]: x",
        october(38, "aix1", "sshd", Some("5"), "x"),
    );
    // syslog-ng with ts-format(iso), rsyslog's RSYSLOG_ForwardFormat.
    check(
        Format::Rfc3164,
        "<34>2026-10-12T00:14:15+02:00 web-17 app[1]: x",
        october(34, "web-17", "app", Some("1"), "x"),
    );
    // Without a zone, and with a space and a comma.
    check(
        Format::Rfc3164,
        "<34>2026-10-11 22:14:15,250 web-17 app: x",
        Said { time: at(OCTOBER, 250_000_000), ..october(34, "web-17", "app", None, "x") },
    );
    // To /dev/log: no host.
    check(
        Format::Rfc3164,
        "<30>Oct 11 22:14:15 systemd[1]: Started x.\0",
        Said { hostname: None, ..october(30, "", "systemd", Some("1"), "Started x.") },
    );
    // No priority (section 4.3.3).
    check(
        Format::Rfc3164,
        "Oct 11 22:14:15 web-17 app[1]: x",
        Said { priority: None, ..october(0, "web-17", "app", Some("1"), "x") },
    );
}

#[test]
fn rfc3164_of_cisco_devices() {
    let cisco = |hostname, msg_id, message| Said {
        priority: Some(189),
        time: at(OCTOBER, 123_000_000),
        hostname,
        msg_id: Some(msg_id),
        message: Some(message),
        ..Said::default()
    };
    let text = "Configured from console by vty0 (192.0.2.1)";
    // IOS: with a sequence number, with a mark and `logging origin-id hostname`, with year and zone.
    check(
        Format::Rfc3164,
        "<189>45: Oct 11 22:14:15.123: %SYS-5-CONFIG_I: Configured from console by vty0 (192.0.2.1)",
        cisco(None, "SYS-5-CONFIG_I", text),
    );
    check(
        Format::Rfc3164,
        "<189>000045: router1: *Oct 11 22:14:15.123: %SYS-5-CONFIG_I: Configured from console by vty0 (192.0.2.1)",
        cisco(Some("router1"), "SYS-5-CONFIG_I", text),
    );
    check(
        Format::Rfc3164,
        "<189>45: Oct 11 2026 22:14:15.123 UTC: %SYS-5-CONFIG_I: Configured from console by vty0 (192.0.2.1)",
        cisco(None, "SYS-5-CONFIG_I", text),
    );
    // IOS XR.
    check(
        Format::Rfc3164,
        "<189>45: RP/0/RSP0/CPU0:Oct 11 22:14:15.123 : config[65]: %MGBL-SYS-5-CONFIG_I : Configured",
        Said {
            app_name: Some("config"),
            proc_id: Some("65"),
            // The location of a card is not a host.
            ..cisco(None, "MGBL-SYS-5-CONFIG_I", "Configured")
        },
    );
    // NX-OS.
    check(
        Format::Rfc3164,
        "<189>: 2026 Oct 11 22:14:15.123 UTC: %VSHD-5-VSHD_SYSLOG_CONFIG_I: Configured",
        cisco(None, "VSHD-5-VSHD_SYSLOG_CONFIG_I", "Configured"),
    );
    // ASA: with a host, with only a time, with neither.
    let built = "Built outbound TCP connection 9";
    for (line, hostname) in [
        (
            "<189>Oct 11 2026 22:14:15.123 fw1 : %ASA-6-302013: Built outbound TCP connection 9",
            Some("fw1"),
        ),
        ("<189>Oct 11 2026 22:14:15.123: %ASA-6-302013: Built outbound TCP connection 9", None),
    ] {
        check(Format::Rfc3164, line, cisco(hostname, "ASA-6-302013", built));
    }
    check(
        Format::Rfc3164,
        "<189>%ASA-6-302013: Built outbound TCP connection 9",
        Said { time: None, ..cisco(None, "ASA-6-302013", built) },
    );
    check(
        Format::Rfc3164,
        "<189>45: %SYS-5-RESTART: System restarted --",
        Said { time: None, ..cisco(None, "SYS-5-RESTART", "System restarted --") },
    );
    // An ambiguous zone counts as the listener's.
    let zone = Zone::fixed(3_600);
    let vienna = Arrival { zone: &zone, ..ARRIVAL };
    check_at(
        vienna,
        Format::Rfc3164,
        "<189>45: Oct 11 23:14:15.123 CET: %SYS-5-RESTART: x",
        cisco(None, "SYS-5-RESTART", "x"),
    );
}

#[test]
fn rfc3164_with_parts_missing() {
    let only = |message| Said { priority: Some(13), message, ..Said::default() };
    check(Format::Rfc3164, "<13>", only(None));
    check(Format::Rfc3164, "<13>\n", only(None));
    check(Format::Rfc3164, "<13>hello world", only(Some("hello world")));
    check(Format::Rfc3164, "<13>1 of 3 disks failed", only(Some("1 of 3 disks failed")));
    check(Format::Rfc3164, "<13>45: no time", only(Some("45: no time")));
    check(Format::Rfc3164, "<13>app: x", only(Some("x")).named("app"));
    check(Format::Rfc3164, "<13>app:", only(None).named("app"));
    check(Format::Rfc3164, "<13>Foo::Bar: x", only(Some("x")).named("Foo::Bar"));
    check(Format::Rfc3164, "<13>http://example.net/ x", only(Some("http://example.net/ x")));
    check(Format::Rfc3164, "<13>{\"a\": 1}", only(Some("{\"a\": 1}")));
    check(Format::Rfc3164, "<13>[auth] x: y", only(Some("[auth] x: y")));
    check(Format::Rfc3164, "<13>app[1 x", only(Some("app[1 x")));
    // FortiGate.
    let forti = "date=2026-10-11 time=22:14:15 devname=\"FG\" level=\"notice\"";
    let of_forti = Said { time: at(OCTOBER, 0), hostname: Some("FG"), ..only(Some(forti)) };
    check(Format::Rfc3164, &format!("<13>{forti}"), of_forti);
    // CEF, after a host.
    check(
        Format::Rfc3164,
        "<13>Oct 11 22:14:15 host CEF:0|Vendor|Product|1.0|100|x|10|src=192.0.2.1",
        Said {
            time: at(OCTOBER, 0),
            hostname: Some("host"),
            ..only(Some("CEF:0|Vendor|Product|1.0|100|x|10|src=192.0.2.1"))
        },
    );
    // syslogd without a program.
    check(
        Format::Rfc3164,
        "<13>Oct 11 22:14:15 host last message repeated 2 times",
        Said {
            time: at(OCTOBER, 0),
            hostname: Some("host"),
            ..only(Some("last message repeated 2 times"))
        },
    );
    check(Format::Rfc3164, "<13>Oct 11 22:14:15", Said { time: at(OCTOBER, 0), ..only(None) });
    check(
        Format::Rfc3164,
        "<13>Oct 11 22:14:15 hello",
        Said { time: at(OCTOBER, 0), ..only(Some("hello")) },
    );
    // Not times.
    check(Format::Rfc3164, "<13>Oct 32 22:14:15 x", only(Some("Oct 32 22:14:15 x")));
    check(Format::Rfc3164, "<13>Oct 11 22:14:15x", only(Some("Oct 11 22:14:15x")));
    check(Format::Rfc3164, "<13>oct 11 22:14:15 x", only(Some("oct 11 22:14:15 x")));
}

impl Said {
    fn named(self, app_name: &'static str) -> Said {
        Said { app_name: Some(app_name), ..self }
    }
}

#[test]
fn what_is_no_syslog() {
    for line in [
        "",
        "hello",
        "<",
        "<>x",
        "<192>x",
        "<034>x",
        "<1234>x",
        "<13 x",
        "< 13>x",
        "a.b.c:1|c",
        "{\"message\": \"<13>x\"}",
        "45: x",
        "%ASA-6-302013: x",
        "1 2003-10-11T22:14:15.003Z host app - - x",
        "1 - host app - - - x",
        "2003-10-11T22:14:15.003Zulu",
    ] {
        check(Format::Unparsed, line, Said::default());
    }
    // After a priority, any bytes are the text.
    let said = parse(b"<13>\xff\xfe \0\x01", ARRIVAL);
    assert_eq!((said.format, said.message), (Format::Rfc3164, Some(&b"\xff\xfe \0\x01"[..])));
}
