//! A test's collector, and what it has reported.

#![allow(dead_code, reason = "each executable that compiles this file uses a part of it")]

use ledger::{HopKind, HopSnapshot};
use record::{CloseReason, FieldSet, PollTotals, RecordKind, SocketRecord};
use sockets::attribution::Host;
use sockets::{
    Closes, Collector, Direct, MakeAccess, Options, Output, Problem, Scope, Served, Undecided,
};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::{Netns, within};
use wire::inet_diag::States;

/// Held by a test that moves the whole process to another cgroup, and by one whose own cgroup must not change.
pub(crate) static OWN_CGROUP: Mutex<()> = Mutex::new(());

/// What a test keeps of a record.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) kind: RecordKind,
    pub(crate) cookie: u64,
    pub(crate) src_port: u16,
    /// 0 if the record has none.
    pub(crate) dst_port: u16,
    pub(crate) dst_address: Option<IpAddr>,
    pub(crate) netns_name: Option<String>,
    pub(crate) reason: Option<CloseReason>,
    pub(crate) polls_seen: u32,
}

/// What a collector has reported so far.
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
    /// From the last totals.
    pub(crate) namespaces_left_out: u64,
    pub(crate) namespaces_visited: u64,
    pub(crate) problems: Vec<String>,
}

impl Told {
    pub(crate) fn closes(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.kind == RecordKind::CLOSE)
    }
}

/// An output that keeps what it receives, and is slow.
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

/// A collector, and what it has reported.
pub(crate) struct Run {
    pub(crate) collector: Collector,
    pub(crate) keep: Keep,
}

impl Run {
    /// Starts a collector inside a namespace, and waits for its first poll.
    pub(crate) fn start(netns: &Netns, options: Options, keep: Keep) -> Run {
        Run::start_with(netns, options, keep, Box::new(|| Box::new(Direct::new())))
    }

    /// As [`Self::start`], but through another access.
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

    /// Waits for a poll that starts after this call.
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
        served: Served::default(),
        namespaces_max: 4_096,
        table_entries_max: 100_000,
        processes: false,
        fields: FieldSet::ALL,
    }
}

/// So rarely that a test never sees the second poll.
pub(crate) const RARELY: Duration = Duration::from_secs(3_600);
