//! Connections of a new namespace that closed before anybody could hear them.
//!
//! Only their number is known: the namespace itself counts the connections that were opened in it. Those that are neither
//! there nor heard are *unheard*. That is too high by what the kernel has still to report, so it is counted again.

use crate::closing::Drained;
use crate::engine::Engine;
use crate::says::is_remnant;
use crate::walk::{Ask, Transport, Visitor};
use std::time::{Duration, Instant};
use sys::Errno;
use sys::namespace::{Error, Identity};
use wire::DecodeError;
use wire::inet_diag::{Extensions, SocketMessage, States};

/// Time from the first count of a newcomer's connections to the second; from there to the third it is four times that. Closes that
/// the kernel was about to report at one are heard by the next (net/core/sock_diag.c, sock_diag_broadcast_destroy: a work queue).
const RECOUNT_AFTER: Duration = Duration::from_millis(10);
/// Tries to count while connections open and close.
const COUNT_TRIES: usize = 3;
/// Turns of taking close events before a count: half a second of them at most, and the count is a guess then.
const DRAINS_MAX: usize = 4;
/// Counts of one newcomer, if there seem to be unheard connections.
const COUNTS: u32 = 3;

/// A namespace whose connections may have closed before it was heard.
pub(crate) struct Newcomer {
    place: u32,
    id: Identity,
    /// When to count next.
    pub(crate) due: Instant,
    counts: u32,
    /// The lowest of the counts in which nothing changed meanwhile, else of the others. Each is too high by what the kernel had
    /// still to report.
    unheard: Option<Count>,
}

/// Unheard connections of a namespace. In the order of preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Count {
    /// As many, or fewer by what the kernel has still to report.
    Steady(u64),
    /// About as many: connections were opened and closed meanwhile.
    Guess(u64),
}

impl Newcomer {
    /// The one at this place, to be counted at once.
    pub(crate) fn new(place: u32, id: Identity) -> Newcomer {
        Newcomer { place, id, due: Instant::now(), counts: 0, unheard: None }
    }
}

impl Engine<'_> {
    /// Counts the connections of a newcomer that closed before they could be heard, and again if there seem to be any.
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

    /// Publishes what the counts so far say, before the end.
    pub(crate) fn settle_newcomers(&mut self) {
        let newcomers = self.scout.as_mut().map(|scout| std::mem::take(&mut scout.newcomers));
        for newcomer in newcomers.unwrap_or_default() {
            self.tell_unheard(&newcomer);
        }
    }

    fn tell_unheard(&mut self, newcomer: &Newcomer) {
        let Some(Count::Steady(unheard) | Count::Guess(unheard)) = newcomer.unheard else {
            // It ended before anybody could count.
            return self.vanished();
        };
        self.sums.connections_unheard += unheard;
        self.counts.unheard.add(unheard);
    }

    /// Connections of a namespace that were opened, and are neither there nor heard.
    fn unheard(&mut self, newcomer: &Newcomer) -> Result<Count, Error> {
        let mut guess = 0;
        for _ in 0..COUNT_TRIES {
            let opened = self.opened(newcomer.id)?;
            let heard = self.heard(newcomer.place);
            // Each connection that was opened has been heard closing, so none is left to count.
            if opened <= heard {
                return Ok(Count::Steady(0));
            }

            let alive = self.alive(newcomer.id)?;
            guess = opened.saturating_sub(heard + alive);
            // Nothing was opened or heard between the readings, so that they belong together.
            if self.opened(newcomer.id)? == opened && self.heard(newcomer.place) == heard {
                return Ok(Count::Steady(guess));
            }
        }

        Ok(Count::Guess(guess))
    }

    /// Closes heard from a namespace, those included that wait to be read.
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

    /// Connections that have a socket in a namespace: each has its close event before it.
    fn alive(&mut self, id: Identity) -> Result<u64, Error> {
        let scout = self.scout.as_mut().ok_or(Error::Gone)?;
        let at = scout.found.iter().position(|found| found.id == id).ok_or(Error::Gone)?;
        let socket = scout.access.open(at)?;
        // Without listeners, handshakes and TIME-WAIT: these have no close event of a connection to come.
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
