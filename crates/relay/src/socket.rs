//! A listening socket, and what the kernel dropped at it: datagrams, or aggregates of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use sys::gro::{self, Counter};
use sys::socket::{mem_info, refuse_new_datagrams};

/// How a socket delivers datagrams.
#[derive(Debug)]
pub enum Receive {
    /// One at a time.
    Single,
    /// Datagrams of one sender together, if the kernel can. The counter is attached to the socket. Without one, the drop count is
    /// a lower bound.
    Aggregates(Option<Counter>),
}

/// A bound socket, and how it delivers datagrams.
#[derive(Debug)]
pub struct ListenSocket {
    fd: OwnedFd,
    aggregates: Option<Arc<Aggregates>>,
}

impl From<OwnedFd> for ListenSocket {
    /// A socket that delivers one datagram at a time.
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
    /// A socket that delivers datagrams in this way, as it was configured.
    pub fn new(fd: OwnedFd, receive: Receive) -> ListenSocket {
        let aggregates = match receive {
            Receive::Single => None,
            Receive::Aggregates(counter) => Some(Arc::new(Aggregates::new(counter))),
        };
        ListenSocket { fd, aggregates }
    }

    /// The state of its aggregates. `None` when it has none.
    pub(crate) fn aggregates(&self) -> Option<&Aggregates> {
        self.aggregates.as_deref()
    }

    /// The same socket under another descriptor.
    pub(crate) fn try_clone(&self) -> io::Result<ListenSocket> {
        let fd = self.fd.try_clone()?;
        Ok(ListenSocket { fd, aggregates: self.aggregates.clone() })
    }

    /// Makes it refuse and count everything that arrives from now on. What is queued stays readable.
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

/// Counts for a socket that delivers aggregates, in addition to the kernel's own drop count, which counts each aggregate once.
///
/// All counts here are of datagrams *behind* the first of an aggregate. The counter has those that were about to be queued, we
/// have those that were read, and the difference was dropped or is still on its way. To tell which, a look begins: it takes the
/// count, all of which is queued or dropped as soon as [`gro::settle`] returns. When everything queued then has been read, what
/// is missing was dropped. So what is reported as dropped really was, at any moment, and all drops are reported once the socket
/// was empty for a tenth of a second or two. Under an endless flood, the drops of the last few tenths are not reported yet.
#[derive(Debug)]
pub(crate) struct Aggregates {
    counter: Option<Counter>,
    /// Messages read: aggregates or single datagrams.
    messages: AtomicU64,
    /// Datagrams read behind the first of an aggregate.
    read: AtomicU64,
    /// How often a receive call found nothing.
    empties: AtomicU64,
    drops: Mutex<Drops>,
}

#[derive(Debug, Default)]
struct Drops {
    /// Dropped, of those that the counter passed.
    dropped: u64,
    look: Option<Look>,
}

/// A count whose datagrams are all queued or dropped, with the conditions under which the queued ones have been read.
#[derive(Clone, Copy, Debug)]
struct Look {
    passed: u64,
    /// Once this many messages were read in total.
    messages: u64,
    /// Or once receive calls found nothing this many times in total.
    empties: u64,
}

/// Minimum that the kernel charges for a queued message, in bytes: just the two structures that describe one (`SKB_TRUESIZE`,
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

    /// Records the result of a receive call.
    pub(crate) fn note_read(&self, messages: u64, datagrams: u64) {
        self.read.fetch_add(datagrams - messages, Ordering::Release);
        self.messages.fetch_add(messages, Ordering::Release);
    }

    /// Records that a receive call found nothing.
    pub(crate) fn note_empty(&self) {
        self.empties.fetch_add(1, Ordering::Release);
    }

    /// Datagrams behind the first of an aggregate that are known to be dropped. Never decreases.
    pub(crate) fn dropped(&self, socket: BorrowedFd<'_>) -> u64 {
        let Some(counter) = &self.counter else { return 0 };
        let mut drops = self.drops.lock().unwrap_or_else(PoisonError::into_inner);

        if let Some(look) = drops.look {
            let is_read = self.messages.load(Ordering::Acquire) >= look.messages
                || self.empties.load(Ordering::Acquire) >= look.empties;
            if !is_read {
                return drops.dropped;
            }
            // Datagrams read since the count was taken may be later ones: then this is less than what was dropped.
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
            // A call in progress may have taken some that it has not recorded yet.
            messages: messages + queued_max + sys::recv::BATCH as u64,
            // The call in progress may have found nothing before this.
            empties: empties + 2,
        })
    }

    /// As [`dropped`](Self::dropped), for a socket that refuses everything and was read until it was empty.
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

/// The drops counted at a socket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct CountedDrops {
    /// The kernel's count, which wraps.
    pub(crate) kernel: u32,
    /// The value of [`Aggregates::dropped`].
    pub(crate) behind: u64,
}
