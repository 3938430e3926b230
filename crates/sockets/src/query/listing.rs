//! The sockets that pass a filter as JSON, as they are found: an answer of any size in bounded memory.

use super::pipe::{Answer, Pen, Waiting, pipe};
use super::round::{Listed, Round, Step};
use super::{Asker, READER_WAIT_MAX, TURN, Turn, WALK_MAX};
use crate::describe::{Whose, describe};
use crate::filter::{Compiled, Expr, Filter, Needs};
use crate::runner::Runner;
use record::{Encoder, Encoding, FieldSet, RecordKind};
use std::time::Instant;
use sys::clock::{boottime_ns, realtime_ns};

/// Bytes of a piece of an answer, but for the end of its last socket.
const CHUNK_BYTES: usize = 64 * 1024;
/// Room for that.
const SOCKET_BYTES: usize = 4 * 1024;

/// What is asked for.
pub(crate) struct Wanted {
    pub(crate) filter: Option<Filter>,
    pub(crate) limit: usize,
}

/// A list on its way to its asker.
pub(crate) type Question = Asker<Wanted, Answer>;

/// Why an answer has not all that it should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
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

/// A list that is under way.
///
/// The last poll is not kept for this: of 100,000 sockets it would be 50 MB, and nobody would ask for most of it. A walk
/// with the filter in the kernel costs little and is newer.
pub(super) struct Listing {
    text: Text,
    rest: Option<Expr>,
    needs: Needs,
    round: Round,
    pub(super) began: Instant,
    /// Since when as much waits for the reader as may.
    full_since: Option<Instant>,
    is_ended: bool,
}

impl Listing {
    /// Begins the answer, and lets the asker have its end of the pipe. `None` if the asker has gone.
    pub(super) fn begin(runner: &mut Runner<'_>, question: Question) -> Option<Listing> {
        let (pen, answer) = pipe(&runner.signal);
        // The asker has its end from now on, and reads the answer while it is made.
        question.answer.send(answer).ok()?;

        let Wanted { filter, limit } = question.wanted;
        let Compiled { states, bytecode, rest, .. } =
            Compiled::of(filter.as_ref(), runner.options.states);
        let round = Round::begin(runner, states, bytecode, question.reach);
        let mut text = Text::new(pen, limit);
        text.json.extend_from_slice(
            format!(
                "{{\"time_unix_ns\":{},\"polls\":{},\"namespaces\":{},\"sockets\":[",
                text.time_unix_ns,
                runner.engine.moment.poll,
                round.left()
            )
            .as_bytes(),
        );

        let needs = filter.as_ref().map_or(Needs::NONE, Filter::needs);
        let began = Instant::now();
        Some(Listing { text, rest, needs, round, began, full_since: None, is_ended: false })
    }

    /// Works on it for a moment. `None`: it is finished, or its reader has gone.
    pub(super) fn turn(&mut self, runner: &mut Runner<'_>) -> Option<Turn> {
        let turn_began = Instant::now();
        while turn_began.elapsed() < TURN {
            let age = self.began.elapsed();
            match self.text.pen.waiting() {
                Waiting::Nobody => return None,
                _ if self.is_ended => return None,
                _ if age >= WALK_MAX => self.end(Some(Cut::Time)),
                Waiting::Full => {
                    // The reader wakes the thread when it takes something; until then there is nothing to do.
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

    /// Reads one datagram, or opens the next namespace, or ends the answer.
    fn step(&mut self, runner: &mut Runner<'_>) {
        let Listing { text, rest, needs, round, .. } = self;
        let step = round.step(runner, |listed| text.take(listed, rest.as_ref(), *needs));
        if step == Step::Over {
            self.end(None);
        }
    }

    /// Writes the end of the object, and lets go of the kernel.
    pub(super) fn end(&mut self, cut: Option<Cut>) {
        if self.is_ended {
            return;
        }

        self.is_ended = true;
        self.round.end();
        let Text { matched, shown, json, .. } = &mut self.text;
        let failed = self.round.failed;
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

    /// What waits for its reader.
    pub(super) fn into_pen(self) -> Pen {
        self.text.pen
    }
}

/// The answer's text, as far as it is made.
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

    /// Gives the reader what there is.
    fn send(&mut self) {
        // A short piece is the last one: nothing follows that would need room.
        let next = Vec::with_capacity(if self.json.len() < CHUNK_BYTES {
            0
        } else {
            CHUNK_BYTES + SOCKET_BYTES
        });
        self.pen.write(std::mem::replace(&mut self.json, next));
    }

    fn take(&mut self, listed: Listed<'_, '_>, rest: Option<&Expr>, needs: Needs) {
        let Listed { engine, place, known, message } = listed;
        if engine.is_served(message, Some(place)) {
            return;
        }
        if let Some(rest) = rest {
            let age_ns = engine.age_ns(message.id.cookie, self.boot_ns);
            let place = Some(place);
            if !engine.passes_any(rest, needs, message, place, age_ns) {
                return;
            }
        }

        // Counted beyond the limit too: the answer says how many there are.
        self.matched += 1;
        if self.shown >= self.limit {
            return;
        }

        if self.shown > 0 {
            self.json.push(b',');
        }
        self.shown += 1;

        let cgroup = message.cgroup_id.and_then(|id| engine.cgroup_of(id));
        let identity = engine.emission.identity;
        let mut record = identity.record(RecordKind::POLL, self.time_unix_ns);
        let whose = Whose::of(known, cgroup.as_deref());
        describe(&mut record, message, &whose, &mut self.scratch);

        self.encoder.encode(&record, &mut self.json);
        // The end of the line.
        self.json.pop();
        if self.json.len() >= CHUNK_BYTES {
            self.send();
        }
    }
}
