//! Feeds a listener's datagrams to the analysis.

use super::Shared;
use relay::{Datagram, Flushed, RowTarget, Taken};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Takes one listener's datagrams. The ring is the queue: the analysis takes datagrams at its own speed.
pub(super) struct Tap {
    shared: Arc<Shared>,
    /// Held for as long as datagrams may come.
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
