//! A collector under test, and everything that it has reported.

use ledger::{HopKind, HopSnapshot};
use record::{Encoder, Encoding, FieldSet, PollTotals, RecordKind, SocketRecord};
use serde_json::Value;
use sockets::attribution::Host;
use sockets::filter::Filter;
use sockets::{
    Access, Answer, Collector, Direct, MakeAccess, Options, Output, Problem, QueryError,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::{Netns, within};

pub(crate) type Totals = BTreeMap<String, u64>;
/// In addition to the fields of totals: how many records came before them.
pub(crate) const RECORDS_BEFORE: &str = "records before";
pub(crate) type Cookies = BTreeSet<u64>;

/// A record as written to a file.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) kind: RecordKind,
    pub(crate) poll: u64,
    pub(crate) sequence: u64,
    pub(crate) cookie: u64,
    pub(crate) netns: Option<String>,
    line: Vec<u8>,
}

impl Seen {
    pub(crate) fn fields(&self) -> Value {
        serde_json::from_slice(&self.line).unwrap()
    }
}

#[derive(Default, Debug)]
pub(crate) struct Told {
    pub(crate) seen: Vec<Seen>,
    pub(crate) totals: Vec<Totals>,
    pub(crate) problems: Vec<Problem>,
}

impl Told {
    pub(crate) fn polled(&self) -> impl Iterator<Item = &Seen> {
        self.seen.iter().filter(|seen| seen.kind == RecordKind::POLL)
    }

    pub(crate) fn closed(&self) -> impl Iterator<Item = &Seen> {
        self.seen.iter().filter(|seen| seen.kind == RecordKind::CLOSE)
    }

    /// The cookies of a poll's records, each of which must appear once.
    pub(crate) fn cookies_of(&self, poll: u64) -> Cookies {
        let mut cookies = Cookies::new();
        for seen in self.polled().filter(|seen| seen.poll == poll) {
            assert!(cookies.insert(seen.cookie), "{:x} came twice in poll {poll}", seen.cookie);
        }
        cookies
    }

    pub(crate) fn sum(&self, field: &str) -> u64 {
        self.totals.iter().map(|totals| totals[field]).sum()
    }

    pub(crate) fn problems_of(&self, cause: &str) -> Vec<&str> {
        let of = self.problems.iter().filter(|problem| problem.cause == cause);
        of.map(|problem| problem.text.as_str()).collect()
    }
}

struct Recorder {
    told: Arc<Mutex<Told>>,
    encoder: Encoder,
}

impl Output for Recorder {
    fn record(&mut self, record: &SocketRecord<'_>) {
        let mut line = Vec::new();
        self.encoder.encode(record, &mut line);
        self.told.lock().unwrap().seen.push(Seen {
            kind: record.record_kind.unwrap(),
            poll: record.poll.unwrap(),
            sequence: record.sequence.unwrap(),
            cookie: record.cookie.unwrap(),
            netns: record.netns_name.map(str::to_owned),
            line,
        });
    }

    fn end_of_poll(&mut self, totals: &PollTotals<'_>) {
        let mut line = Vec::new();
        self.encoder.totals(totals, &mut line);
        let value: Value = serde_json::from_slice(&line).unwrap();
        let fields = value["totals"].as_object().unwrap().iter();
        let totals = fields.filter_map(|(name, value)| {
            let number = value.as_u64().or_else(|| value.as_bool().map(u64::from));
            let number = number.or_else(|| value.as_str().and_then(|text| text.parse().ok()));
            Some((name.clone(), number?))
        });
        let mut totals: Totals = totals.collect();
        let mut told = self.told.lock().unwrap();
        totals.insert(RECORDS_BEFORE.to_owned(), told.seen.len() as u64);
        told.totals.push(totals);
    }

    fn problem(&mut self, problem: &Problem) {
        self.told.lock().unwrap().problems.push(problem.clone());
    }
}

/// A running collector.
pub(crate) struct Watch {
    pub(crate) collector: Collector,
    pub(crate) told: Arc<Mutex<Told>>,
}

impl Watch {
    /// Starts a collector whose own namespace is this one.
    pub(crate) fn start(netns: &Netns, options: Options) -> Watch {
        Watch::start_with(netns, options, Box::new(|| Box::new(Direct::new())))
    }

    pub(crate) fn start_with(netns: &Netns, options: Options, access: MakeAccess) -> Watch {
        let told = Arc::<Mutex<Told>>::default();
        let encoder = Encoder::new(Encoding::Jsonl, &FieldSet::ALL);
        let output = Box::new(Recorder { told: Arc::clone(&told), encoder });
        let host = Host::read(Default::default());
        let collector =
            netns.inside(|| Collector::start_with(options, host, output, access).unwrap());
        Watch { collector, told }
    }

    /// Like [`Self::start`], with another access around the direct one.
    pub(crate) fn start_through<A: Access + 'static>(
        netns: &Netns,
        options: Options,
        wrap: impl FnOnce(Direct) -> A + Send + 'static,
    ) -> Watch {
        Watch::start_with(netns, options, Box::new(|| Box::new(wrap(Direct::new()))))
    }

    /// Asks a question, and reads the whole answer.
    pub(crate) fn query(
        &self,
        filter: Option<Filter>,
        limit: usize,
        timeout: Duration,
    ) -> Result<Vec<u8>, QueryError> {
        self.collector.questions().ask(filter, limit, timeout).and_then(Answer::whole)
    }

    #[track_caller]
    pub(crate) fn wait(&self, what: &str, condition: impl Fn(&Told) -> bool) {
        let is_so = || condition(&self.told.lock().unwrap());
        let came = within(Duration::from_secs(30), is_so);
        assert!(came, "no {what}: {:?}", self.told.lock().unwrap().totals.last());
    }

    #[track_caller]
    pub(crate) fn wait_polls(&self, polls: usize) {
        self.wait("poll", |told| told.totals.len() >= polls);
    }

    /// Waits for a poll that starts after this call, and returns its number.
    #[track_caller]
    pub(crate) fn next_poll(&self) -> u64 {
        let polls = self.polls() + 2;
        self.wait_polls(polls);
        polls as u64
    }

    pub(crate) fn polls(&self) -> usize {
        self.told.lock().unwrap().totals.len()
    }

    pub(crate) fn hops(&self) -> Vec<HopSnapshot> {
        let mut hops = Vec::new();
        self.collector.meter().read(&mut hops);
        hops
    }

    pub(crate) fn poll_hop(&self) -> HopSnapshot {
        self.hops().into_iter().find(|hop| hop.hop == HopKind::Poll).unwrap()
    }

    /// Stops the collector. Returns what it reported, and its hops at that time.
    pub(crate) fn stop(self) -> (Told, Vec<HopSnapshot>) {
        let meter = self.collector.meter();
        drop(self.collector.stop().unwrap());
        let mut hops = Vec::new();
        meter.read(&mut hops);
        (Arc::try_unwrap(self.told).unwrap().into_inner().unwrap(), hops)
    }
}
