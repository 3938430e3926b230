//! What a test asks before it needs root, and network namespaces of its own.

#![allow(dead_code, reason = "each test binary compiles this file and uses a part of it")]

use ledger::{HopKind, HopSnapshot};
use record::{CloseReason, FieldSet, PollTotals, RecordKind, SocketRecord};
use sockets::attribution::Host;
use sockets::{Closes, Collector, Direct, MakeAccess, Options, Output, Problem, Scope, Undecided};
use std::env;
use std::io::Write;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use sys::namespace::{Home, Identity, OpenNamespace};
use wire::inet_diag::States;

/// Whether this process may create network namespaces. Prints `skipped:` otherwise, and fails where they are meant to be there.
pub(crate) fn need_root_netns() -> bool {
    const NEEDED: u64 = 1 << sys::process::CAP_SYS_ADMIN | 1 << sys::process::CAP_NET_ADMIN;
    let effective = sys::process::effective_capabilities().unwrap_or(0);
    let has_ip = Command::new("ip").arg("-V").output().is_ok_and(|output| output.status.success());
    if effective & NEEDED == NEEDED && has_ip {
        return true;
    }
    skip("network namespaces need root and the program ip", &["REQUIRE_NETNS", "REQUIRE_ALL"])
}

/// Says why a test does nothing. Fails where one of the variables says that everything is meant to be there.
pub(crate) fn skip(reason: &str, required_by: &[&str]) -> bool {
    let is_required = required_by.iter().any(|name| env::var(name).is_ok_and(|value| value == "1"));
    assert!(!is_required, "cannot skip: {reason}");
    // Not `eprintln!`, which the test harness would capture; at once, since tests write at the same time.
    let _ = std::io::stderr().write_all(format!("skipped: {reason}\n").as_bytes());
    false
}

/// A namespace mounted by `ip netns`. It goes with its owner.
pub(crate) struct Netns {
    pub(crate) name: String,
}

impl Netns {
    pub(crate) fn new() -> Netns {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let netns = Netns { name: format!("weir-cl-{}-{number}", std::process::id()) };
        run(Command::new("ip").args(["netns", "add", &netns.name]));
        netns.ip("link set lo up");
        netns
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    pub(crate) fn id(&self) -> Identity {
        OpenNamespace::open(&self.path()).unwrap().id()
    }

    pub(crate) fn open(&self) -> OpenNamespace {
        OpenNamespace::open(&self.path()).unwrap()
    }

    /// `ip` inside it, with arguments as one would type them.
    pub(crate) fn ip(&self, args: &str) {
        run(Command::new("ip").args(["-n", &self.name]).args(args.split_whitespace()));
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // Busy for a moment while another test's process copies the mounts.
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.path().exists() && Instant::now() < deadline {
            let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
        }
    }
}

pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
}

/// Waits for a condition, and says whether it came within the time.
pub(crate) fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
}

impl Netns {
    /// Runs something inside. Threads that it starts stay there.
    pub(crate) fn inside<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        Home::remember().unwrap().enter(&self.open(), f).unwrap()
    }

    /// A pair of interfaces, `ours` here and `theirs` there, both up.
    pub(crate) fn connect(&self, ours: &str, other: &Netns, theirs: &str) {
        self.ip(&format!("link add name {ours} type veth peer name {theirs} netns {}", other.name));
        self.ip(&format!("link set dev {ours} up"));
        other.ip(&format!("link set dev {theirs} up"));
    }
}

/// Says something worth knowing, past the capture of the test harness.
pub(crate) fn tell(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// What a test keeps of a record.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) kind: RecordKind,
    pub(crate) cookie: u64,
    pub(crate) src_port: u16,
    /// 0 where the record has none.
    pub(crate) dst_port: u16,
    pub(crate) dst_address: Option<IpAddr>,
    pub(crate) netns_name: Option<String>,
    pub(crate) reason: Option<CloseReason>,
    pub(crate) polls_seen: u32,
}

/// What a collector has told so far.
#[derive(Default, Debug)]
pub(crate) struct Told {
    pub(crate) rows: Vec<Row>,
    pub(crate) polls: u64,
    /// Sums of the totals records.
    pub(crate) observed: u64,
    pub(crate) emitted: u64,
    pub(crate) filtered: u64,
    pub(crate) undecided: u64,
    pub(crate) never_connected: u64,
    pub(crate) lost: u64,
    pub(crate) unobserved: u64,
    pub(crate) unheard: u64,
    pub(crate) namespaces_new: u64,
    /// Of the last totals.
    pub(crate) namespaces_left_out: u64,
    pub(crate) namespaces_visited: u64,
    pub(crate) problems: Vec<String>,
}

impl Told {
    pub(crate) fn closes(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.kind == RecordKind::CLOSE)
    }
}

/// Keeps what it is told, and takes its time.
#[derive(Clone, Default)]
pub(crate) struct Keep {
    pub(crate) told: Arc<Mutex<Told>>,
    /// How long each record takes.
    pub(crate) work: Duration,
    pub(crate) rows: Rows,
}

/// Which rows are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Rows {
    #[default]
    All,
    Closes,
    None,
}

impl Output for Keep {
    fn record(&mut self, record: &SocketRecord<'_>) {
        let kind = record.record_kind.unwrap();
        let until = Instant::now() + self.work;
        while Instant::now() < until {}
        if self.rows == Rows::None || self.rows == Rows::Closes && kind == RecordKind::POLL {
            return;
        }
        self.told.lock().unwrap().rows.push(Row {
            kind,
            cookie: record.cookie.unwrap(),
            src_port: record.src_port.unwrap_or(0),
            dst_port: record.dst_port.unwrap_or(0),
            dst_address: record.dst_address,
            netns_name: record.netns_name.map(str::to_owned),
            reason: record.close_reason,
            polls_seen: record.polls_seen.unwrap_or(0),
        });
    }

    fn end_of_poll(&mut self, totals: &PollTotals<'_>) {
        let mut told = self.told.lock().unwrap();
        told.polls += 1;
        told.observed += totals.closes_observed.unwrap();
        told.emitted += totals.closes_emitted.unwrap();
        told.filtered += totals.closes_filtered.unwrap();
        told.undecided += totals.closes_undecided.unwrap();
        told.never_connected += totals.closes_never_connected.unwrap();
        told.lost += totals.closes_dropped_event_buffer.unwrap();
        told.unobserved += totals.closes_unobserved.unwrap();
        told.unheard += totals.connections_unheard.unwrap();
        told.namespaces_new += totals.namespaces_new.unwrap();
        told.namespaces_left_out = totals.namespaces_left_out.unwrap();
        told.namespaces_visited = totals.namespaces_visited.unwrap();
    }

    fn problem(&mut self, problem: &Problem) {
        self.told.lock().unwrap().problems.push(problem.to_string());
    }
}

/// A collector, and what it has told.
pub(crate) struct Run {
    pub(crate) collector: Collector,
    pub(crate) keep: Keep,
}

impl Run {
    /// Starts one inside a namespace, and waits for its first poll.
    pub(crate) fn start(netns: &Netns, options: Options, keep: Keep) -> Run {
        Run::start_with(netns, options, keep, Box::new(|| Box::new(Direct::new())))
    }

    /// As [`Self::start`], through another access.
    pub(crate) fn start_with(
        netns: &Netns,
        options: Options,
        keep: Keep,
        access: MakeAccess,
    ) -> Run {
        let host = Host::read(Default::default());
        let output = Box::new(keep.clone());
        let collector =
            netns.inside(|| Collector::start_with(options, host, output, access).unwrap());
        let run = Run { collector, keep };
        run.wait("first poll", |told| told.polls >= 1);
        run
    }

    #[track_caller]
    pub(crate) fn wait(&self, what: &str, mut condition: impl FnMut(&Told) -> bool) {
        let mut is_so = || condition(&self.keep.told.lock().unwrap());
        assert!(within(Duration::from_secs(20), &mut is_so), "no {what}");
    }

    /// Waits for a poll that begins after this call.
    pub(crate) fn poll(&self) {
        let polls = self.keep.told.lock().unwrap().polls;
        self.wait("poll", |told| told.polls >= polls + 2);
    }

    pub(crate) fn close_hop(&self) -> HopSnapshot {
        let mut hops = Vec::new();
        self.collector.meter().read(&mut hops);
        hops.into_iter().find(|hop| hop.hop == HopKind::Close).unwrap()
    }

    /// Close events that were read, and those that were lost.
    pub(crate) fn closed(&self) -> u64 {
        self.close_hop().received.count
    }

    pub(crate) fn stop(self) -> Told {
        let Run { collector, keep } = self;
        drop(collector.stop().unwrap());
        Arc::try_unwrap(keep.told).unwrap().into_inner().unwrap()
    }
}

/// Every socket in every poll, with closes.
pub(crate) fn options(interval: Duration, scope: Scope) -> Options {
    Options {
        name: "sockets".to_owned(),
        interval,
        jitter: Duration::ZERO,
        scope,
        states: States::ALL,
        filter: None,
        listen_every: NonZeroU32::MIN,
        keyframe_every: None,
        sample: NonZeroU32::MIN,
        closes: Closes::On,
        closes_undecided: Undecided::Drop,
        event_buffer_bytes: 16 << 20,
        namespaces_max: 4_096,
        table_entries_max: 100_000,
        processes: false,
        fields: FieldSet::ALL,
    }
}

/// So rarely that a test never sees the second poll.
pub(crate) const RARELY: Duration = Duration::from_secs(3_600);
