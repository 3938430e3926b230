//! `weir syslog`: how lines are read, from a file and from standard input.

use crate::support::WEIR;
use serde_json::{Map, Value, json};
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use testkit::TempDir;

const CORPUS: &str = include_str!("../../../wire/tests/wire/syslog/corpus.jsonl");

/// The corpus is of this time.
const RECEIVED: [&str; 2] = ["--received", "2026-11-22T00:00:00Z"];

fn weir_syslog(args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(WEIR);
    command.arg("syslog").args(args).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    // A command that reads a file leaves what is written here.
    let _ = writer.join().unwrap();
    output
}

fn printed(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The parts that a line of the corpus names.
fn values(object: &Value) -> Map<String, Value> {
    let names = [
        ("time", "time"),
        ("hostname", "hostname"),
        ("app_name", "app_name"),
        ("proc_id", "proc_id"),
        ("msg_id", "msg_id"),
        ("structured_data", "structured_data"),
        ("message", "message"),
        ("fault", "syslog_fault"),
    ];
    let value = |(name, field): (&str, &str)| Some((name.to_owned(), object.get(field)?.clone()));
    names.into_iter().filter_map(value).collect()
}

/// A time without zeros at the end of its fraction.
fn plain(time: &str) -> String {
    let whole = time.trim_end_matches('Z');
    let short = if whole.contains('.') { whole.trim_end_matches('0') } else { whole };
    format!("{}Z", short.trim_end_matches('.'))
}

#[test]
fn the_corpus_is_read_from_a_file_with_its_right_values() {
    let line = |case: &Value| case["line"].as_str().unwrap().trim_end_matches('\n').to_owned();
    let cases: Vec<Value> =
        CORPUS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // A file has no message of several lines.
    let cases: Vec<Value> = cases.into_iter().filter(|one| !line(one).contains('\n')).collect();
    let dir = TempDir::new();
    fs::write(dir.file("lines"), cases.iter().map(|case| line(case) + "\n").collect::<String>())
        .unwrap();

    let path = dir.text("lines");
    let args = [&["--json", "--read", &path][..], &RECEIVED].concat();
    let text = printed(&weir_syslog(&args, b""));
    let objects: Vec<Value> =
        text.lines().map(|object| serde_json::from_str(object).unwrap()).collect();
    assert_eq!(objects.len(), cases.len());
    for (case, object) in cases.iter().zip(&objects) {
        let mut wanted = case["want"].as_object().unwrap().clone();
        if let Some(time) = wanted.get_mut("time") {
            *time = plain(time.as_str().unwrap()).into();
        }
        assert_eq!(values(object), wanted, "{object}");
        assert_eq!(object["payload"], line(case));
    }
}

#[test]
fn lines_from_standard_input_are_read_in_the_zone_that_is_named() {
    let lines = "<189>45: *Oct 11 22:14:15.5: %SYS-5-RESTART: a\u{1b}[31m\n\n<13>no \u{7}header";
    let read = |zone| {
        let args = [&["--time-zone", zone][..], &RECEIVED].concat();
        printed(&weir_syslog(&args, lines.as_bytes()))
    };
    let vienna = read("Europe/Vienna");
    assert_eq!(
        vienna,
        "<189>45: *Oct 11 22:14:15.5: %SYS-5-RESTART: a\\u{1b}[31m
  form             cisco
  syslog_format    rfc3164
  facility         local7
  severity         notice
  time             2026-10-11T20:14:15.5Z
  msg_id           SYS-5-RESTART
  message          a\\u{1b}[31m

<13>no \\u{7}header
  form             text
  syslog_format    rfc3164
  facility         user
  severity         notice
  message          no \\u{7}header

"
    );
    assert!(read("-05:00").contains("2026-10-12T03:14:15.5Z"));
    assert!(read("UTC").contains("2026-10-11T22:14:15.5Z"));

    let fields = printed(&weir_syslog(&["--json"], b"<13>app[3]: \xff"));
    let fields: Value = serde_json::from_str(&fields).unwrap();
    assert_eq!(fields["form"], "text");
    assert_eq!((&fields["app_name"], &fields["proc_id"]), (&json!("app"), &json!("3")));
}

#[test]
fn what_cannot_be_read_is_refused_with_a_fix() {
    let refused = |args: &[&str]| {
        let output = weir_syslog(args, b"");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = refused(&["--read", "/nowhere/lines"]);
    assert_eq!(code, Some(66), "{said}");
    assert!(said.contains("cannot read /nowhere/lines") && said.contains("Fix: "), "{said}");
    for (flag, value) in
        [("--time-zone", "CEST"), ("--time-zone", "Europe/Wien"), ("--received", "yesterday")]
    {
        let (code, said) = refused(&[flag, value]);
        assert_eq!(code, Some(64), "{said}");
        assert!(said.contains(value) && said.contains("Fix: "), "{said}");
    }
}
