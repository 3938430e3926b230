//! What is watched: rates between polls, and connections as they end.

use super::rig::{connect, sockets};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use testkit::{DEADLINE, Peer, signal, wait_for};

/// A process whose lines of standard output are read as they come.
pub(super) struct Lines {
    peer: Peer,
    lines: Receiver<String>,
}

impl Lines {
    pub(super) fn of(args: &[&str]) -> Lines {
        let mut command = sockets(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut peer = Peer::start(&mut command);
        let stdout = BufReader::new(peer.0.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            stdout.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)))
        });
        Lines { peer, lines }
    }

    pub(super) fn next(&self) -> String {
        self.lines.recv_timeout(DEADLINE).unwrap()
    }

    /// Ends it as Ctrl-C does, and returns what it said.
    fn interrupt(mut self) -> String {
        signal(&self.peer.0, "INT");
        assert_eq!(self.peer.0.wait().unwrap().code(), Some(0));
        said(&mut self.peer.0)
    }
}

fn said(child: &mut Child) -> String {
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

/// A cell such as `9.6 Mbit/s` in bytes per second.
fn rate(cell: &str) -> f64 {
    if cell == "0" {
        return 0.0;
    }
    let (number, unit) = cell.split_once(' ').unwrap();
    let factor = match unit {
        "bit/s" => 0.125,
        "kbit/s" => 125.0,
        "Mbit/s" => 125e3,
        other => panic!("{other}"),
    };
    number.parse::<f64>().unwrap() * factor
}

#[test]
fn rates_between_polls_are_what_was_transferred() {
    let connection = connect("127.0.0.1:0");
    let only = format!("src {}", connection.near_address());
    let watch = Lines::of(&[&only, "--watch", "500ms", "--columns", "age,out,in,segs_out/s"]);
    // Every poll prints its time, a title, the row, and an empty line.
    let row = || loop {
        let line = watch.next();
        if line.contains("AGE") {
            let cells = watch.next();
            break cells
                .split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>();
        }
    };
    assert_eq!(row()[1..], ["-", "-", "-"]);
    // The transfer falls between two polls or is divided among a few: their sum is what was sent.
    const BYTES: usize = 4_000_000;
    let (mut near, mut far) = (connection.near, connection.far);
    let writer = thread::spawn(move || {
        near.write_all(&vec![7; BYTES]).unwrap();
        near
    });
    far.read_exact(&mut vec![0; BYTES]).unwrap();
    let _near = writer.join().unwrap();
    let mut total = 0.0;
    for _ in 0..60 {
        total += rate(&row()[1]) * 0.5;
        if total > 0.9 * BYTES as f64 {
            break;
        }
    }
    // A cell has two digits, and a machine under load polls late.
    assert!((0.8..1.2).contains(&(total / BYTES as f64)), "{total}");
    let said = watch.interrupt();
    assert!(said.contains("1 socket"), "{said}");
}

#[test]
fn records_of_polls_follow_each_other_and_an_array_ends() {
    let connection = connect("127.0.0.1:0");
    let only = format!("src {}", connection.near_address());
    let watch = Lines::of(&[&only, "--watch", "20ms", "--json", "--columns", "poll,cookie"]);
    assert_eq!(watch.next(), "[");
    let mut text = String::from("[") + &watch.next() + &watch.next();
    signal(&watch.peer.0, "INT");
    text.extend(watch.lines.iter());
    let polls: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(polls.len() >= 2, "{text}");
    assert_eq!((&polls[0]["poll"], &polls[1]["poll"]), (&Value::from(1), &Value::from(2)));
    assert_eq!(polls[0]["cookie"], polls[1]["cookie"]);
}

#[test]
fn connections_are_shown_as_they_end() {
    // A look finds it before anything has closed, and its record is not shown.
    let _open = connect("127.0.0.1:0");
    let closed = Lines::of(&["--closed", "--format", "jsonl", "dst 127.0.0.1 or src 127.0.0.1"]);
    let mut shown = 0;
    // By both ports: other tests' connections may have the one or the other.
    let mut found: BTreeMap<[u64; 2], Value> = BTreeMap::new();
    // It says nothing when it has begun to listen: connections end until one is told of.
    wait_for(
        || "no close was told of".to_owned(),
        || {
            let connection = connect("127.0.0.1:0");
            (&connection.near).write_all(b"hello").unwrap();
            (&connection.far).read_exact(&mut [0; 5]).unwrap();
            let ends = [connection.near_address(), connection.far_address()];
            let ports = ends.map(|end| u64::from(end.port()));
            drop(connection);
            while let Ok(line) = closed.lines.recv_timeout(std::time::Duration::from_millis(200)) {
                let record: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(record["record_kind"], "close", "{record}");
                assert_eq!(record["sequence"], shown, "a gap is a record that is missing");
                shown += 1;
                // Another test's socket that never was connected has no port there.
                let its = ["src_port", "dst_port"].map(|port| record[port].as_u64().unwrap_or(0));
                found.insert(its, record);
                if its == ports {
                    break;
                }
            }
            let record = found.get(&ports)?;
            assert_eq!(record["bytes_sent"], 5, "{record}");
            Some(())
        },
    );
    let said = closed.interrupt();
    assert!(said.contains("ended"), "{said}");
}

#[test]
fn count_ends_it() {
    let mut closed = Lines::of(&["--closed", "--count", "2", "--json"]);
    wait_for(
        || "it did not end".to_owned(),
        || {
            drop(connect("127.0.0.1:0"));
            closed.peer.0.try_wait().unwrap()
        },
    );
    let text: String = closed.lines.iter().collect();
    let records: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(records.len(), 2, "{text}");
}
