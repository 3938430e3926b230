//! A socket that is listened with, and what the kernel dropped at it: datagrams, or aggregates of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use sys::gro::{self, Counter};
use sys::socket::{mem_info, refuse_new_datagrams};

/// How a socket hands over what arrives.
#[derive(Debug)]
pub enum Receive {
    /// Each datagram alone.
    Single,
    /// Datagrams of a sender together, where the kernel can. It has the counter attached; without one, the drops that are counted are
    /// the fewest that it can have been.
    Aggregates(Option<Counter>),
}

/// A bound socket, and how it hands over what arrives.
#[derive(Debug)]
pub struct ListenSocket {
    fd: OwnedFd,
    aggregates: Option<Arc<Aggregates>>,
}

impl From<OwnedFd> for ListenSocket {
    /// A socket that hands over each datagram alone.
    fn from(fd: OwnedFd) -> ListenSocket {
        ListenSocket::new(fd, Receive::Single)
    }
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ListenSocket {
    /// A socket that hands over what arrives in this way, as it was set to.
    pub fn new(fd: OwnedFd, receive: Receive) -> ListenSocket {
        let aggregates = match receive {
            Receive::Single => None,
            Receive::Aggregates(counter) => Some(Arc::new(Aggregates::new(counter))),
        };
        ListenSocket { fd, aggregates }
    }

    /// What is known of its aggregates; `None`: it has none.
    pub(crate) fn aggregates(&self) -> Option<&Aggregates> {
        self.aggregates.as_deref()
    }

    /// The same socket under another descriptor.
    pub(crate) fn try_clone(&self) -> io::Result<ListenSocket> {
        let fd = self.fd.try_clone()?;
        Ok(ListenSocket { fd, aggregates: self.aggregates.clone() })
    }

    /// Has it refuse everything that arrives from now on, and count that; what is queued stays readable.
    ///
    /// # Errors
    /// As [`sys::socket::refuse_new_datagrams`].
    pub(crate) fn refuse_new_datagrams(&self) -> io::Result<()> {
        match self.aggregates().and_then(|aggregates| aggregates.counter.as_ref()) {
            Some(counter) => {
                counter.refuse_new_datagrams(self.as_fd())?;
                // What passed before is queued when this returns.
                Ok(gro::settle()?)
            }
            None => refuse_new_datagrams(self.as_fd()),
        }
    }
}

/// What is counted of a socket that hands over aggregates, beside the kernel's own count, which has one for each of them.
///
/// All that is counted here is about datagrams *behind* the first of an aggregate. The counter has those that were about to be queued, we
/// have those that were read, and the difference was dropped, or is still on its way. To tell, a look is begun: the count is taken; all
/// of it is queued or dropped as soon as [`gro::settle`] returns; and when everything that was queued then has been read, what is
/// missing was dropped. So what is said to be dropped was dropped, at each moment; and all of it is said when the socket was empty for
/// a tenth of a second or two. Under a flood that does not end, the drops of the last few tenths are not said yet.
#[derive(Debug)]
pub(crate) struct Aggregates {
    counter: Option<Counter>,
    /// Messages that were read: aggregates or single datagrams.
    messages: AtomicU64,
    /// Datagrams that were read behind the first of an aggregate.
    read: AtomicU64,
    /// How often a receive call found nothing.
    empties: AtomicU64,
    drops: Mutex<Drops>,
}

#[derive(Debug, Default)]
struct Drops {
    /// Of those that passed.
    dropped: u64,
    look: Option<Look>,
}

/// A count whose datagrams are all queued or dropped, and what says that the queued ones are read.
#[derive(Clone, Copy, Debug)]
struct Look {
    passed: u64,
    /// So many messages read.
    messages: u64,
    /// Or nothing found so often.
    empties: u64,
}

/// Fewest bytes that the kernel charges for a queued message: the two structures that describe one alone (`SKB_TRUESIZE`,
/// include/linux/skbuff.h).
const CHARGED_BYTES_MIN: u64 = 512;

impl Aggregates {
    fn new(counter: Option<Counter>) -> Aggregates {
        Aggregates {
            counter,
            messages: AtomicU64::new(0),
            read: AtomicU64::new(0),
            empties: AtomicU64::new(0),
            drops: Mutex::default(),
        }
    }

    /// Whether all drops are counted in the end.
    pub(crate) fn is_exact(&self) -> bool {
        self.counter.is_some()
    }

    /// Notes what a receive call brought.
    pub(crate) fn note_read(&self, messages: u64, datagrams: u64) {
        self.read.fetch_add(datagrams - messages, Ordering::Release);
        self.messages.fetch_add(messages, Ordering::Release);
    }

    /// Notes that a receive call found nothing.
    pub(crate) fn note_empty(&self) {
        self.empties.fetch_add(1, Ordering::Release);
    }

    /// Datagrams behind the first of an aggregate that were dropped, as far as it is known, and never more than before.
    pub(crate) fn dropped(&self, socket: BorrowedFd<'_>) -> u64 {
        let Some(counter) = &self.counter else { return 0 };
        let mut drops = self.drops.lock().unwrap_or_else(PoisonError::into_inner);

        if let Some(look) = drops.look {
            let is_read = self.messages.load(Ordering::Acquire) >= look.messages
                || self.empties.load(Ordering::Acquire) >= look.empties;
            if !is_read {
                return drops.dropped;
            }
            // What was read since the count was taken may be of later ones: then this is less than what was dropped.
            let missing = look.passed.saturating_sub(self.read.load(Ordering::Acquire));
            drops.dropped = drops.dropped.max(missing);
            drops.look = None;
        }

        let passed = counter.passed();
        if passed > self.read.load(Ordering::Acquire) + drops.dropped {
            drops.look = self.begin_look(socket, passed);
        }
        drops.dropped
    }

    fn begin_look(&self, socket: BorrowedFd<'_>, passed: u64) -> Option<Look> {
        gro::settle().ok()?;
        let empties = self.empties.load(Ordering::Acquire);
        let messages = self.messages.load(Ordering::Acquire);
        let queued_bytes = mem_info(socket).ok()?.receive_queued_bytes;
        let queued_max = u64::from(queued_bytes).div_ceil(CHARGED_BYTES_MIN);
        Some(Look {
            passed,
            // A call that is under way may have taken some that it has not noted yet.
            messages: messages + queued_max + sys::recv::BATCH as u64,
            // The one that is under way may have found nothing before this.
            empties: empties + 2,
        })
    }

    /// As [`dropped`](Self::dropped), of a socket that refuses everything and was read until nothing was left.
    pub(crate) fn dropped_in_all(&self) -> u64 {
        let Some(counter) = &self.counter else { return 0 };
        let mut drops = self.drops.lock().unwrap_or_else(PoisonError::into_inner);
        drops.dropped = counter.passed().saturating_sub(self.read.load(Ordering::Acquire));
        drops.dropped
    }

    /// Datagrams behind the first of an aggregate that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.counter.as_ref().map_or(0, Counter::refused)
    }
}

/// What was counted of the drops at a socket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct CountedDrops {
    /// The kernel's count, which wraps.
    pub(crate) kernel: u32,
    /// What [`Aggregates::dropped`] said.
    pub(crate) behind: u64,
}
