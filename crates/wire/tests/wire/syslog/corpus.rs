//! Lines of devices and programs as their documents show them, with made-up data, each with its right values: a part that
//! is not in `want` has to be absent.

use super::{ARRIVAL, Fault, Format};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use wire::syslog::{FORMS, Syslog, parse};

const CORPUS: &str = include_str!("corpus.jsonl");

/// What was read, under the names of the corpus.
fn values(syslog: &Syslog<'_>) -> Map<String, Value> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fault = syslog.fault.map(|fault| match fault {
        Fault::Time => "time",
        Fault::TimeZone => "time_zone",
        Fault::Hostname => "hostname",
        Fault::AppName => "app_name",
        Fault::ProcId => "proc_id",
        Fault::MsgId => "msg_id",
        Fault::StructuredData => "structured_data",
        Fault::Message => "message",
    });
    [
        ("time", syslog.time_unix_ns.map(rfc3339)),
        ("hostname", syslog.hostname.map(str::to_owned)),
        ("app_name", syslog.app_name.map(str::to_owned)),
        ("proc_id", syslog.proc_id.map(str::to_owned)),
        ("msg_id", syslog.msg_id.map(str::to_owned)),
        ("structured_data", syslog.structured_data.map(text)),
        ("message", syslog.message.map(text)),
        ("fault", fault.map(str::to_owned)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
    .collect()
}

/// The days of October to December 2026 are all that these tests have.
fn rfc3339(unix_ns: u64) -> String {
    const OCTOBER: u64 = 1_790_812_800;
    let (seconds, nanoseconds) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000);
    let days = (seconds - OCTOBER) / 86_400;
    let (month, day) = match days {
        0..31 => (10, days),
        31..61 => (11, days - 31),
        _ => (12, days - 61),
    };
    let (hour, minute) = (seconds / 3_600 % 24, seconds / 60 % 60);
    let fraction = match nanoseconds {
        0 => String::new(),
        _ => format!(".{nanoseconds:09}").trim_end_matches('0').to_owned(),
    };
    format!("2026-{month}-{:02}T{hour:02}:{minute:02}:{:02}{fraction}Z", day + 1, seconds % 60)
}

/// The time without zeros at the end of its fraction.
fn plain(time: &str) -> String {
    match time.strip_suffix('Z').and_then(|time| time.split_once('.')) {
        Some((whole, fraction)) => match fraction.trim_end_matches('0') {
            "" => format!("{whole}Z"),
            fraction => format!("{whole}.{fraction}Z"),
        },
        None => time.to_owned(),
    }
}

#[test]
fn every_line_of_the_corpus_has_its_right_values() {
    let (mut sources, mut count) = (BTreeSet::new(), 0);
    for line in CORPUS.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let message = case["line"].as_str().unwrap();
        let mut wanted = case["want"].as_object().unwrap().clone();
        if let Some(time) = wanted.get_mut("time") {
            *time = plain(time.as_str().unwrap()).into();
        }
        assert_eq!(values(&parse(message.as_bytes(), ARRIVAL)), wanted, "{message}");
        sources.insert(case["source"].as_str().unwrap().to_owned());
        count += 1;
    }
    assert!(count >= 150 && sources.len() >= 40, "{count} lines of {} senders", sources.len());
}

#[test]
fn every_example_of_a_form_is_read_as_its_form() {
    for form in &FORMS {
        assert!(!form.examples.is_empty(), "{}", form.name);
        for example in form.examples {
            let syslog = parse(example.line.as_bytes(), ARRIVAL);
            assert_eq!(syslog.form, Some(form.form), "{}", example.line);
            assert_ne!(syslog.format, Format::Unparsed);
            let read = [
                syslog.time_unix_ns.map(rfc3339).unwrap_or_default(),
                syslog.hostname.unwrap_or_default().to_owned(),
                syslog.app_name.unwrap_or_default().to_owned(),
                syslog.msg_id.unwrap_or_default().to_owned(),
                String::from_utf8_lossy(syslog.message.unwrap_or_default()).into_owned(),
            ];
            let expected =
                [example.time, example.hostname, example.app_name, example.msg_id, example.message];
            assert_eq!(read, expected, "{}", example.line);
        }
    }
    let names: BTreeSet<_> = FORMS.iter().map(|form| form.name).collect();
    assert_eq!(names.len(), FORMS.len());
}

/// Everybody accepts these.
#[test]
fn what_stands_around_a_message_changes_nothing() {
    for line in CORPUS.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let message = case["line"].as_str().unwrap();
        let expected = values(&parse(message.as_bytes(), ARRIVAL));
        for around in [
            format!("\u{feff}{}", message.trim_start_matches('\u{feff}')),
            format!("{message}\n"),
            format!("{message}\r\n"),
            format!("{message}\0"),
        ] {
            assert_eq!(values(&parse(around.as_bytes(), ARRIVAL)), expected, "{around:?}");
        }

        // Blanks behind the priority, unless they are part of a text.
        let Some((priority, rest)) = message.split_once('>') else { continue };
        let spaced = format!("{priority}>  {rest}");
        let read = values(&parse(spaced.as_bytes(), ARRIVAL));
        if expected.keys().any(|name| name != "message") {
            assert_eq!(read, expected, "{spaced}");
        }
    }
}

/// 10,000 messages of one device with counters name no host.
#[test]
fn a_counter_is_never_a_host_or_a_program() {
    let mut hosts = BTreeSet::new();
    for n in 0..10_000_u32 {
        for line in [
            format!("<190>{n}: {}: Oct 11 22:14:15: %SEC-6-IPACCESSLOGP: x", n + 7),
            format!("<190>: {n}: *Oct 11 22:14:15.295: %SYS-5-RESTART: x"),
            format!("<189>{n}: 00:01:23: %LINK-3-UPDOWN: x"),
            format!("<189>{n}: no mnemonic"),
            format!("<189>Oct 11 22:14:15 {n}: %LINK-3-UPDOWN: x"),
            // Four digits behind a time are a year.
            format!("<189>Oct 11 22:14:15 {} some text", n + 10_000),
        ] {
            let syslog = parse(line.as_bytes(), ARRIVAL);
            assert_eq!(syslog.app_name, None, "{line}");
            hosts.extend(syslog.hostname.map(str::to_owned));
        }
    }
    assert_eq!(hosts, BTreeSet::new());
}
