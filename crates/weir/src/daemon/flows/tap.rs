//! A listener's datagrams on their way to the analysis.

use super::Shared;
use relay::{Datagram, Flushed, RowTarget, Taken};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What takes the datagrams of one listener. The ring is the queue: the analysis takes what it is given, at its own speed.
pub(super) struct Tap {
    shared: Arc<Shared>,
    /// Held as long as something may come.
    _feeding: Arc<()>,
}

impl Tap {
    pub(super) fn new(shared: Arc<Shared>) -> Tap {
        let feeding = shared.feeding();
        Tap { shared, _feeding: feeding }
    }
}

impl RowTarget for Tap {
    fn take(&mut self, datagram: &Datagram<'_>) -> Taken {
        self.shared.take(datagram);
        Taken::Yes
    }

    fn flush(&mut self) -> Flushed {
        Flushed::Yes
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
