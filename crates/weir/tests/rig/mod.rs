//! Real processes for the end-to-end tests: the relay, the generator, the verifier, and namespaces to put them into.
//!
//! Everything waits for a condition with a deadline, and everything that was started ends with the test, also when it
//! panics.

#![allow(dead_code, reason = "each test binary compiles this file and uses a part of it")]

pub(crate) mod netns;

use ledger::{HopKind, HopSnapshot, Reason, Snapshot};
use netns::Place;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Long enough for a machine that does ten other things.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Both schedules, by their names on the command line.
pub(crate) const SCHEDULES: [&str; 2] = ["inline", "threaded"];

/// Says something on the terminal although the test passes.
pub(crate) fn say(text: &str) {
    // Straight to the descriptor: the test harness captures `eprintln!` of tests that pass.
    writeln!(std::io::stderr(), "{text}").expect("standard error is open");
}

/// Asks until there is an answer.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        // A pause between two questions, not a wait for something: the answer decides.
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// A folder that goes with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process of ours, what it prints on standard output, and what it says on standard error.
pub(crate) struct Process {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    said: Arc<Mutex<String>>,
    listening: Option<JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(place: &Place, args: &[&str]) -> Process {
        let mut command = place.command(env!("CARGO_BIN_EXE_weir"));
        command.args(args);
        Process::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Process {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let stderr = child.stderr.take().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        Process {
            child,
            stdout: Some(thread::spawn(move || {
                let mut text = String::new();
                stdout.read_to_string(&mut text).unwrap();
                text
            })),
            said,
            listening: Some(thread::spawn(move || {
                for line in BufReader::new(stderr).lines() {
                    let line = line.unwrap_or_default();
                    let mut said = heard.lock().unwrap();
                    said.push_str(&line);
                    said.push('\n');
                }
            })),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// What the first line that contains `mark` has behind it, once it was said.
    pub(crate) fn hear(&mut self, mark: &str) -> Vec<String> {
        wait_for(&format!("hearing {mark:?}"), || {
            let said = self.said();
            let found: Vec<_> = said
                .lines()
                .filter_map(|line| line.split_once(mark))
                .map(|(_, rest)| rest.to_owned())
                .collect();
            assert!(
                !found.is_empty() || self.child.try_wait().unwrap().is_none(),
                "ended without saying {mark:?}: {}",
                self.said()
            );
            (!found.is_empty()).then_some(found)
        })
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(status.success(), "kill -s {name} {pid}");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end; returns how it ended and what it printed.
    pub(crate) fn finish(&mut self) -> (ExitStatus, String) {
        let status = wait_for("the end of a process", || self.child.try_wait().unwrap());
        self.listening.take().unwrap().join().unwrap();
        (status, self.stdout.take().unwrap().join().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            say(&self.said());
        }
    }
}

/// A relay that is ready.
pub(crate) struct Relay {
    pub(crate) process: Process,
    /// Where it listens, in the order of its configuration.
    pub(crate) listens: Vec<String>,
    pub(crate) admin: String,
    place: Place,
}

/// What a relay said at its end.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) ledger: Snapshot,
    pub(crate) said: String,
}

impl Relay {
    /// `weir relay` with one listener on a free port of `127.0.0.1`, which is called `in`.
    pub(crate) fn tee(place: &Place, targets: &[String], more: &[&str]) -> Relay {
        let mut args = vec!["--listen", "127.0.0.1:0?name=in"];
        for target in targets {
            args.extend(["--to", target]);
        }
        args.extend(more);
        Relay::start(place, &args)
    }

    /// `weir relay` with these arguments.
    pub(crate) fn start(place: &Place, args: &[&str]) -> Relay {
        let common = ["relay", "--admin", "127.0.0.1:0", "--json", "--progress", "off"];
        Relay::ready(place, Process::start(place, &[&common, args].concat()))
    }

    /// `weir run` with this file.
    pub(crate) fn run(place: &Place, config: &Path) -> Relay {
        let args = ["run", "--json", "-c", config.to_str().unwrap()];
        Relay::ready(place, Process::start(place, &args))
    }

    fn ready(place: &Place, mut process: Process) -> Relay {
        let admin = process.hear("ledger and metrics on ").remove(0);
        let listens = process.hear("listening on ");
        let first_word = |line: &String| line.split([' ', ';']).next().unwrap().to_owned();
        let listens = listens.iter().map(first_word);
        let address =
            |word: String| word.trim_end_matches(':').trim_start_matches("udp://").to_owned();
        let listens = listens.map(address).collect();
        Relay { process, listens, admin, place: place.clone() }
    }

    pub(crate) fn listen(&self) -> &str {
        &self.listens[0]
    }

    /// The ledger, now.
    pub(crate) fn ledger(&self) -> Snapshot {
        let body = match &self.place {
            Place::Here => http_get(self.admin.trim_start_matches("http://"), "/ledger"),
            place @ Place::In(_) => {
                let mut command = place.command(env!("CARGO_BIN_EXE_weir"));
                let output = command.args(["ledger", "--json", "--url", &self.admin]).output();
                String::from_utf8(output.unwrap().stdout).unwrap()
            }
        };
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    /// The most memory that was resident so far, in bytes.
    pub(crate) fn resident_bytes_max(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    /// Memory that it has written to, without the pages of its program, which come as they are used.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.status_bytes("RssAnon:")
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid()));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
    }

    /// Stops it with SIGTERM; the law must hold to the end.
    pub(crate) fn stop(mut self) -> Ended {
        self.process.signal("TERM");
        let (status, text) = self.process.finish();
        let said = self.process.said();
        let ledger: Snapshot =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}\n{said}"));
        assert!(ledger.is_balanced(), "{said}");
        assert_eq!(ledger.unaccounted(), 0, "{said}");
        for hop in &ledger.hops {
            assert!(hop.in_flight.is_zero(), "{hop:?}");
            let left = hop.delivered + hop.dropped_total();
            assert_eq!(hop.received, left, "{hop:?}");
        }
        assert!(said.contains("\nunaccounted: 0\n"), "{said}");
        let code = status.code().unwrap_or_else(|| panic!("{status}: {said}"));
        Ended { code, ledger, said }
    }
}

impl Ended {
    pub(crate) fn hop(&self, kind: HopKind, target: Option<&str>) -> &HopSnapshot {
        hop(&self.ledger, kind, "in", target)
    }

    /// What the ledger says about a target: how much it was offered, how much was delivered, and what became of the rest.
    pub(crate) fn account(&self, target: &str) -> Account {
        let own = self.hop(HopKind::Target, Some(target));
        let egress = self.hop(HopKind::Egress, Some(target));
        let mut dropped: Vec<(Reason, u64)> = Vec::new();
        for drop in own.dropped.iter().chain(&egress.dropped) {
            match dropped.iter_mut().find(|(reason, _)| *reason == drop.reason) {
                Some((_, count)) => *count += drop.amount.count,
                None => dropped.push((drop.reason, drop.amount.count)),
            }
        }
        let account =
            Account { offered: own.received.count, delivered: egress.delivered.count, dropped };
        assert_eq!(account.offered, account.delivered + account.lost(), "{account:?}");
        account
    }
}

/// A target's share of the ledger, in datagrams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Account {
    pub(crate) offered: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped: Vec<(Reason, u64)>,
}

impl Account {
    pub(crate) fn lost(&self) -> u64 {
        self.dropped.iter().map(|(_, count)| count).sum()
    }

    pub(crate) fn lost_for(&self, reason: Reason) -> u64 {
        self.dropped.iter().filter(|(own, _)| *own == reason).map(|(_, count)| count).sum()
    }
}

pub(crate) fn hop<'a>(
    ledger: &'a Snapshot,
    kind: HopKind,
    listener: &str,
    target: Option<&str>,
) -> &'a HopSnapshot {
    ledger.hop(kind, listener, target).unwrap_or_else(|| panic!("{target:?}: {ledger:#?}"))
}

/// The body of a `200 OK`.
pub(crate) fn http_get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

/// A verifier that has bound its sockets.
pub(crate) struct Verifier {
    pub(crate) process: Process,
    pub(crate) listens: Vec<String>,
}

impl Verifier {
    pub(crate) fn start(place: &Place, listens: &[&str], more: &[&str]) -> Verifier {
        let mut args = vec!["verify", "--json", "--progress", "off"];
        for listen in listens {
            args.extend(["--listen", listen]);
        }
        args.extend(more);
        let mut process = Process::start(place, &args);
        let lines = wait_for("all listeners", || {
            Some(process.hear("listening on ")).filter(|lines| lines.len() == listens.len())
        });
        let listens =
            lines.iter().map(|line| line.split(", ").next().unwrap().to_owned()).collect();
        Verifier { process, listens }
    }

    pub(crate) fn finish(mut self) -> (i32, Value) {
        let (status, text) = self.process.finish();
        let report = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{error}: {text}{}", self.process.said()));
        (status.code().unwrap(), report)
    }

    /// Ends it at its end; every listener must have got all that the generator sent, in order and undamaged.
    pub(crate) fn expect_all(self, sent: &Sent) {
        let (code, report) = self.finish();
        for listener in report["listeners"].as_array().unwrap() {
            let counts = &listener["counts"];
            assert_eq!(counts["received"], sent.datagrams, "{listener:#}");
            assert_eq!(counts["heartbeats"], sent.heartbeats, "{counts:#}");
            assert_eq!(counts["bytes"], sent.bytes, "{counts:#}");
            for fault in ["duplicate", "reordered", "corrupt", "truncated", "foreign"] {
                assert_eq!(counts[fault], 0, "{fault}: {counts:#}");
            }
            assert_eq!((&listener["missing"], &listener["kernel_dropped"]), (&0.into(), &0.into()));
        }
        assert_eq!(code, 0, "{report:#}");
    }
}

/// What a generator says that it has sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
    pub(crate) heartbeats: u64,
}

impl Sent {
    /// Datagrams of both kinds: a relay does not know them apart.
    pub(crate) fn all(&self) -> u64 {
        self.datagrams + self.heartbeats
    }
}

/// A generator at work.
pub(crate) struct Generator(pub(crate) Process);

impl Generator {
    pub(crate) fn start(place: &Place, to: &str, more: &[&str]) -> Generator {
        let common = ["gen", "--json", "--progress", "off", "--to", to];
        Generator(Process::start(place, &[&common, more].concat()))
    }

    pub(crate) fn finish(mut self) -> Sent {
        let (status, text) = self.0.finish();
        assert!(status.success(), "{text}{}", self.0.said());
        let report: Value = serde_json::from_str(&text).unwrap();
        let count = |name: &str| report[name].as_u64().unwrap();
        Sent {
            datagrams: count("sent_datagrams"),
            bytes: count("sent_bytes"),
            heartbeats: count("heartbeats"),
        }
    }
}

/// A loopback address that nobody has, below the range from which the kernel gives ports to others.
pub(crate) fn free_udp_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    wait_for("a free port", || {
        let number = std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
        let address = SocketAddr::from(([127, 0, 0, 1], 10_000 + (number % 20_000) as u16));
        UdpSocket::bind(address).is_ok().then_some(address)
    })
}
