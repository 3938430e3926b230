//! `GET /records?follow`, and `Follow` over gRPC: records as they are made, for clients that read them.
//!
//! Each follower is a sink whose destination is the response, with a queue, a thread and a hop of its own. So a client that reads
//! slowly costs nobody else anything, and what it loses is counted like the loss of any sink.

mod chosen;
mod lines;
mod messages;
mod response;
mod wanted;

use super::sinks::Sinks;
use admin::service::Told;
use admin::{AtEnd, Connection, Form, Live, Records};
use config::{Config, Source};
use ledger::{Ledger, Meter};
use sink::{BatchLimits, DeliveryOptions, Fanout, QueueOptions, Sink, SinkOptions, WhenFull};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use wanted::Wanted;

/// Most followers at a time: each has two threads and a queue.
const FOLLOWERS_MAX: usize = 4;
/// Most memory of a follower's queue. A poll of 20,000 sockets fits.
const QUEUE_BYTES: usize = 8 << 20;
/// Longest time in which a client takes nothing, although something waits for it.
const STALL_MAX: Duration = Duration::from_secs(60);
/// How long a client has to take what is queued when others wait for the end of its stream.
const GRACE: Duration = Duration::from_secs(1);
/// Time between two looks while followers end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// All followers of the daemon.
pub(super) struct Followers {
    shared: Arc<Shared>,
}

struct Shared {
    ledger: Arc<Ledger>,
    sockets: Fanout,
    events: Fanout,
    flows: Fanout,
    state: Mutex<State>,
    /// Signaled when a follower has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// What the configuration has of what can be followed.
    sources: Vec<Source>,
    /// How to end the follower of each place.
    places: [Option<Sender<Why>>; FOLLOWERS_MAX],
    is_closed: bool,
}

/// Why a follower ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// It has as many records as it asked for.
    Limit,
    /// It has followed for as long as it asked for.
    Time,
    /// The client has closed its connection.
    Left,
    /// The client reads nothing.
    Stalled,
    /// The daemon has another configuration.
    Reload,
    /// The daemon stops.
    Stop,
}

impl Why {
    /// How long the client has to take what is queued.
    fn grace(self) -> Duration {
        match self {
            Why::Limit | Why::Time => STALL_MAX,
            Why::Left | Why::Stalled => Duration::ZERO,
            Why::Reload | Why::Stop => GRACE,
        }
    }

    /// The word in the last line of a stream.
    fn word(self) -> &'static str {
        match self {
            Why::Limit => "limit",
            Why::Time => "time",
            Why::Left => "left",
            Why::Stalled => "stalled",
            Why::Reload => "reload",
            Why::Stop => "stop",
        }
    }
}

impl Followers {
    pub(super) fn new(sinks: &Sinks, config: &Config, ledger: &Arc<Ledger>) -> Followers {
        let shared = Shared {
            ledger: Arc::clone(ledger),
            sockets: sinks.sockets().clone(),
            events: sinks.events().clone(),
            flows: sinks.flows().clone(),
            state: Mutex::default(),
            ended: Condvar::new(),
        };
        let followers = Followers { shared: Arc::new(shared) };
        followers.set_sources(config);
        followers
    }

    /// Sets what a configuration has to follow.
    pub(super) fn set_sources(&self, config: &Config) {
        let has = [
            (Source::Sockets, config.sockets.is_some()),
            (Source::Flows, config.flows.is_some()),
            (Source::Events, !config.thresholds.is_empty()),
        ];
        let sources = has.into_iter().filter_map(|(source, is_there)| is_there.then_some(source));
        self.shared.lock().sources = sources.collect();
    }

    /// The streams, for the admin server.
    pub(super) fn records(&self) -> Records {
        let shared = Arc::clone(&self.shared);
        Records {
            follow: Arc::new(move |query, form, connection| {
                follow(&shared, query, form, connection)
            }),
            shows_sockets: wanted::shows_sockets,
        }
    }

    /// Ends all followers: what is queued may leave for a moment, and the last line of each stream says why it is the last.
    pub(super) fn end(&self, why: Why, mut keep_alive: impl FnMut()) {
        let until = Instant::now() + 4 * GRACE;
        let mut state = self.shared.lock();
        state.is_closed |= why == Why::Stop;
        for place in state.places.iter().flatten() {
            // One that is ending already has stopped listening.
            let _ = place.send(why);
        }
        while state.places.iter().any(Option::is_some) && Instant::now() < until {
            let waited = self.shared.ended.wait_timeout(state, LOOK_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            keep_alive();
        }
    }
}

impl Shared {
    fn fanout(&self, source: &Source) -> Option<&Fanout> {
        match source {
            Source::Sockets => Some(&self.sockets),
            Source::Events => Some(&self.events),
            Source::Flows => Some(&self.flows),
            Source::Listener(_) => None,
        }
    }

    /// Takes a free place. Returns its number.
    fn take_place(&self, ends: &Sender<Why>) -> Result<usize, Told> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Told::text(503, "the daemon is being stopped"));
        }
        let Some(free) = state.places.iter().position(Option::is_none) else {
            let text = format!(
                "{FOLLOWERS_MAX} clients follow records already, which is the most. Fix: end one, or give a [[sink]] to what \
                 follows all the time"
            );
            return Err(Told::text(503, &text));
        };
        state.places[free] = Some(ends.clone());
        Ok(free)
    }

    fn leave_place(&self, place: usize) {
        self.lock().places[place] = None;
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the threads of one follower share.
struct Stream {
    connection: Arc<Connection>,
    pieces: tokio::sync::mpsc::Sender<Vec<u8>>,
    /// Pieces handed to the connection.
    handed: AtomicU64,
    /// Records that the client still wants.
    wanted: AtomicU64,
    /// Nothing is sent any more.
    is_given_up: AtomicBool,
    ends: Sender<Why>,
    /// Its account, once it has one.
    meter: OnceLock<Arc<dyn Meter>>,
    form: Form,
    /// Why it ends before the client has all that it asked for, if it does.
    early: Arc<OnceLock<&'static str>>,
}

impl Stream {
    /// Hands a piece to the connection and returns its number. `None` if the connection takes nothing more.
    fn hand(&self, piece: Vec<u8>) -> Option<u64> {
        self.pieces.try_send(piece).ok()?;
        Some(self.handed.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    fn end(&self, why: Why) {
        // If it is ending already, nobody listens.
        let _ = self.ends.send(why);
    }

    /// Sends the last piece, and closes the connection if the client has not taken it by then, or a moment later.
    fn finish(&self, last: Vec<u8>, until: Instant) {
        let wait = until.saturating_duration_since(Instant::now()).max(GRACE);
        let sent = self
            .hand(last)
            .is_some_and(|piece| self.connection.wait_until_sent(piece, wait).sent >= piece);
        if !sent {
            self.connection.cut();
        }
    }
}

/// Begins a stream.
fn follow(
    shared: &Arc<Shared>,
    query: &str,
    form: Form,
    connection: &Arc<Connection>,
) -> Result<Live, Told> {
    let sources = shared.lock().sources.clone();
    let wanted = Wanted::read(query, &sources).map_err(|why| Told::text(400, &why))?;

    let (ends, ending) = mpsc::channel();
    let place = shared.take_place(&ends)?;
    let (pieces, receiver) = tokio::sync::mpsc::channel(1);
    let stream = Arc::new(Stream {
        connection: Arc::clone(connection),
        pieces,
        handed: AtomicU64::new(0),
        wanted: AtomicU64::new(wanted.limit.unwrap_or(u64::MAX)),
        is_given_up: AtomicBool::new(false),
        ends: ends.clone(),
        meter: OnceLock::new(),
        form,
        early: Arc::default(),
    });
    let early = Arc::clone(&stream.early);

    if let Err(error) = start(shared, stream, wanted, place, ending) {
        shared.leave_place(place);
        return Err(Told::text(503, &format!("no thread for another follower: {error}")));
    }
    let at_end = AtEnd::new(move || {
        // The end may have come from here.
        let _ = ends.send(Why::Left);
    });
    Ok(Live { pieces: receiver, at_end, early })
}

/// Starts the two threads of a follower: its sink's, and the one that ends it.
fn start(
    shared: &Arc<Shared>,
    stream: Arc<Stream>,
    wanted: Wanted,
    place: usize,
    ending: Receiver<Why>,
) -> io::Result<()> {
    let Wanted { sources, filter, time, .. } = wanted;
    let sink = Sink::open(SinkOptions {
        // No sink of a configuration has a name with a space.
        name: format!("follower {}", place + 1),
        origin: sources.iter().map(Source::to_string).collect::<Vec<_>>().join("+"),
        queue: QueueOptions { bytes_max: QUEUE_BYTES, when_full: WhenFull::DropOldest },
        batch: BatchLimits::default(),
        // A client that takes nothing for long is cut off before.
        delivery: DeliveryOptions { answer_max: 10 * STALL_MAX, ..DeliveryOptions::default() },
        spool: None,
        connector: response::connector(&stream, filter),
    })
    .map_err(io::Error::other)?;

    let _ = stream.meter.set(sink.meter());
    let fanouts = sources.iter().filter_map(|source| shared.fanout(source).cloned());
    let fanouts = fanouts.collect();
    let follower = Follower { shared: Arc::clone(shared), stream, sink, fanouts, place };
    let run = move || follower.run(&ending, time);
    thread::Builder::new().name("follower".to_owned()).spawn(run).map(drop)
}

/// A follower, on the thread that begins and ends it.
struct Follower {
    shared: Arc<Shared>,
    stream: Arc<Stream>,
    sink: Sink,
    fanouts: Vec<Fanout>,
    place: usize,
}

impl Follower {
    fn run(self, ending: &Receiver<Why>, time: Option<Duration>) {
        let Follower { shared, stream, sink, fanouts, place } = self;
        shared.ledger.register(sink.meter());
        fanouts.iter().for_each(|fanout| fanout.attach(&sink));
        let why = match time {
            Some(time) => ending.recv_timeout(time).unwrap_or(Why::Time),
            None => ending.recv().unwrap_or(Why::Left),
        };

        fanouts.iter().for_each(|fanout| fanout.detach(&sink));
        let mut give_up_at = Instant::now() + why.grace();
        // Once it is given up, its thread has only to count what is queued.
        sink.close(give_up_at + STALL_MAX);
        while !sink.end().wait(give_up_at.min(Instant::now() + LOOK_INTERVAL)) {
            for later in ending.try_iter() {
                give_up_at = give_up_at.min(Instant::now() + later.grace());
            }
            if Instant::now() >= give_up_at {
                stream.give_up();
                break;
            }
        }

        let meter = sink.meter();
        sink.wait(give_up_at + STALL_MAX);
        if !matches!(why, Why::Limit | Why::Time) {
            let _ = stream.early.set(why.word());
        }
        stream.finish(lines::last(stream.form, why, &meter), give_up_at);
        shared.ledger.retire(&meter);
        shared.leave_place(place);
    }
}
