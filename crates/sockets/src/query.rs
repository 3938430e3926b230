//! Questions to a running collector: the sockets of this moment, as JSON.

use crate::assemble;
use crate::collector::Runner;
use crate::engine::{Engine, fill_attribution};
use crate::filter::{Filter, Needs};
use crate::namespaces::{Admission, Known};
use crate::split::Split;
use crate::walk::{Ask, Visitor};
use record::{Encoder, Encoding, FieldSet, RecordKind};
use std::fmt;
use sys::clock::realtime_ns;
use wire::DecodeError;
use wire::inet_diag::SocketMessage;

/// Why a question has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueryError {
    /// The collector is busy with a poll that takes long.
    Timeout,
    /// The collector has stopped, or is stopping.
    Stopped,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueryError::Timeout => {
                "the collector did not answer in time: a poll is under way; try again"
            }
            QueryError::Stopped => "the collector has stopped",
        })
    }
}

impl std::error::Error for QueryError {}

/// Walks the namespaces and writes those sockets that pass as one JSON object.
///
/// The last poll is not kept for this: of 100,000 sockets it would be 50 MB, and nobody would ask for most of it. A walk
/// with the filter in the kernel costs little and is newer.
pub(crate) fn answer(
    runner: &mut Runner<'_>,
    filter: Option<&Filter>,
    limit: usize,
) -> Result<Vec<u8>, QueryError> {
    let Runner { engine, access, walker, found, options, signal, .. } = runner;
    engine.counts.queries.add(1);
    let split = Split::new(filter, options.states);
    let time_unix_ns = realtime_ns();
    let mut failed = access.discover(&options.scope, found).map_or(1, |_| 0);
    let mut answer = Answer {
        engine,
        encoder: Encoder::new(Encoding::Jsonl, &FieldSet::ALL),
        split: &split,
        needs: filter.map_or(Needs::NONE, Filter::needs),
        json: Vec::new(),
        scratch: Vec::new(),
        known: None,
        place: 0,
        matched: 0,
        shown: 0,
        limit,
        time_unix_ns,
    };
    let namespaces = found.len();
    let ask = Ask {
        states: split.states,
        extensions: wire::inet_diag::Extensions::ALL,
        bytecode: &split.bytecode,
    };
    for (at, found) in found.iter().enumerate() {
        if signal.is_stopping() {
            return Err(QueryError::Stopped);
        }
        let (Admission::Known(place) | Admission::New(place)) = answer.engine.admit(found) else {
            failed += 1;
            continue;
        };
        answer.place = place;
        answer.known = answer.engine.namespaces.get(answer.place).cloned();
        let walked = access.open(at).ok().map(|socket| walker.walk(&socket, &ask, &mut answer));
        failed += u64::from(!matches!(walked, Some(Ok(_))));
    }
    let Answer { json, matched, shown, engine, .. } = answer;
    let poll = engine.moment.poll;
    let mut text = format!(
        "{{\"time_unix_ns\":{time_unix_ns},\"polls\":{poll},\"namespaces\":{namespaces},\"namespaces_failed\":{failed},\
         \"matched\":{matched},\"shown\":{shown},\"sockets\":["
    )
    .into_bytes();
    text.extend_from_slice(json.strip_suffix(b",").unwrap_or(&json));
    text.extend_from_slice(b"]}\n");
    Ok(text)
}

/// Gathers an answer.
struct Answer<'a, 'h> {
    engine: &'a mut Engine<'h>,
    encoder: Encoder,
    split: &'a Split,
    needs: Needs,
    json: Vec<u8>,
    /// Unknown attributes of one socket.
    scratch: Vec<u8>,
    known: Option<Known>,
    place: u32,
    matched: u64,
    shown: u64,
    limit: usize,
    time_unix_ns: u64,
}

impl Visitor for Answer<'_, '_> {
    fn socket(&mut self, message: &SocketMessage<'_>, _raw: &[u8]) {
        if let Some(rest) = &self.split.rest {
            let age_ns = self.engine.age_ns(message.id.cookie, self.time_unix_ns);
            let place = Some(self.place);
            if !self.engine.passes_any(rest, self.needs, message, place, age_ns) {
                return;
            }
        }
        self.matched += 1;
        if self.shown >= self.limit as u64 {
            return;
        }
        self.shown += 1;
        let cgroup = message.cgroup_id.and_then(|id| self.engine.cgroup_of(id));
        self.scratch.clear();
        assemble::unknown_attributes(message, &mut self.scratch);
        let mut record = self.engine.identity.record(RecordKind::POLL, self.time_unix_ns);
        assemble::fill(&mut record, message, assemble::own_accecn_layout());
        fill_attribution(&mut record, self.known.as_ref(), cgroup.as_deref());
        record.unknown_attributes = Some(self.scratch.as_slice()).filter(|raw| !raw.is_empty());
        self.encoder.encode(&record, &mut self.json);
        if let Some(last) = self.json.last_mut() {
            // One line each becomes one list.
            *last = b',';
        }
    }

    fn malformed(&mut self, _error: DecodeError) {
        // Counted by the polls, which meet the same sockets.
    }

    fn pause(&mut self) {
        self.engine.take_closes();
        self.engine.look_out();
        self.engine.counts.heartbeat.add(1);
    }
}
