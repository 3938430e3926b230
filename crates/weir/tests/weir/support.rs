//! The real binary as a process: started, watched through its ledger, stopped, and judged by its last ledger; the generator
//! and the verifier that stand around it.

#![allow(dead_code, reason = "each test executable compiles this file and uses a part of it")]

use ledger::{HopKind, HopSnapshot, Reason, Snapshot};
use serde_json::Value;
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command};
use testkit::{Netns, Process, free_port, get, wait_for};

/// The binary under test.
pub(crate) const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// Both schedules, by their names on the command line.
pub(crate) const SCHEDULES: [&str; 2] = ["inline", "threaded"];

/// Where a process runs.
#[derive(Clone)]
pub(crate) enum Place {
    /// Where the test runs.
    Here,
    /// In the network namespace of this name.
    In(String),
}

impl Place {
    /// The binary under test, there; arguments may follow.
    pub(crate) fn weir(&self) -> Command {
        crate::before_start();
        match self {
            Place::Here => Command::new(WEIR),
            Place::In(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name, WEIR]);
                command
            }
        }
    }
}

/// A network namespace of a test's own as a [`Place`].
pub(crate) struct Namespace {
    netns: Netns,
    place: Place,
}

impl Namespace {
    pub(crate) fn new() -> Namespace {
        let netns = Netns::new();
        Namespace { place: Place::In(netns.name.clone()), netns }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Joins the two by a wire: `out` here with 10.99.0.1, `far` there with 10.99.0.2.
    pub(crate) fn connect(&self, other: &Namespace) {
        self.netns.connect("out", &other.netns, "far");
        self.ip("address add 10.99.0.1/24 dev out");
        other.ip("address add 10.99.0.2/24 dev far");
    }
}

impl Deref for Namespace {
    type Target = Netns;

    fn deref(&self) -> &Netns {
        &self.netns
    }
}

/// A loopback address that nobody had a moment ago.
pub(crate) fn free_udp_address() -> SocketAddr {
    ([127, 0, 0, 1], free_port()).into()
}

/// What a generator says that it sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// Runs `weir gen` with these arguments.
pub(crate) fn generate(args: &[&str]) -> Sent {
    generate_by(Command::new(WEIR), args)
}

/// Runs `weir gen` by a command that starts `weir`, for instance in a namespace; nothing may fail to be sent.
pub(crate) fn generate_by(weir: Command, args: &[&str]) -> Sent {
    let (sent, failed) = Generator::by(weir, args).report();
    assert_eq!(failed, 0, "{sent:?}");
    sent
}

/// A generator at work.
pub(crate) struct Generator(pub(crate) Process);

impl Generator {
    pub(crate) fn start(place: &Place, to: &str, more: &[&str]) -> Generator {
        Generator::by(place.weir(), &[&["--to", to], more].concat())
    }

    fn by(mut weir: Command, args: &[&str]) -> Generator {
        weir.arg("gen").args(args).args(["--json", "--progress", "off"]);
        Generator(Process::start(weir))
    }

    pub(crate) fn finish(self) -> Sent {
        self.report().0
    }

    /// What it sent, and how many datagrams it could not send.
    fn report(mut self) -> (Sent, u64) {
        let (status, text) = self.0.finish();
        assert!(status.success(), "{text}{}", self.0.said());
        let report: Value = serde_json::from_str(&text).unwrap();
        let count = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {text}"));
        let sent = Sent {
            datagrams: count("sent_datagrams"),
            bytes: count("sent_bytes"),
            heartbeats: count("heartbeats"),
        };
        (sent, count("failed_datagrams"))
    }
}

/// A verifier that has bound its sockets.
pub(crate) struct Verifier {
    pub(crate) process: Process,
    pub(crate) listens: Vec<String>,
}

impl Verifier {
    pub(crate) fn start(place: &Place, listens: &[&str], more: &[&str]) -> Verifier {
        let mut weir = place.weir();
        weir.args(["verify", "--json", "--progress", "off"]);
        for listen in listens {
            weir.args(["--listen", listen]);
        }
        weir.args(more);

        let mut process = Process::start(weir);
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

/// A running relay or daemon.
pub(crate) struct Weir {
    pub(crate) process: Process,
    place: Place,
    /// How much of standard error [`Weir::wait_for_line`] has returned.
    heard_bytes: Cell<usize>,
    /// The first two listeners, as the banner names them: `127.0.0.1:5514` or `unix:/path`.
    pub(crate) addresses: Vec<String>,
    /// Where the ledger is.
    pub(crate) admin: SocketAddr,
}

/// How it ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// The last ledger.
    pub(crate) ledger: Snapshot,
    /// Standard error.
    pub(crate) said: String,
}

impl Weir {
    /// `weir relay` with these arguments, and an admin server.
    pub(crate) fn relay<S: AsRef<OsStr>>(args: &[S]) -> Weir {
        Weir::relay_at(&Place::Here, args)
    }

    /// `weir relay` with one listener on a free port of `127.0.0.1`, which is called `in`.
    pub(crate) fn tee(place: &Place, targets: &[String], more: &[&str]) -> Weir {
        let mut args = vec!["--listen", "127.0.0.1:0?name=in"];
        for target in targets {
            args.extend(["--to", target]);
        }
        args.extend(more);
        Weir::relay_at(place, &args)
    }

    /// As [`relay`](Self::relay), in a namespace.
    pub(crate) fn relay_at<S: AsRef<OsStr>>(place: &Place, args: &[S]) -> Weir {
        let mut command = place.weir();
        command.args(["relay", "--progress", "off"]).args(args);
        Weir::start_at(place, command)
    }

    /// `weir run` with this configuration, and an admin server.
    pub(crate) fn run(config: &Path) -> Weir {
        let mut command = Place::Here.weir();
        command.args(["run", "-c"]).arg(config);
        Weir::start(command)
    }

    /// A command that ends as `weir relay` or `weir run`; waits for its banner.
    pub(crate) fn start(command: Command) -> Weir {
        Weir::start_at(&Place::Here, command)
    }

    /// As [`start`](Self::start), by a command that starts it in a namespace.
    pub(crate) fn run_at(place: &Place, command: Command) -> Weir {
        Weir::start_at(place, command)
    }

    fn start_at(place: &Place, mut command: Command) -> Weir {
        crate::before_start();
        command.args(["--json", "--admin", "127.0.0.1:0"]);
        let mut process = Process::start(command);
        let first_word = |text: &str| {
            let word = text.split([' ', ';']).next().unwrap_or("");
            word.trim_end_matches(':').trim_start_matches("udp://").to_owned()
        };

        // The banner's last line says where the ledger is.
        let admin = process.hear("ledger and metrics on http://").remove(0);
        let admin = first_word(&admin).parse().unwrap();
        let said = process.said();
        let listening = said.lines().filter_map(|line| line.split_once("  listening on "));
        let addresses = listening.map(|(_, rest)| first_word(rest)).collect();
        let banner_bytes = said.find("  schedule ").unwrap();
        let end = said[banner_bytes..].find('\n').unwrap();
        let heard_bytes = Cell::new(banner_bytes + end + 1);
        Weir { process, place: place.clone(), heard_bytes, addresses, admin }
    }

    /// The address of the first listener, a UDP one.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listen().parse().unwrap()
    }

    /// The first listener.
    pub(crate) fn listen(&self) -> &str {
        &self.addresses[0]
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn process(&self) -> &Child {
        self.process.child()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// Memory that it has written to, without the pages of its program, which come as they are used.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.status_kib("RssAnon:") * 1_024
    }

    fn status_kib(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// A page of the admin server.
    pub(crate) fn page(&self, path: &str, accept: &str) -> String {
        get(self.admin, path, accept)
    }

    /// The ledger as it is now.
    pub(crate) fn ledger(&self) -> Snapshot {
        let text = match &self.place {
            Place::Here => self.page("/ledger", "application/json"),
            place @ Place::In(_) => {
                let mut command = place.weir();
                let output = command.args(["ledger", "--json", "--admin", &self.url()]).output();
                String::from_utf8(output.unwrap().stdout).unwrap()
            }
        };
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Waits until the ledger is as wanted, and returns it.
    pub(crate) fn wait_for(&self, is_wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let describe = || format!("the ledger: {}", ledger::waterfall(&self.ledger()));
        wait_for(describe, || Some(self.ledger()).filter(&is_wanted))
    }

    /// Waits until this many datagrams have arrived at all sockets and every target has dealt with them.
    pub(crate) fn wait_for_rest(&self, datagrams: u64) -> Snapshot {
        self.wait_for(|ledger| {
            let sockets = ledger.hops.iter().filter(|hop| hop.hop == HopKind::Socket);
            let came: u64 = sockets.map(|hop| hop.received.count).sum();
            came >= datagrams && ledger.hops.iter().all(|hop| hop.in_flight.count == 0)
        })
    }

    /// Waits until this many datagrams have arrived at all sockets and every target has dealt with them; sinks may still have them.
    pub(crate) fn wait_for_rest_but_sinks(&self, datagrams: u64) {
        self.wait_for(|ledger| {
            let is_sink = |hop: &&HopSnapshot| hop.hop == HopKind::Sink;
            let came = ledger.received_at(HopKind::Socket).count >= datagrams;
            came && ledger
                .hops
                .iter()
                .filter(|hop| !is_sink(hop))
                .all(|hop| hop.in_flight.is_zero())
        });
    }

    /// Waits until standard error has a line with this in it behind what earlier calls returned; returns what it said from
    /// there to the end of that line.
    pub(crate) fn wait_for_line(&self, wanted: &str) -> String {
        wait_for(|| format!("{wanted}: {}", self.unread()), || self.line(wanted))
    }

    /// The same without waiting.
    pub(crate) fn line(&self, wanted: &str) -> Option<String> {
        let mut text = self.unread();
        let at = text.find(wanted)?;
        let end = at + text[at..].find('\n')? + 1;

        text.truncate(end);
        self.heard_bytes.set(self.heard_bytes.get() + end);
        Some(text)
    }

    fn unread(&self) -> String {
        self.process.said()[self.heard_bytes.get()..].to_owned()
    }

    /// Asks it to stop and waits for its end. Whatever the ledger says then must balance.
    pub(crate) fn stop(self) -> Ended {
        self.process.signal("TERM");
        self.wait_to_end()
    }

    /// Ends it as a crash does: it says nothing more.
    pub(crate) fn kill(mut self) {
        self.process.signal("KILL");
        self.process.finish();
    }

    /// Asks it to stop with nobody to read its standard output, and waits for its end.
    pub(crate) fn stop_unread(mut self) -> Option<i32> {
        self.process.close_stdout();
        self.process.signal("TERM");
        self.process.finish().0.code()
    }

    /// Ends a drain that has begun by a second signal, which counts half a second after the first; sent until it does.
    pub(crate) fn hurry(self, name: &str) -> Ended {
        wait_for("the second signal", || {
            self.process.signal(name);
            self.process.said().contains("a second signal").then_some(())
        });
        self.wait_to_end()
    }

    /// Waits for its end, after a signal. Nothing may be unaccounted for, and nothing in flight.
    pub(crate) fn wait_to_end(mut self) -> Ended {
        let (status, text) = self.process.finish();
        let said = self.process.said();
        let ledger: Snapshot =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {said}"));
        assert!(said.ends_with("unaccounted: 0\n"), "{said}");
        assert!(ledger.is_balanced() && ledger.unaccounted() == 0, "{said}");
        for hop in &ledger.hops {
            assert!(hop.in_flight.is_zero(), "{hop:?}");
            assert_eq!(hop.received, hop.left(), "{hop:?}");
        }
        Ended { code: status.code(), ledger, said }
    }
}

impl Ended {
    pub(crate) fn hop(&self, kind: HopKind, target: Option<&str>) -> &HopSnapshot {
        let found = self.ledger.hop(kind, "in", target);
        found.unwrap_or_else(|| panic!("no {kind:?} of {target:?}: {}", self.said))
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

/// The hop of this kind whose target is `target`, or that has none if that is empty.
pub(crate) fn hop<'a>(ledger: &'a Snapshot, kind: HopKind, target: &str) -> &'a HopSnapshot {
    let is_it =
        |hop: &&HopSnapshot| hop.hop == kind && hop.target.as_deref().unwrap_or("") == target;
    let found = ledger.hops.iter().find(is_it);
    found.unwrap_or_else(|| panic!("no {kind:?} of {target:?}: {}", ledger::waterfall(ledger)))
}
