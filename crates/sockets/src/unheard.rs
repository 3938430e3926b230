//! Connections of a new namespace that closed before they could be heard.
//!
//! Only their number is known: the namespace itself counts the connections opened in it. Those that are neither alive nor were
//! heard closing are *unheard*. The number is too high by what the kernel has yet to report, so the count is repeated.

use crate::closing::Drained;
use crate::engine::Engine;
use crate::says::is_remnant;
use crate::walk::{Ask, Transport, Visitor};
use std::time::{Duration, Instant};
use sys::Errno;
use sys::namespace::{Error, Identity};
use wire::DecodeError;
use wire::inet_diag::{Extensions, SocketMessage, States};

/// Time from the first count of a newcomer's connections to the second; four times that until the third. Closes that the kernel
/// was about to report at one count are heard by the next (net/core/sock_diag.c, sock_diag_broadcast_destroy: a work queue).
const RECOUNT_AFTER: Duration = Duration::from_millis(10);
/// Attempts to count while connections open and close.
const COUNT_TRIES: usize = 3;
/// Turns of taking close events before a count: at most half a second of them. The count is a guess if that is not enough.
const DRAINS_MAX: usize = 4;
/// Counts per newcomer, if there seem to be unheard connections.
const COUNTS: u32 = 3;

/// A namespace whose connections may have closed before it was heard.
pub(crate) struct Newcomer {
    place: u32,
    id: Identity,
    /// When to count next.
    pub(crate) due: Instant,
    counts: u32,
    /// The lowest count during which nothing changed, or else the lowest of the others. Each is too high by what the kernel had
    /// yet to report.
    unheard: Option<Count>,
}

/// Unheard connections of a namespace, in order of preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Count {
    /// This many, or fewer by what the kernel has yet to report.
    Steady(u64),
    /// About this many: connections opened and closed meanwhile.
    Guess(u64),
}

impl Newcomer {
    /// A newcomer at this place, to be counted at once.
    pub(crate) fn new(place: u32, id: Identity) -> Newcomer {
        Newcomer { place, id, due: Instant::now(), counts: 0, unheard: None }
    }
}

impl Engine<'_> {
    /// Counts the connections of a newcomer that closed before they could be heard, and repeats that if there seem to be any.
    pub(crate) fn count_unheard(&mut self, mut newcomer: Newcomer) {
        newcomer.counts += 1;
        let is_last = match self.unheard(&newcomer) {
            Ok(count) => {
                newcomer.unheard = Some(newcomer.unheard.map_or(count, |before| before.min(count)));
                count == Count::Steady(0) || newcomer.counts >= COUNTS
            }
            Err(Error::Gone) => true,
            // This access cannot count.
            Err(_) => return,
        };

        if is_last {
            return self.tell_unheard(&newcomer);
        }

        if let Some(scout) = &mut self.scout {
            newcomer.due = Instant::now() + RECOUNT_AFTER * newcomer.counts.pow(2);
            scout.newcomers.push(newcomer);
        }
    }

    /// Publishes the results of the counts so far, before the end.
    pub(crate) fn settle_newcomers(&mut self) {
        let newcomers = self.scout.as_mut().map(|scout| std::mem::take(&mut scout.newcomers));
        for newcomer in newcomers.unwrap_or_default() {
            self.tell_unheard(&newcomer);
        }
    }

    fn tell_unheard(&mut self, newcomer: &Newcomer) {
        let Some(Count::Steady(unheard) | Count::Guess(unheard)) = newcomer.unheard else {
            // It ended before it could be counted.
            return self.vanished();
        };
        self.sums.connections_unheard += unheard;
        self.counts.unheard.add(unheard);
    }

    /// Number of connections of a namespace that were opened, and are neither alive nor were heard closing.
    fn unheard(&mut self, newcomer: &Newcomer) -> Result<Count, Error> {
        let mut guess = 0;
        for _ in 0..COUNT_TRIES {
            let opened = self.opened(newcomer.id)?;
            let heard = self.heard(newcomer.place);
            // Every connection that was opened has been heard closing, so none is left to count.
            if opened <= heard {
                return Ok(Count::Steady(0));
            }

            let alive = self.alive(newcomer.id)?;
            guess = opened.saturating_sub(heard + alive);
            // Nothing was opened or heard between the readings, so they belong together.
            if self.opened(newcomer.id)? == opened && self.heard(newcomer.place) == heard {
                return Ok(Count::Steady(guess));
            }
        }

        Ok(Count::Guess(guess))
    }

    /// Closes heard from a namespace, including those that wait to be read.
    fn heard(&mut self, place: u32) -> u64 {
        for _ in 0..DRAINS_MAX {
            if self.take_closes() == Drained::Wholly {
                break;
            }
        }
        self.namespaces.get(place).map_or(0, |known| known.heard)
    }

    fn opened(&mut self, id: Identity) -> Result<u64, Error> {
        let scout = self.scout.as_mut().ok_or(Error::Gone)?;
        let at = scout.found.iter().position(|found| found.id == id).ok_or(Error::Gone)?;
        scout.access.tcp_counts(at).map(|counts| counts.opened)
    }

    /// Connections that have a socket in a namespace: their close events are still to come.
    fn alive(&mut self, id: Identity) -> Result<u64, Error> {
        let scout = self.scout.as_mut().ok_or(Error::Gone)?;
        let at = scout.found.iter().position(|found| found.id == id).ok_or(Error::Gone)?;
        let socket = scout.access.open(at)?;
        // Without listeners, handshakes and TIME-WAIT, for which no close event of a connection will come.
        let ask = Ask {
            transport: Transport::Tcp,
            states: States::DEFAULT,
            extensions: Extensions::NONE,
            bytecode: &[],
        };
        let mut alive = Alive(0);
        let failed = |_| Error::Syscall { call: "walk", errno: Errno::IO };
        scout.walker.walk(&socket, &ask, &mut alive).map_err(failed)?;
        Ok(alive.0)
    }
}

/// Counts sockets of connections.
struct Alive(u64);

impl Visitor for Alive {
    fn socket(&mut self, message: &SocketMessage<'_>, _raw: &[u8]) {
        self.0 += u64::from(!is_remnant(message));
    }

    fn malformed(&mut self, _error: DecodeError) {
        // Counted by the polls, which meet the same sockets.
    }
}
