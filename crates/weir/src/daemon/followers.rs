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
use admin::{AtEnd, Connection, Form, Holder, Live, Records, STALL_MAX, place_to_give};
use config::{Config, FOLLOWER_QUEUE_BYTES, FOLLOWERS_MAX, Source};
use ledger::{Ledger, Meter};
use sink::{BatchLimits, DeliveryOptions, Fanout, QueueOptions, Sink, SinkOptions, WhenFull};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use wanted::Wanted;

/// How long a client has to take what is queued when others wait for the end of its stream.
const GRACE: Duration = Duration::from_secs(1);
/// Longest wait for a place that another client gives: it has the grace to take what is queued, and then its last line.
const GIVE_MAX: Duration = Duration::from_secs(4);
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
    /// The follower of each place.
    places: [Option<Place>; FOLLOWERS_MAX],
    /// Clients that wait for a place which another client gives.
    waiting: Vec<Holder>,
    is_closed: bool,
}

struct Place {
    holder: Holder,
    /// Ends the follower.
    ends: Sender<Why>,
    /// Whether it was ended for the sake of another client.
    is_given: bool,
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
    /// Another client gets its place: its own has several.
    Given,
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
            Why::Given | Why::Reload | Why::Stop => GRACE,
        }
    }

    /// The word in the last line of a stream.
    fn word(self) -> &'static str {
        match self {
            Why::Limit => "limit",
            Why::Time => "time",
            Why::Left => "left",
            Why::Stalled => "stalled",
            Why::Given => "given",
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
            let _ = place.ends.send(why);
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

    /// Takes a place and returns its number. If all are taken, waits for the client that has most of them to give one.
    fn take_place(&self, holder: Holder, ends: &Sender<Why>) -> Result<usize, Told> {
        let until = Instant::now() + GIVE_MAX;
        let mut state = self.lock();
        let mut is_waiting = false;
        let taken = loop {
            if state.is_closed {
                break Err(Told::text(503, "the daemon is being stopped"));
            }
            // Places are given to those who wait for them, and not to whoever asks in the meantime.
            let promised = if is_waiting { 0 } else { state.waiting.len() };
            if let Some(free) = state.free_place(promised) {
                state.places[free] = Some(Place { holder, ends: ends.clone(), is_given: false });
                break Ok(free);
            }
            if !is_waiting {
                if !state.give_place(holder) {
                    break Err(no_place());
                }
                state.waiting.push(holder);
                is_waiting = true;
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                break Err(no_place());
            };
            let waited = self.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        if is_waiting && let Some(at) = state.waiting.iter().position(|one| *one == holder) {
            state.waiting.swap_remove(at);
        }
        taken
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

impl State {
    /// A free place besides those that are promised.
    fn free_place(&self, promised: usize) -> Option<usize> {
        (0..FOLLOWERS_MAX).filter(|at| self.places[*at].is_none()).nth(promised)
    }

    /// Ends a follower of the client that has most of them, for the sake of this one. Returns whether it did.
    fn give_place(&mut self, holder: Holder) -> bool {
        let staying = |place: &&mut Place| !place.is_given;
        let mut places: Vec<_> = self.places.iter_mut().flatten().filter(staying).collect();
        // Clients that wait have as good as a place.
        let holders = places.iter().map(|place| place.holder).chain(self.waiting.iter().copied());
        let holders: Vec<_> = holders.collect();
        let given = place_to_give(&holders, holder).and_then(|at| places.get_mut(at));
        let Some(given) = given else { return false };
        given.is_given = true;
        // One that is ending already gives its place as well.
        let _ = given.ends.send(Why::Given);
        true
    }
}

fn no_place() -> Told {
    let text = format!(
        "{FOLLOWERS_MAX} clients follow records already, which is the most. Fix: end one, or give a [[sink]] to what follows all \
         the time"
    );
    Told::text(503, &text)
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
    let place = shared.take_place(connection.holder(), &ends)?;
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
        queue: QueueOptions { bytes_max: FOLLOWER_QUEUE_BYTES, when_full: WhenFull::DropOldest },
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
