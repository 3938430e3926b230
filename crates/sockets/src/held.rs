//! Close events of other namespaces that wait for a look into their namespace.
//!
//! A look takes a socket there: 23 µs to enter, open, ask and leave, and 2.5 µs for each further question. So events wait a
//! moment for others of the same namespace. What they look for remains for a minute (TIME-WAIT).

use crate::access::{Access, Found};
use crate::closing::Closed;
use crate::ends::Look;
use crate::engine::Engine;
use ledger::Amount;
use std::time::{Duration, Instant};
use wire::inet_diag::decode;

/// Maximum number of waiting events. Those that arrive when it is reached are decided without a look.
pub(crate) const HELD_MAX: usize = 8_192;
/// Number of events at which they stop waiting: half, to leave room for what arrives meanwhile.
const HELD_DUE: usize = HELD_MAX / 2;
/// How long an event waits for others of its namespace. Its record waits longer for others anyway (`FLUSH_AFTER`). With 20 ms,
/// 100 busy namespaces were entered 5,000 times a second, at 23 µs each, and twice that through the helper.
const WAIT: Duration = Duration::from_millis(500);
/// Number of events whose memory is kept for reuse.
const KEPT_EVENTS: usize = 512;
/// Maximum number of namespaces entered in one turn: a few milliseconds.
const VISITS_MAX: usize = 100;

/// The waiting events, in order of arrival.
#[derive(Default)]
pub(crate) struct Held {
    events: Vec<HeldEvent>,
    /// The bodies of their messages, concatenated.
    bytes: Vec<u8>,
    since: Option<Instant>,
    /// The place at which the next turn starts, so that every namespace gets its turn when there are more than one turn takes.
    first_place: u32,
    /// Emptied buffers of the last turn, kept for their memory.
    spare: (Vec<HeldEvent>, Vec<u8>),
}

struct HeldEvent {
    closed: Closed,
    /// Place of the namespace to look into.
    place: u32,
    start: usize,
    len: usize,
    amount: Amount,
}

impl Held {
    /// Time until the next turn is due. `None` when nothing waits.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.since.map(|since| wait(self.events.len()).saturating_sub(since.elapsed()))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= HELD_MAX
    }

    pub(crate) fn push(&mut self, closed: Closed, place: u32, body: &[u8], amount: Amount) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(body);
        self.events.push(HeldEvent { closed, place, start, len: body.len(), amount });
        self.since.get_or_insert_with(Instant::now);
    }

    /// Takes everything, and leaves reused buffers for new events.
    fn take(&mut self) -> (Vec<HeldEvent>, Vec<u8>) {
        self.since = None;
        let (events, bytes) = std::mem::take(&mut self.spare);
        (std::mem::replace(&mut self.events, events), std::mem::replace(&mut self.bytes, bytes))
    }

    fn give_back(&mut self, (mut events, mut bytes): (Vec<HeldEvent>, Vec<u8>)) {
        events.clear();
        bytes.clear();
        // Do not keep megabytes because of a burst.
        events.shrink_to(KEPT_EVENTS);
        bytes.shrink_to(KEPT_EVENTS * 512);
        self.spare = (events, bytes);
    }
}

/// Whether events that have not waited long are left waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settle {
    /// Only a turn that is due.
    Due,
    /// Everything, now: there is no later turn.
    All,
}

impl Engine<'_> {
    /// Looks into the namespaces of the waiting events, and makes their records.
    ///
    /// `found` is the access's last result: indices into it are those that the access knows.
    pub(crate) fn settle(&mut self, access: &mut dyn Access, found: &[Found], settle: Settle) {
        let is_due =
            self.hearing.held.due_in().is_some_and(|left| left.is_zero() || settle == Settle::All);
        if !is_due {
            return;
        }

        // The scout knows namespaces that no poll has found yet.
        let mut scout = self.scout.take();
        let (access, found): (&mut dyn Access, _) = match &mut scout {
            Some(scout) => (&mut *scout.access, &*scout.found),
            None => (access, found),
        };

        let since = self.hearing.held.since;
        let (mut events, bytes) = self.hearing.held.take();
        let first_place = std::mem::take(&mut self.hearing.held.first_place);
        // Grouped by namespace, starting with the one where the last turn stopped.
        events.sort_by_key(|event| event.place.wrapping_sub(first_place));

        for (visits, events) in events.chunk_by(|a, b| a.place == b.place).enumerate() {
            let place = events.first().map_or(0, |event| event.place);
            if visits >= VISITS_MAX && settle == Settle::Due {
                if visits == VISITS_MAX {
                    self.hearing.held.first_place = place;
                }
                for event in events {
                    let body = body(&bytes, event);
                    self.hearing.held.push(event.closed, event.place, body, event.amount);
                }
                // They have waited already: the next turn is theirs.
                self.hearing.held.since = since;
                continue;
            }

            let known = self.namespaces.get(place);
            let at = known.and_then(|known| found.iter().position(|found| found.id == known.id));
            // Closed before the next namespace is entered, so that it keeps none alive.
            let socket = at.and_then(|at| access.open(at).ok());

            for event in events {
                // It was decoded before it was held.
                let Ok(message) = decode(body(&bytes, event)) else { continue };
                let look: Option<Look> = socket
                    .as_ref()
                    .and_then(|socket| self.hearing.looker.look(socket, &message.id));
                self.close_with(&message, &event.closed, look);
                self.count_close(Ok(()), event.amount);
            }
        }

        self.hearing.held.give_back((events, bytes));
        self.scout = scout;
    }
}

/// How long events wait when there are this many.
fn wait(events: usize) -> Duration {
    if events < HELD_DUE { WAIT } else { Duration::ZERO }
}

fn body<'b>(bytes: &'b [u8], event: &HeldEvent) -> &'b [u8] {
    bytes.get(event.start..event.start + event.len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_wait_for_others_while_there_is_room_for_twice_as_many() {
        assert_eq!((wait(1), wait(HELD_DUE - 1)), (WAIT, WAIT));
        assert_eq!((wait(HELD_DUE), wait(HELD_MAX)), (Duration::ZERO, Duration::ZERO));
    }
}
