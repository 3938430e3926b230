//! Questions to a running collector: the current sockets, as JSON.
//!
//! Questions are answered one at a time, one datagram of the kernel's dump after another, in between the other work of the
//! collector's thread: a poll that is due comes first, and close events are read as always. A reader that takes nothing holds up
//! the next answer for two seconds. Then its own answer is ended and set aside until it is taken.

mod pipe;

pub use pipe::Answer;

use crate::access::{Access, Found};
use crate::describe::{Whose, describe};
use crate::engine::Engine;
use crate::filter::{Compiled, Expr, Filter, Needs};
use crate::namespaces::{Admission, Known};
use crate::runner::Runner;
use crate::walk::{Ask, Progress, Steps, Transport, Visitor, Walker};
use pipe::{Pen, Waiting, pipe};
use record::{Encoder, Encoding, FieldSet, RecordKind};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use sys::clock::{boottime_ns, realtime_ns};
use sys::namespace::Identity;
use sys::netlink::Socket;
use sys::socket::namespace_cookie;
use wire::DecodeError;
use wire::inet_diag::{Extensions, SocketMessage};

/// Maximum number of questions that wait for their turn. Further ones are refused with [`QueryError::Busy`].
pub(crate) const WAITING_MAX: usize = 8;
/// Minimum time from the start of one answer to the start of the next: each is a complete walk.
const GAP: Duration = Duration::from_secs(1);
/// How long the thread works on an answer before it turns to its other work.
const TURN: Duration = Duration::from_millis(5);
/// Maximum time from the first to the last socket of an answer.
const WALK_MAX: Duration = Duration::from_secs(5);
/// How long a reader may take nothing while the maximum waits for it.
const READER_WAIT_MAX: Duration = Duration::from_secs(2);
/// Maximum time until the reader has taken everything.
const TAKEN_MAX: Duration = Duration::from_secs(9);
/// Maximum number of finished answers that wait for their readers, in addition to the current one. One more revokes the oldest.
const UNTAKEN_MAX: usize = 2;
/// How long answers skip the search for namespaces after one has failed: a helper that hangs already delays the thread in each
/// poll.
const SEARCH_PAUSE: Duration = Duration::from_secs(10);
/// Size of a piece of an answer, in bytes, not counting the rest of its last socket.
const CHUNK_BYTES: usize = 64 * 1024;
/// Room for that rest, in bytes.
const SOCKET_BYTES: usize = 4 * 1024;

/// Why a question has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueryError {
    /// Too many questions wait already.
    Busy,
    /// The question's turn did not come in time: others were ahead of it, or a poll takes long.
    Timeout,
    /// The answer was cut off, because nobody took it or the collector's thread is gone.
    Broken,
    /// The collector has stopped or is stopping.
    Stopped,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueryError::Busy => {
                "too many questions are waiting: one a second is answered; try again"
            }
            QueryError::Timeout => {
                "the collector did not answer in time: other questions or a poll are under way; try again"
            }
            QueryError::Broken => "the answer was broken off",
            QueryError::Stopped => "the collector has stopped",
        })
    }
}

impl std::error::Error for QueryError {}

/// A question on its way to the thread.
pub(crate) struct Question {
    pub(crate) filter: Option<Filter>,
    pub(crate) limit: usize,
    /// Nobody waits for the answer after this time.
    pub(crate) deadline: Instant,
    pub(crate) answer: Sender<Answer>,
}

/// The answers of a collector, at most one of them in progress.
#[derive(Default)]
pub(crate) struct Answers {
    under_way: Option<Answering>,
    /// Finished answers that were not taken yet, and when they started.
    untaken: VecDeque<(Pen, Instant)>,
    /// When the last one started.
    began: Option<Instant>,
    /// When the last search for namespaces failed.
    search_failed: Option<Instant>,
}

/// Whether work on an answer can continue at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// There is more to do.
    More,
    /// Nothing to do until something happens or this time is over.
    Wait(Duration),
}

/// Nothing to do until the next question.
const IDLE: Turn = Turn::Wait(Duration::MAX);

impl Answers {
    /// Takes the next question if it is time for it, and continues the current answer.
    pub(crate) fn turn(runner: &mut Runner<'_>, asked: &Receiver<Question>) -> Turn {
        let untaken = runner.answers.take_back();
        match Answers::work(runner, asked) {
            Turn::More => Turn::More,
            Turn::Wait(wait) => Turn::Wait(wait.min(untaken)),
        }
    }

    fn work(runner: &mut Runner<'_>, asked: &Receiver<Question>) -> Turn {
        if runner.answers.under_way.is_none() {
            let left =
                runner.answers.began.map_or(Duration::ZERO, |at| GAP.saturating_sub(at.elapsed()));
            if !left.is_zero() {
                return Turn::Wait(left);
            }

            let now = Instant::now();
            // Nobody waits any more for a question whose time is over.
            let Some(question) = asked.try_iter().find(|question| question.deadline > now) else {
                return IDLE;
            };

            runner.answers.under_way = Answering::begin(runner, question);
        }

        // Taken out while it works, because it needs the whole runner.
        let Some(mut answering) = runner.answers.under_way.take() else { return Turn::More };
        let turn = answering.turn(runner);

        let answers = &mut runner.answers;
        match turn {
            Some(_) => answers.under_way = Some(answering),
            None => answers.set_aside(answering),
        }
        turn.unwrap_or(Turn::More)
    }

    fn set_aside(&mut self, answering: Answering) {
        if self.untaken.len() >= UNTAKEN_MAX
            && let Some((oldest, _)) = self.untaken.pop_front()
        {
            oldest.break_off();
        }
        self.untaken.push_back((answering.text.pen, answering.began));
    }

    /// Forgets answers that were taken, and revokes those that have waited too long. Returns how long the rest may still wait.
    fn take_back(&mut self) -> Duration {
        self.untaken.retain(|(pen, began)| {
            let is_late = began.elapsed() >= TAKEN_MAX;
            if is_late {
                pen.break_off();
            }
            !is_late && !matches!(pen.waiting(), Waiting::Nothing | Waiting::Nobody)
        });
        let left = |(_, began): &(Pen, Instant)| TAKEN_MAX.saturating_sub(began.elapsed());
        self.untaken.iter().map(left).min().unwrap_or(Duration::MAX)
    }

    /// Ends the current answer as it is: its reader gets what there is, marked as truncated.
    pub(crate) fn stop(&mut self) {
        if let Some(mut answering) = self.under_way.take() {
            answering.end(Some(Cut::Stop));
        }
    }
}

/// Why an answer is incomplete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    SlowReader,
    Time,
    Stop,
}

impl Cut {
    fn word(self) -> &'static str {
        match self {
            Cut::SlowReader => "slow_reader",
            Cut::Time => "time",
            Cut::Stop => "stop",
        }
    }
}

/// An answer in progress.
///
/// The last poll is not kept for this: 100,000 sockets would take 50 MB, most of which nobody would ask for. A walk with the
/// filter in the kernel costs little and is more recent.
struct Answering {
    text: Text,
    split: Compiled,
    needs: Needs,
    walker: Walker,
    /// Namespaces still to be walked, the next one last.
    left: Vec<Identity>,
    walk: Option<Walk>,
    failed: u64,
    began: Instant,
    /// Since when the maximum has been waiting for the reader.
    full_since: Option<Instant>,
    is_ended: bool,
}

/// The namespace being walked.
struct Walk {
    socket: Socket,
    steps: Steps,
    place: u32,
    known: Option<Known>,
}

impl Answering {
    /// Starts the answer, and gives the asker its end of the pipe. `None` if the asker has gone.
    fn begin(runner: &mut Runner<'_>, question: Question) -> Option<Answering> {
        let Runner { engine, access, found, options, signal, answers, .. } = runner;
        let (pen, answer) = pipe(signal);
        // The asker has its end from now on, and reads the answer while it is being made.
        question.answer.send(answer).ok()?;
        answers.began = Some(Instant::now());
        engine.counts.queries.add(1);

        if answers.search_failed.is_none_or(|at| at.elapsed() >= SEARCH_PAUSE) {
            // A new search, so that the answer includes namespaces created since the last poll.
            let result = access.discover(&options.scope, found);
            answers.search_failed = result.is_err().then(Instant::now);
        }
        let failed = u64::from(answers.search_failed.is_some());

        let filter = question.filter.as_ref();
        let mut text = Text::new(pen, question.limit);
        text.json.extend_from_slice(
            format!(
                "{{\"time_unix_ns\":{},\"polls\":{},\"namespaces\":{},\"sockets\":[",
                text.time_unix_ns,
                engine.moment.poll,
                found.len()
            )
            .as_bytes(),
        );

        Some(Answering {
            text,
            split: Compiled::of(filter, options.states),
            needs: filter.map_or(Needs::NONE, Filter::needs),
            walker: Walker::default(),
            left: found.iter().rev().map(|found| found.id).collect(),
            walk: None,
            failed,
            began: Instant::now(),
            full_since: None,
            is_ended: false,
        })
    }

    /// Works on the answer for a moment. `None` when it is finished or its reader has gone.
    fn turn(&mut self, runner: &mut Runner<'_>) -> Option<Turn> {
        let turn_began = Instant::now();
        while turn_began.elapsed() < TURN {
            let age = self.began.elapsed();
            match self.text.pen.waiting() {
                Waiting::Nobody => return None,
                _ if self.is_ended => return None,
                _ if age >= WALK_MAX => self.end(Some(Cut::Time)),
                Waiting::Full => {
                    // The reader wakes the thread when it takes something. Until then there is nothing to do.
                    let since = self.full_since.get_or_insert_with(Instant::now);
                    let left = READER_WAIT_MAX.saturating_sub(since.elapsed());
                    if !left.is_zero() {
                        return Some(Turn::Wait(left));
                    }
                    self.end(Some(Cut::SlowReader));
                }
                Waiting::Nothing | Waiting::Some => {
                    self.full_since = None;
                    self.step(runner);
                }
            }
        }

        Some(Turn::More)
    }

    /// Reads one datagram, opens the next namespace, or ends the answer.
    fn step(&mut self, runner: &mut Runner<'_>) {
        let Runner { engine, access, found, .. } = runner;
        let Some(walk) = &mut self.walk else {
            match self.left.pop() {
                Some(id) => self.walk = self.open(engine, &mut **access, found, id),
                None => self.end(None),
            }
            return;
        };

        let mut visit = Visit {
            engine,
            text: &mut self.text,
            rest: self.split.rest.as_ref(),
            needs: self.needs,
            place: walk.place,
            known: walk.known.as_ref(),
        };

        let ask = ask(&self.split);
        match self.walker.step(&mut walk.steps, &walk.socket, &ask, &mut visit) {
            Ok(Progress::GoesOn) => {}
            // Its socket is closed with it, and no longer keeps the namespace alive.
            Ok(Progress::Done) => self.walk = None,
            Err(_) => {
                // The polls meet the same namespace and report what went wrong.
                self.failed += 1;
                self.walk = None;
            }
        }
    }

    /// Starts walking a namespace. `found` is the access's last result, which may be newer than the start of this answer.
    fn open(
        &mut self,
        engine: &mut Engine<'_>,
        access: &mut dyn Access,
        found: &[Found],
        id: Identity,
    ) -> Option<Walk> {
        let mut walk = || {
            let at = found.iter().position(|found| found.id == id)?;
            let socket = access.open(at).ok()?;
            let (Admission::Known(place) | Admission::New(place)) = engine.admit(found.get(at)?)
            else {
                return None;
            };

            // The inode may belong to another namespace by now: the cookie tells.
            let cookie = namespace_cookie(socket.as_fd()).ok();
            let place = engine.namespaces.recognize(place, cookie);
            let known = engine.namespaces.get(place).cloned();
            let steps = self.walker.begin(&socket, &ask(&self.split)).ok()?;
            Some(Walk { socket, steps, place, known })
        };

        let walk = walk();
        self.failed += u64::from(walk.is_none());
        walk
    }

    /// Writes the end of the object, and closes the kernel's socket.
    fn end(&mut self, cut: Option<Cut>) {
        if self.is_ended {
            return;
        }

        self.is_ended = true;
        self.walk = None;
        let Text { matched, shown, json, .. } = &mut self.text;
        let failed = self.failed;
        let tail = format!(
            "],\"namespaces_failed\":{failed},\"matched\":{matched},\"shown\":{shown},\"truncated\":{}",
            cut.is_some()
        );
        json.extend_from_slice(tail.as_bytes());

        if let Some(cut) = cut {
            let why = format!(",\"truncated_by\":\"{}\"", cut.word());
            json.extend_from_slice(why.as_bytes());
        }

        json.extend_from_slice(b"}\n");
        self.text.send();
        self.text.pen.finish();
    }
}

/// The request to the kernel.
fn ask(split: &Compiled) -> Ask<'_> {
    let Compiled { states, bytecode, .. } = split;
    Ask { transport: Transport::Tcp, states: *states, extensions: Extensions::ALL, bytecode }
}

/// The answer's text so far.
struct Text {
    pen: Pen,
    encoder: Encoder,
    json: Vec<u8>,
    /// Unknown attributes of one socket.
    scratch: Vec<u8>,
    matched: u64,
    shown: u64,
    limit: u64,
    time_unix_ns: u64,
    boot_ns: u64,
}

impl Text {
    fn new(pen: Pen, limit: usize) -> Text {
        Text {
            pen,
            encoder: Encoder::new(Encoding::Jsonl, &FieldSet::ALL),
            json: Vec::with_capacity(CHUNK_BYTES + SOCKET_BYTES),
            scratch: Vec::new(),
            matched: 0,
            shown: 0,
            limit: limit as u64,
            time_unix_ns: realtime_ns(),
            boot_ns: boottime_ns(),
        }
    }

    /// Passes what there is to the reader.
    fn send(&mut self) {
        // A short piece is the last one: nothing follows that would need room.
        let next = Vec::with_capacity(if self.json.len() < CHUNK_BYTES {
            0
        } else {
            CHUNK_BYTES + SOCKET_BYTES
        });
        self.pen.write(std::mem::replace(&mut self.json, next));
    }
}

/// Receives the sockets of one datagram.
struct Visit<'a, 'h> {
    engine: &'a mut Engine<'h>,
    text: &'a mut Text,
    rest: Option<&'a Expr>,
    needs: Needs,
    place: u32,
    known: Option<&'a Known>,
}

impl Visitor for Visit<'_, '_> {
    fn socket(&mut self, message: &SocketMessage<'_>, _raw: &[u8]) {
        let text = &mut *self.text;
        if let Some(rest) = self.rest {
            let age_ns = self.engine.age_ns(message.id.cookie, text.boot_ns);
            let place = Some(self.place);
            if !self.engine.passes_any(rest, self.needs, message, place, age_ns) {
                return;
            }
        }

        // Counted beyond the limit too, because the answer includes the total.
        text.matched += 1;
        if text.shown >= text.limit {
            return;
        }

        if text.shown > 0 {
            text.json.push(b',');
        }
        text.shown += 1;

        let cgroup = message.cgroup_id.and_then(|id| self.engine.cgroup_of(id));
        let identity = self.engine.emission.identity;
        let mut record = identity.record(RecordKind::POLL, text.time_unix_ns);
        let whose = Whose::of(self.known, cgroup.as_deref());
        describe(&mut record, message, &whose, &mut text.scratch);

        text.encoder.encode(&record, &mut text.json);
        // Removes the line end.
        text.json.pop();
        if text.json.len() >= CHUNK_BYTES {
            text.send();
        }
    }

    fn malformed(&mut self, _error: DecodeError) {
        // Counted by the polls, which meet the same sockets.
    }
}
