//! Closing records: the kernel's close events, joined with what the polls saw of the same sockets.
//!
//! What is known about a connection ([`Life`]), and the effect of each thing that the kernel reports about it:
//!
//! | known | row of its socket | row of its minisock | missing from a complete walk | close event |
//! |---|---|---|---|---|
//! | nothing | `Open`, or rejected | `Remnant` | | judged by the event; "just closed" until events are read again |
//! | rejected | `Open` if it passes now | rejected | forgotten after some polls | filtered, forgotten |
//! | `Open` | `Open` | `Remnant` | `Missing` | record, `Closed` |
//! | `Remnant` | `Remnant` | `Remnant` | `Missing` | record, `Closed` |
//! | `Missing` | `Open` | `Remnant` | forgotten after some polls: unobserved | record, `Closed` |
//! | `Closed`, just closed | `Closed`, from the datagram that the kernel had filled ahead | `Closed` | forgotten | duplicate |
//!
//! "Record" is a record, or the drop reason if there is none: each event has exactly one fate. A connection counted as unobserved
//! may still have an event, if its program reads the close only then; it is judged as an unknown one. `closing/model.rs` tests
//! every legal order.

mod final_record;

use crate::access::{Access, Hears, Scope};
use crate::delta::Recorded;
use crate::ends::{self, Before, End, Final, Look};
use crate::engine::Engine;
use crate::held::Held;
use crate::look::Looker;
use crate::options::Closes;
use crate::table::{Entry, Life};
use crate::turns::Turns;
use ledger::{Amount, Reason};
use std::os::fd::{AsFd, BorrowedFd};
use sys::Errno;
use sys::clock::{boottime_ns, realtime_ns};
use sys::netlink::{EventBatch, Protocol, Received, Socket};
use sys::socket::{mem_info, receive_buffer};
use wire::inet_diag::request::SOCK_DIAG_BY_FAMILY;
use wire::inet_diag::{SocketMessage, decode};
use wire::netlink::Messages;

/// The socket that receives close events.
pub(crate) struct Events {
    socket: Socket,
    batch: EventBatch,
    hears: Hears,
    /// The kernel's count of lost events that is already counted here.
    lost_seen: u32,
    /// A socket in the own namespace for immediate looks there.
    own: Option<Socket>,
}

impl Events {
    /// Whether events of a namespace with this id, or of the own one, are received.
    pub(crate) fn hears(&self, is_own: bool, nsid: Option<i32>) -> bool {
        is_own || (self.hears == Hears::All && nsid.is_some())
    }

    /// Whether events of every namespace with an id are received.
    pub(crate) fn hears_all(&self) -> bool {
        self.hears == Hears::All
    }
}

/// Close events: where they come from, which of them wait, and which may be received twice.
#[derive(Default)]
pub(crate) struct Hearing {
    pub(crate) events: Option<Events>,
    /// Events that wait for a look into their namespace.
    pub(crate) held: Held,
    pub(crate) looker: Looker,
    pub(crate) turns: Turns,
    /// Sorted cookies of sockets that no poll had seen when their close events were last read. The kernel fills one datagram of a
    /// dump ahead, so such a socket may still be listed in the next.
    pub(crate) just_closed: Vec<u64>,
    /// The same for events that may be received again because another socket took over, sorted.
    pub(crate) heard_before: Vec<u64>,
}

/// A close event with its context, before it is decided how the connection ended.
#[derive(Clone, Copy)]
pub(crate) struct Closed {
    /// What the polls saw of the connection, if anything.
    pub(crate) entry: Option<Entry>,
    pub(crate) place: Option<u32>,
    pub(crate) nsid: Option<i32>,
    /// When the event was read.
    pub(crate) unix_ns: u64,
    /// The same on the boot-time clock, which nobody sets.
    pub(crate) boot_ns: u64,
}

/// When something was read, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) unix_ns: u64,
    pub(crate) boot_ns: u64,
}

/// Whether all events that had arrived were taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drained {
    Wholly,
    /// There may be more, for the next turn.
    Partly,
}

/// What becomes of a close event.
enum Fate {
    /// It becomes a record.
    Recorded,
    /// It is left out, for this reason.
    LeftOut(Reason),
    /// It waits for a look into its namespace.
    Held,
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Maximum number of events taken with one call, and bytes reserved for each. An event has 380 bytes on Linux 6.18.
const BATCH_EVENTS: usize = 64;
const EVENT_BYTES: usize = 1_024;
/// Batches after which other work gets a turn: 16,384 events, about 80 ms. The rest waits in the kernel's buffer.
const BATCHES_MAX: usize = 256;

impl Engine<'_> {
    /// Starts receiving close events, including those of other namespaces if that is wanted and allowed.
    pub(crate) fn closes_start(&mut self, access: &mut dyn Access) {
        let wants_all = self.options.scope != Scope::Own;
        let buffer_bytes = self.options.event_buffer_bytes;

        let opened = if wants_all {
            match access.events(Hears::All, buffer_bytes) {
                Ok(socket) => Ok((socket, Hears::All)),
                Err(errno) => {
                    self.problem("events_of_others", || {
                        let needs = match errno {
                            Errno::PERM => ": this takes CAP_NET_BROADCAST",
                            _ => ", and are tried again with each poll",
                        };
                        format!(
                            "close events of other network namespaces cannot be heard ({errno}){needs}; connections there \
                             that close between two polls are missing"
                        )
                    });
                    access.events(Hears::Own, buffer_bytes).map(|socket| (socket, Hears::Own))
                }
            }
        } else {
            access.events(Hears::Own, buffer_bytes).map(|socket| (socket, Hears::Own))
        };

        match opened {
            Ok((socket, hears)) => self.hearing.events = Some(self.events_from(socket, hears)),
            Err(errno) => self.problem("events", || {
                format!("close events cannot be heard ({errno}): connections that close between two polls are missing")
            }),
        }
    }

    /// Tries again to receive the events of other namespaces if [`Self::closes_start`] could not: a helper may be available by
    /// now.
    pub(crate) fn closes_retry(&mut self, access: &mut dyn Access) {
        let hears_all =
            self.hearing.events.as_ref().is_some_and(|events| events.hears == Hears::All);
        let is_wanted = self.options.closes == Closes::On && self.options.scope != Scope::Own;
        if hears_all || !is_wanted {
            return;
        }

        if let Ok(socket) = access.events(Hears::All, self.options.event_buffer_bytes) {
            // What the old socket received is older than what the new one will receive. But both have what came since the new one
            // was opened.
            let mut drained = Drained::Partly;
            while drained == Drained::Partly {
                drained = self.take_closes();
                self.hearing.heard_before.extend_from_slice(&self.hearing.just_closed);
            }

            self.hearing.heard_before.sort_unstable();
            self.hearing.events = Some(self.events_from(socket, Hears::All));
        }
    }

    fn events_from(&mut self, socket: Socket, hears: Hears) -> Events {
        let granted = receive_buffer(socket.as_fd()).unwrap_or_default();
        // Without CAP_NET_ADMIN the kernel grants no more than `net.core.rmem_max`.
        self.counts.event_buffer_bytes.set(granted as u64);

        // Events that do not fit are counted. Without this, those that fit after them would be lost as well.
        if let Err(errno) = socket.lose_only_what_does_not_fit() {
            self.problem("events_overrun", || {
                format!("the kernel will lose more close events than need be once its buffer is full: {errno}")
            });
        }

        let own = Socket::open(Protocol::SockDiag).ok();
        let batch = EventBatch::new(BATCH_EVENTS, EVENT_BYTES);

        // The kernel counts from 0 for each socket: what it lost since this one was opened is ours to count.
        Events { socket, batch, hears, lost_seen: 0, own }
    }

    /// Makes sure that close events of a namespace are received: namespaces without an id send none.
    pub(crate) fn learn_nsid(&mut self, access: &mut dyn Access, at: usize, place: u32) {
        let hears_all =
            self.hearing.events.as_ref().is_some_and(|events| events.hears == Hears::All);
        let known = self.namespaces.get(place);
        if !hears_all || known.is_none_or(|known| known.nsid.is_some() || known.is_own) {
            return;
        }

        // The scout assigns the id, and counts what had closed in the namespace before.
        if let Some(scout) = &mut self.scout {
            return scout.call();
        }

        match access.nsid(at) {
            Ok(nsid) => _ = self.namespaces.set_nsid(place, nsid),
            Err(Errno::NOENT) => {}
            Err(errno) => self.has_no_nsid(errno),
        }
    }

    /// Turns the close events that have arrived into records, and counts those that were lost.
    pub(crate) fn take_closes(&mut self) -> Drained {
        self.hearing.just_closed.clear();
        // Taken out while its datagrams are processed: each of them may change anything else in the engine.
        let Some(mut events) = self.hearing.events.take() else { return Drained::Wholly };

        let mut drained = Drained::Partly;
        for _ in 0..BATCHES_MAX {
            match events.batch.receive(&events.socket) {
                Ok(count) => {
                    let now = Now { unix_ns: realtime_ns(), boot_ns: boottime_ns() };
                    for received in events.batch.datagrams() {
                        self.take_datagram(&received, events.own.as_ref(), now);
                    }
                    // Fewer than there was room for: none is left.
                    if count < BATCH_EVENTS {
                        drained = Drained::Wholly;
                        break;
                    }
                }
                // ENOBUFS reports once that some were lost. How many is counted below, and the rest can be read.
                Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(Errno::AGAIN) => {
                    drained = Drained::Wholly;
                    break;
                }
                Err(errno) => {
                    self.problem("events_read", || format!("close events cannot be read: {errno}"));
                    drained = Drained::Wholly;
                    break;
                }
            }
        }

        // Rows are searched in it during the rest of the poll.
        self.hearing.just_closed.sort_unstable();
        self.count_lost(&mut events);
        self.hearing.events = Some(events);
        drained
    }

    fn count_lost(&mut self, events: &mut Events) {
        let Ok(info) = mem_info(events.as_fd()) else { return };
        // The kernel's counter has 32 bits and wraps.
        let lost = info.dropped_datagrams.wrapping_sub(events.lost_seen);
        events.lost_seen = info.dropped_datagrams;
        self.counts.events_lost.add(lost.into());
        self.sums.closes_lost += u64::from(lost);
    }

    pub(crate) fn take_datagram(
        &mut self,
        received: &Received<'_>,
        own: Option<&Socket>,
        now: Now,
    ) {
        if received.sender_port_id != 0 {
            // Another process may send to our port. The kernel's own port id is 0.
            return;
        }

        for message in Messages::new(received.bytes) {
            let amount = Amount::one(message.map_or(0, |message| message.raw.len()));
            self.counts.events.add(amount);

            let fate =
                match message.map(|message| (message.kind, message.body, decode(message.body))) {
                    Ok((SOCK_DIAG_BY_FAMILY, body, Ok(event))) => {
                        let closed = self.closed(&event, received.nsid, now);
                        self.close(&event, closed, own, (body, amount))
                    }
                    _ => Fate::LeftOut(Reason::Malformed),
                };

            match fate {
                Fate::Recorded => self.count_close(Ok(()), amount),
                Fate::LeftOut(reason) => self.count_close(Err(reason), amount),
                Fate::Held => {}
            }
        }
    }

    /// Counts a close event once its outcome is known.
    pub(crate) fn count_close(&mut self, outcome: Result<(), Reason>, amount: Amount) {
        self.sums.closes_observed += 1;
        match outcome {
            Ok(()) => {
                self.counts.closed.delivered.add(amount);
                self.sums.closes_emitted += 1;
            }
            Err(reason) => {
                self.counts.closed.drop(reason, amount);
                self.sums.close_left_out(reason);
            }
        }
    }

    /// Joins an event with what is known about its socket, which counts as closed from here on.
    fn closed(&mut self, event: &SocketMessage<'_>, nsid: Option<i32>, now: Now) -> Closed {
        let entry = self.table.get_mut(event.id.cookie).map(|entry| {
            let before = *entry;
            entry.life = Life::Closed;
            // Its last record is the closing one. A row that the kernel had listed before has no difference to it.
            entry.recorded = Recorded::default();
            before
        });

        if entry.is_none() {
            // Its row may still come if the kernel had filled the datagram before.
            self.hearing.just_closed.push(event.id.cookie);
        }

        let place = match nsid {
            Some(nsid) => self.namespaces.by_nsid(nsid).or_else(|| self.place_of_stranger(nsid)),
            None => self.namespaces.own(),
        };

        // A cookie belongs to one socket for as long as the host runs, but an id may be reassigned to another namespace.
        let place = entry.map(|entry| entry.namespace).or(place);

        Closed { entry, place, nsid, unix_ns: now.unix_ns, boot_ns: now.boot_ns }
    }

    /// Makes a closing record, or lets the event wait, or returns why there is no record.
    fn close(
        &mut self,
        event: &SocketMessage<'_>,
        closed: Closed,
        own: Option<&Socket>,
        (body, amount): (&[u8], Amount),
    ) -> Fate {
        let is_known_closed = closed.entry.is_some_and(|entry| entry.life == Life::Closed);
        if is_known_closed || self.hearing.heard_before.binary_search(&event.id.cookie).is_ok() {
            return Fate::LeftOut(Reason::Duplicate);
        }

        if self.is_elsewhere(&closed) {
            return Fate::LeftOut(Reason::Elsewhere);
        }

        let end = Final::of(event);
        let before = closed.entry.as_ref().map(Before::of);
        if ends::end_of(&end, before.as_ref(), None) == End::NoConnection {
            self.counts.never_connected.add(1);
            return Fate::LeftOut(Reason::NeverConnected);
        }

        // Counted before the filter decides, because it is compared with the kernel's count of all connections in the namespace.
        if let Some(place) = closed.place {
            self.namespaces.heard(place);
        }
        if let Err(reason) = self.choose_close(event, &closed) {
            return Fate::LeftOut(reason);
        }

        // If event and polls leave the end open, the kernel may still have something at these addresses. In the own namespace it
        // is asked at once. Another namespace takes a visit, so the event waits for others of that namespace.
        let mut look = None;
        if ends::needs_look(&end, before.as_ref()) {
            match closed.place {
                Some(place) if self.namespaces.own() == Some(place) => {
                    look = own.and_then(|socket| self.hearing.looker.look(socket, &event.id));
                }
                Some(place) if !self.hearing.held.is_full() => {
                    self.hearing.held.push(closed, place, body, amount);
                    return Fate::Held;
                }
                // The namespace is unknown, or too many events wait already: decide without a look.
                _ => {}
            }
        }

        self.close_with(event, &closed, look);
        Fate::Recorded
    }

    /// Whether it closed in a namespace that is not collected: one without a chosen name, or one beyond the limit. In the scope
    /// [`Scope::Own`] the socket receives no other events.
    fn is_elsewhere(&self, closed: &Closed) -> bool {
        let is_named = matches!(self.options.scope, Scope::Named(_));
        let are_left_out = closed.nsid.is_some() && self.counts.namespaces_left_out.load() > 0;
        closed.place.is_none() && (is_named || are_left_out)
    }

    /// Makes the record of a close.
    pub(crate) fn close_with(
        &mut self,
        event: &SocketMessage<'_>,
        closed: &Closed,
        look: Option<Look>,
    ) {
        let before = closed.entry.as_ref().map(Before::of);
        let end = Final::of(event);
        let End::Connection(reason) = ends::end_of(&end, before.as_ref(), look) else {
            return;
        };
        let role = ends::role_of(&end, before.as_ref(), look);

        if closed.entry.is_none() {
            self.counts.unpolled.add(1);
        }
        if let Some(count) = self.counts.ended.get(usize::from(reason.0)) {
            count.add(1);
        }

        self.emit_close(event, closed, reason, role);
    }
}

#[cfg(test)]
mod model;
