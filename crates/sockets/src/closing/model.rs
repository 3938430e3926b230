//! Tests the states of a connection against a fake kernel that lists rows and reports closes in every legal order.

use super::*;
use crate::access::Found;
use crate::attribution::Host;
use crate::engine::Moment;
use crate::filter::{Filter, NoNames};
use crate::identity::Identity;
use crate::options::{Options, Undecided};
use crate::output::{Output, Problem};
use crate::served::Served;
use crate::walk::{Visitor as _, Walked};
use record::{PollTotals, RecordKind, SocketRecord};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::inet_diag::tcp_info::FIELDS;
use wire::inet_diag::{Family, SocketId, State, States, TcpInfo, encode};

/// What one poll sees of a connection, and whether its close event comes then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// Not there yet, or missed, or in no dump until its program reads the close.
    Absent,
    /// Its row passes the filter.
    Fits,
    /// Its row does not pass.
    Fails,
    /// Listed twice: a dump is not a snapshot.
    Twice,
    /// Only the minisock is left, before or after the event.
    Minisock,
    /// The event comes before the poll, which does not list it.
    EventFirst,
    /// The event comes before the poll, which lists the minisock.
    EventThenMinisock,
    /// The event comes during the poll, and its passing row follows in the datagram that the kernel had filled ahead.
    EventThenFits,
    /// The same with a row that does not pass.
    EventThenFails,
    /// The poll lists it, and the event comes during the poll.
    FitsThenEvent,
    FailsThenEvent,
}

use Turn::*;

const TURNS: [Turn; 11] = [
    Absent,
    Fits,
    Fails,
    Twice,
    Minisock,
    EventFirst,
    EventThenMinisock,
    EventThenFits,
    EventThenFails,
    FitsThenEvent,
    FailsThenEvent,
];

impl Turn {
    fn has_event(self) -> bool {
        !matches!(self, Absent | Fits | Fails | Twice | Minisock)
    }

    /// Whether it can follow in a real kernel: at most one event, then nothing but a minisock, and no socket after a minisock.
    fn is_legal_after(self, before: &[Turn]) -> bool {
        let has_ended = before.iter().any(|turn| turn.has_event());
        let is_minisock = before.contains(&Minisock);
        match self {
            Absent | Minisock => true,
            EventFirst | EventThenMinisock => !has_ended,
            _ => !has_ended && !is_minisock,
        }
    }
}

/// What the event itself says, when no poll has decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Says {
    Fits,
    Fails,
    /// An abort has cleared the fields that the filter uses.
    Nothing,
}

/// One connection of the fake kernel.
struct Connection {
    turns: Vec<Turn>,
    says: Says,
}

/// Every legal order of this many turns, combined with everything that an event can say.
fn connections(turns: usize) -> Vec<Connection> {
    let mut orders: Vec<Vec<Turn>> = vec![Vec::new()];
    for _ in 0..turns {
        let longer = orders.iter().flat_map(|order| {
            let legal = TURNS.iter().filter(move |turn| turn.is_legal_after(order));
            legal.map(move |turn| [order.as_slice(), &[*turn]].concat())
        });
        orders = longer.collect();
    }
    let all = orders.iter().flat_map(|turns| {
        [Says::Fits, Says::Fails, Says::Nothing]
            .map(|says| Connection { turns: turns.clone(), says })
    });
    all.collect()
}

/// What must become of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fate {
    Record,
    Filtered,
    Undecided,
    /// Seen, and gone without an event.
    Unobserved,
    /// Nothing was reported about it, and nothing is.
    Nothing,
}

/// Which rows and events the filter lets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// There is no filter.
    All,
    /// By a counter.
    Counter,
    /// By age: rows pass from the third poll on, whatever they say.
    Age,
}

/// The result by the documented rules, independent of the implementation.
fn expected(connection: &Connection, mode: Mode) -> Fate {
    let (mut passed, mut rejected, mut was_socket, mut ended) = (false, false, false, false);
    let mut first = None;
    for (poll, turn) in connection.turns.iter().enumerate() {
        ended |= turn.has_event() && !matches!(turn, FitsThenEvent | FailsThenEvent);
        if ended {
            break;
        }
        let fits = match (turn, mode) {
            // A remnant is forgotten once it is gone, along with its first time.
            (Absent, Mode::Age) if !was_socket => {
                (first, passed, rejected) = (None, false, false);
                continue;
            }
            (Absent, _) | (Minisock, Mode::Counter) => continue,
            (_, Mode::All) => true,
            (turn, Mode::Counter) => !matches!(turn, Fails | FailsThenEvent),
            (_, Mode::Age) => poll - *first.get_or_insert(poll) >= 2,
        };
        was_socket |= *turn != Minisock;
        passed |= fits;
        rejected |= !fits;
        if turn.has_event() {
            ended = true;
            break;
        }
    }
    match (ended, passed, rejected, connection.says) {
        (false, true, _, _) if was_socket => Fate::Unobserved,
        (false, ..) => Fate::Nothing,
        (true, true, ..) => Fate::Record,
        (true, false, true, _) => Fate::Filtered,
        (true, false, false, _) if mode == Mode::All => Fate::Record,
        (true, false, false, Says::Fits) if mode == Mode::Counter => Fate::Record,
        (true, false, false, Says::Fails) if mode == Mode::Counter => Fate::Filtered,
        (true, false, false, _) => Fate::Undecided,
    }
}

/// Closing records by cookie.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<BTreeMap<u64, u32>>>);

impl Output for Kept {
    fn record(&mut self, record: &SocketRecord<'_>) {
        if record.record_kind == Some(RecordKind::CLOSE) {
            *self.0.lock().unwrap().entry(record.cookie.unwrap()).or_default() += 1;
        }
    }

    fn end_of_poll(&mut self, _: &PollTotals<'_>) {}

    fn problem(&mut self, problem: &Problem) {
        panic!("{problem}");
    }
}

const SECOND_NS: u64 = 1_000_000_000;

/// The fake kernel, and the collector that listens to it.
struct Fake<'h> {
    engine: Engine<'h>,
    found: Found,
    /// Whether every event comes a second time, as from a socket that takes over.
    is_doubled: bool,
}

impl<'h> Fake<'h> {
    fn new(options: &'h Options, host: &'h Host, output: Box<dyn Output>) -> Fake<'h> {
        let counts = Arc::new(crate::meter::Counts::new("sockets"));
        let mut engine =
            Engine::new(options, Identity { host, run_id: 1, tags: &[] }, counts, output);
        engine.filter.adopt(&crate::filter::Compiled::of(options.filter.as_ref(), options.states));
        // Events are received, so missing connections are waited for.
        let socket = Socket::open(Protocol::SockDiag).unwrap();
        engine.hearing.events = Some(engine.events_from(socket, Hears::Own));
        let id = sys::namespace::own().unwrap();
        let found = Found { id, name: None, process: None };
        Fake { engine, found, is_doubled: false }
    }

    fn now(&self) -> Now {
        let boot_ns = u64::from(self.engine.moment.poll) * 10 * SECOND_NS;
        Now { unix_ns: boot_ns, boot_ns }
    }

    fn row(&mut self, cookie: u64, turn: Turn) {
        let (state, bytes) = match turn {
            Minisock | EventThenMinisock => (State::TimeWait, None),
            Fails | EventThenFails | FailsThenEvent => (State::Established, Some(10)),
            _ => (State::Established, Some(2_000)),
        };
        let raw = message(cookie, state, 443, bytes);
        for _ in 0..if turn == Twice { 2 } else { 1 } {
            let body = &raw[wire::netlink::HEADER_BYTES..];
            self.engine.socket(&decode(body).unwrap(), &raw);
        }
    }

    /// Reports closes with one call, as the kernel's socket would.
    fn events(&mut self, cookies: impl Iterator<Item = (u64, Says)>) {
        self.engine.hearing.just_closed.clear();
        let now = self.now();
        let raw: Vec<_> = cookies
            .map(|(cookie, says)| match says {
                Says::Fits => message(cookie, State::Closed, 443, Some(2_000)),
                Says::Fails => message(cookie, State::Closed, 443, Some(10)),
                Says::Nothing => message(cookie, State::Closed, 0, Some(0)),
            })
            .collect();
        for _ in 0..if self.is_doubled { 2 } else { 1 } {
            for bytes in &raw {
                let received =
                    Received { bytes, truncated: false, sender_port_id: 0, group: 1, nsid: None };
                self.engine.take_datagram(&received, None, now);
            }
            if self.is_doubled {
                self.engine
                    .hearing
                    .heard_before
                    .extend_from_slice(&self.engine.hearing.just_closed);
                self.engine.hearing.heard_before.sort_unstable();
            }
        }
        self.engine.hearing.just_closed.sort_unstable();
        self.engine.hearing.just_closed.dedup();
    }

    fn poll(&mut self, turns: &[(u64, Turn, Says)]) {
        let having = |wanted: &'static [Turn]| {
            let these = turns.iter().filter(move |(_, turn, _)| wanted.contains(turn));
            these.map(|(cookie, turn, says)| (*cookie, *turn, *says))
        };
        self.events(
            having(&[EventFirst, EventThenMinisock]).map(|(cookie, _, says)| (cookie, says)),
        );
        let poll = self.engine.moment.poll + 1;
        self.engine.moment.poll = poll;
        let now = self.now();
        let place = self.engine.namespaces.note(&self.found, poll);
        self.engine.moment =
            Moment { poll, unix_ns: now.unix_ns, boot_ns: now.boot_ns, at: Instant::now(), place };
        for (cookie, turn, _) in having(&[
            Fits,
            Fails,
            Twice,
            Minisock,
            EventThenMinisock,
            FitsThenEvent,
            FailsThenEvent,
        ]) {
            self.row(cookie, turn);
        }
        let during = [EventThenFits, EventThenFails, FitsThenEvent, FailsThenEvent];
        let events: Vec<_> = turns.iter().filter(|(_, turn, _)| during.contains(turn)).collect();
        self.events(events.into_iter().map(|(cookie, _, says)| (*cookie, *says)));
        for (cookie, turn, _) in having(&[EventThenFits, EventThenFails]) {
            self.row(cookie, turn);
        }
        self.engine.walked(place, (0, Walked::default()), Ok(()));
        self.engine.sweep(States::ALL);
        self.engine.tell_totals(now.unix_ns);
    }
}

/// A message as the kernel writes it. `bytes` is the count received so far; `None` leaves out `tcp_info`.
fn message(cookie: u64, state: State, peer_port: u16, bytes: Option<u64>) -> Vec<u8> {
    let src = ([10, 0, 0, 1], 40_000).into();
    let id = SocketId { cookie, ..SocketId::between(src, ([10, 0, 0, 2], peer_port).into()) };
    let mut message = SocketMessage::new(Family::Inet, state, id);
    let mut payload = [0; 280];
    if let Some(bytes) = bytes {
        let field = FIELDS.iter().find(|field| field.name == "bytes_received").unwrap();
        field.write(&mut payload, bytes);
        message.tcp_info = Some(TcpInfo::decode(&payload).unwrap());
    }
    // An abort leaves the largest window plus 2.
    message.send_queue = if peer_port == 0 { 65_538 } else { 0 };
    let mut raw = Vec::new();
    encode(&message, SOCK_DIAG_BY_FAMILY, 0, 0, &mut raw);
    raw
}

fn options(mode: Mode) -> Options {
    let filter = match mode {
        Mode::All => None,
        Mode::Counter => Some("bytes_received > 1000"),
        Mode::Age => Some("age >= 20s"),
    };
    Options {
        namespaces_max: 100,
        processes: false,
        name: "sockets".to_owned(),
        interval: Duration::from_secs(10),
        jitter: Duration::ZERO,
        scope: Scope::Own,
        states: States::ALL,
        filter: filter.map(|text| Filter::parse_with(text, &NoNames).unwrap()),
        listen_every: NonZeroU32::MIN,
        keyframe_every: None,
        sample: NonZeroU32::MIN,
        closes: Closes::On,
        closes_undecided: Undecided::Drop,
        event_buffer_bytes: 1 << 16,
        served: Served::default(),
        table_entries_max: 1 << 20,
        fields: record::FieldSet::ALL,
    }
}

/// Plays all these connections at once, and compares the fate of each with the expected one.
fn check(mode: Mode, is_doubled: bool) {
    const TURNS_EACH: usize = 5;
    let connections = connections(TURNS_EACH);
    let (options, host, kept) = (options(mode), Host::read(Default::default()), Kept::default());
    let mut fake = Fake::new(&options, &host, Box::new(kept.clone()));
    fake.is_doubled = is_doubled;
    let counts = Arc::clone(&fake.engine.counts);
    for poll in 0..TURNS_EACH {
        let turns =
            connections.iter().zip(1..).map(|(one, cookie)| (cookie, one.turns[poll], one.says));
        fake.poll(&turns.collect::<Vec<_>>());
    }
    let kept_polls = crate::poll::missing_kept_polls(options.interval);
    for _ in 0..kept_polls + SPARE_POLLS {
        fake.poll(&[]);
    }

    let mut fates: BTreeMap<Fate, u64> = BTreeMap::new();
    let records = kept.0.lock().unwrap();
    for (connection, cookie) in connections.iter().zip(1..) {
        let fate = expected(connection, mode);
        *fates.entry(fate).or_default() += 1;
        let told = records.get(&cookie).copied().unwrap_or(0);
        assert_eq!(
            told,
            u32::from(fate == Fate::Record),
            "{mode:?} {:?} {:?}: {fate:?}",
            connection.turns,
            connection.says
        );
    }
    let of = |fate| fates.get(&fate).copied().unwrap_or(0);
    let dropped = |reason| counts.closed.dropped(reason).count;
    let events =
        connections.iter().filter(|one| one.turns.iter().any(|turn| turn.has_event())).count()
            as u64;
    assert_eq!(counts.closed.delivered.load().count, of(Fate::Record), "{mode:?}: records");
    assert_eq!(dropped(Reason::Filtered), of(Fate::Filtered), "{mode:?}: filtered");
    assert_eq!(dropped(Reason::Undecided), of(Fate::Undecided), "{mode:?}: undecided");
    assert_eq!(counts.unobserved.load(), of(Fate::Unobserved), "{mode:?}: unobserved");
    let doubled = if is_doubled { events } else { 0 };
    assert_eq!(dropped(Reason::Duplicate), doubled, "{mode:?}: told of twice");
    assert_eq!(counts.events.load().count, events + doubled, "{mode:?}: events");
    let told = of(Fate::Record) + of(Fate::Filtered) + of(Fate::Undecided);
    assert_eq!(told, events, "{mode:?}: every event has one fate");
    assert!(fake.engine.filter.rejected.is_empty(), "{mode:?}: rejected ones are forgotten");
    assert_eq!(fake.engine.table.len(), 0, "{mode:?}: so are all others");
}

/// Enough polls to sweep the last mark as well.
const SPARE_POLLS: u32 = 12;

#[test]
fn every_legal_order_of_rows_and_events_gives_each_connection_one_fate() {
    check(Mode::All, false);
    check(Mode::Counter, false);
    check(Mode::Age, false);
}

#[test]
fn a_socket_that_takes_over_tells_of_no_close_twice() {
    check(Mode::All, true);
    check(Mode::Counter, true);
}

/// From the last closing record: how long the polls had seen the connection, and its namespace's id.
#[derive(Clone, Default)]
struct Last(Arc<Mutex<(Option<u64>, Option<u32>)>>);

impl Output for Last {
    fn record(&mut self, record: &SocketRecord<'_>) {
        *self.0.lock().unwrap() = (record.seen_ns, record.netns_id);
    }

    fn end_of_poll(&mut self, _: &PollTotals<'_>) {}

    fn problem(&mut self, problem: &Problem) {
        panic!("{problem}");
    }
}

#[test]
fn a_clock_that_is_set_back_shortens_no_life_and_an_id_that_the_event_knows_is_kept() {
    let (options, host, last) =
        (options(Mode::All), Host::read(Default::default()), Last::default());
    let mut fake = Fake::new(&options, &host, Box::new(last.clone()));
    fake.poll(&[(1, Fits, Says::Fits)]);
    let polled = fake.now();
    let now = Now { unix_ns: 1, boot_ns: polled.boot_ns + 15 * SECOND_NS };
    let bytes = &message(1, State::Closed, 443, Some(2_000));
    let received = Received { bytes, truncated: false, sender_port_id: 0, group: 1, nsid: Some(7) };
    fake.engine.take_datagram(&received, None, now);
    fake.engine.settle(&mut crate::access::Direct::new(), &[], crate::held::Settle::All);
    // The polls had seen the namespace but had no id for it.
    assert_eq!(*last.0.lock().unwrap(), (Some(15 * SECOND_NS), Some(7)));
}
