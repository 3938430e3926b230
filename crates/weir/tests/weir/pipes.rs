//! `stdin:` and `stdout:`: a relay between pipes.

use crate::support::{WEIR, hop};
use ledger::{HopKind, Reason, Snapshot};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::thread;
use testkit::{Peer, TempDir, wait_for};

fn relay(args: &[&str]) -> Command {
    let mut command = Command::new(WEIR);
    command.args(["relay", "--progress", "off"]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Gives these bytes to standard input, ends it, and returns exit code, standard output and standard error.
fn through(mut command: Command, input: Vec<u8>) -> (Option<i32>, Vec<u8>, String) {
    let mut peer = Peer::start(&mut command);
    let mut stdin = peer.0.stdin.take().unwrap();
    // The relay may end before it has read all.
    let writing = thread::spawn(move || stdin.write_all(&input));
    let said = read_all(peer.0.stderr.take().unwrap());
    let out = peer.0.stdout.take().map(read_all);
    let code = end_of(&mut peer.0);
    let _ = writing.join().unwrap();
    let said = String::from_utf8(said.join().unwrap()).unwrap();
    (code, out.map(|out| out.join().unwrap()).unwrap_or_default(), said)
}

fn read_all(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

fn end_of(process: &mut Child) -> Option<i32> {
    wait_for("the end of the relay", || process.try_wait().unwrap()).code()
}

fn lines(count: usize) -> Vec<u8> {
    (0..count).flat_map(|n| format!("{n:0199}\n").into_bytes()).collect()
}

#[test]
fn every_line_of_standard_input_comes_out_once_and_in_order() {
    let input = lines(50_000);
    let (code, out, said) =
        through(relay(&["--listen", "stdin:", "--to", "stdout:"]), input.clone());
    assert_eq!(code, Some(0), "{said}");
    assert!(out == input, "{said}");
    assert!(said.ends_with("unaccounted: 0\n"), "{said}");

    // Empty lines are datagrams too, and the last line needs no line feed.
    let to = "stdout:?format=length-prefixed";
    let (code, out, said) = through(relay(&["--listen", "-", "--to", to]), b"a\n\nbc".to_vec());
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(out, b"\0\0\0\x01a\0\0\0\0\0\0\0\x02bc");

    let (code, out, _) =
        through(relay(&["--listen", "-", "--to", "stdout:?format=pcap"]), lines(3));
    assert_eq!((code, &out[..4]), (Some(0), &b"\x4d\x3c\xb2\xa1"[..]));
    // A header of 24 bytes; of each record 16, IPv6, UDP and the line.
    assert_eq!(out.len(), 24 + 3 * (16 + 40 + 8 + 199));
}

#[test]
fn a_slow_target_at_the_end_of_the_input_costs_nothing_that_has_no_name() {
    let folder = TempDir::new();
    let path = folder.file("slow");
    let slow = UnixDatagram::bind(&path).unwrap();
    slow.set_nonblocking(true).unwrap();
    let (sent, to) = (20_000, format!("unix:{}?name=slow", path.display()));
    // A ring of 256 KiB, and sixteen times as much to go through it.
    let listen = "stdin:?name=in&ring_size=256KiB";
    let mut command = relay(&["--listen", listen, "--to", &to, "--json"]);
    let mut peer = Peer::start(&mut command);
    let mut stdin = peer.0.stdin.take().unwrap();
    let writing = thread::spawn(move || stdin.write_all(&lines(sent)).unwrap());
    let out = read_all(peer.0.stdout.take().unwrap());

    // The target takes nothing before the input has ended.
    let mut stderr = BufReader::new(peer.0.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("stopping: ") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let rest = read_all(stderr);
    let mut received = 0;
    let mut take = || {
        while slow.recv(&mut [0; 256]).is_ok() {
            received += 1;
        }
    };
    let code = wait_for("the end of the relay", || {
        take();
        peer.0.try_wait().unwrap()
    });
    take();

    writing.join().unwrap();
    said += &String::from_utf8(rest.join().unwrap()).unwrap();
    let ledger: Snapshot = serde_json::from_slice(&out.join().unwrap()).unwrap();
    assert_eq!(code.code(), Some(0), "{said}");
    assert!(said.ends_with("unaccounted: 0\n"), "{said}");
    let count = sent as u64;
    assert_eq!(hop(&ledger, HopKind::Receive, "").received.count, count, "{said}");
    let target = hop(&ledger, HopKind::Target, "slow");
    let lost = target.dropped_for(Reason::QueueFull).count;
    let delivered = hop(&ledger, HopKind::Egress, "slow").delivered.count;
    assert_eq!(target.received.count, count, "{said}");
    assert_eq!((delivered + lost, delivered), (count, received), "{said}");
    assert!(lost > 0, "{said}");
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_relay() {
    let mut command = relay(&["--listen", "stdin:", "--to", "stdout:"]);
    let mut peer = Peer::start(&mut command);
    let mut stdin = peer.0.stdin.take().unwrap();
    let said = read_all(peer.0.stderr.take().unwrap());
    stdin.write_all(b"first\nsecond\n").unwrap();
    let mut line = String::new();
    BufReader::new(peer.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");

    // The reader is gone now; the input goes on.
    assert_eq!(end_of(&mut peer.0), Some(0));
    drop(stdin);
    let said = String::from_utf8(said.join().unwrap()).unwrap();
    assert!(said.contains("standard input was not read to its end"), "{said}");
    assert!(!said.contains("WARN target"), "{said}");
    assert!(said.ends_with("unaccounted: 0\n"), "{said}");
}

#[test]
fn a_full_disk_behind_standard_output_ends_the_relay_and_has_a_name() {
    let mut command = relay(&["--listen", "stdin:", "--to", "stdout:?name=out"]);
    command.stdout(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let (code, _, said) = through(command, lines(1_000));
    assert_eq!(code, Some(74), "{said}");
    assert!(said.contains("write_error"), "{said}");
    assert!(said.ends_with("unaccounted: 0\n"), "{said}");
}

#[test]
fn a_line_that_no_datagram_holds_is_counted_as_truncated() {
    let input = [b"a\n".to_vec(), vec![b'x'; 300_000], b"\nb\n".to_vec()].concat();
    let (code, out, said) = through(relay(&["--listen", "stdin:", "--to", "stdout:"]), input);
    assert_eq!((code, &*out), (Some(0), &b"a\nb\n"[..]), "{said}");
    assert!(said.contains("truncated"), "{said}");
}

#[test]
fn two_writers_of_standard_output_are_refused() {
    let check = |args: &[&str], part: &str| {
        let (code, _, said) = through(relay(args), Vec::new());
        assert_eq!(code, Some(64), "{said}");
        assert!(said.contains(part), "{said}");
    };
    let (stdin, stdout) = (["--listen", "stdin:"], ["--to", "stdout:"]);
    check(&[stdin, stdout, ["--json", "--fail-on-loss"]].concat(), "where --json writes");
    let other = ["--to", "stdout:?name=other"];
    check(&[stdin, stdout, other].concat(), "stdout: is written by target stdout:");
    let rotated = ["--to", "stdout:?rotate_size=1MiB"];
    check(&[stdin, rotated].concat(), "standard output is not rotated");
    check(&[stdin, stdin, stdout].concat(), "stdin: is listened on");
    check(&[["--listen", "stdin:?receive_buffer=1MiB"], stdout].concat(), "lines wait where");
}
