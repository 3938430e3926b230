//! The outlets that are sockets, or nothing.

mod header;
mod kernel;
mod peer;
mod refusal;
mod senders;
mod udp;
mod unix;
mod unsettled;

use crate::TargetKind;
use crate::meter::TargetMeter;
use crate::pump::Replaced;
use crate::target::{InCommon, Outlet, Sources};
use kernel::Sockets;
use ledger::Reason;
use std::os::fd::BorrowedFd;
use sys::Errno;
use sys::send::Message;

#[cfg(all(test, not(loom)))]
pub(crate) use kernel::UdpKernel;
pub use peer::UnixPeer;
pub(crate) use udp::UdpOutlet;
pub(crate) use unix::UnixOutlet;

/// The outlet of a target that never blocks its thread.
pub(crate) enum SocketOutlet {
    Udp(Box<UdpOutlet<Sockets>>),
    Unix(UnixOutlet),
    /// Accepts everything.
    Null,
    /// Accepts nothing: there is no address.
    Unresolved,
    /// Accepts nothing: there is no route to the address.
    NoRoute,
}

impl SocketOutlet {
    /// The outlet for a destination. `None` for a file, a sink or a link, which are not outlets.
    pub(crate) fn new(destination: TargetKind) -> Option<SocketOutlet> {
        Some(match destination {
            TargetKind::Udp { socket, gso, source_address, path } => {
                let sockets = Sockets::new(socket, &source_address);
                SocketOutlet::Udp(Box::new(UdpOutlet::new(sockets, gso, source_address, path)))
            }
            TargetKind::Unix { peer } => SocketOutlet::Unix(UnixOutlet::new(peer)),
            TargetKind::Null => SocketOutlet::Null,
            TargetKind::Unresolved => SocketOutlet::Unresolved,
            TargetKind::NoRoute => SocketOutlet::NoRoute,
            TargetKind::File(_)
            | TargetKind::Rows(_)
            | TargetKind::Link { .. }
            | TargetKind::LinkSocket(_) => return None,
        })
    }
}

impl Outlet for SocketOutlet {
    fn send(&mut self, messages: &[Message<'_>], sources: Sources<'_>) -> Result<usize, Errno> {
        match self {
            SocketOutlet::Udp(udp) => udp.send(messages, sources),
            SocketOutlet::Unix(unix) => unix.send(messages),
            SocketOutlet::Null => Ok(messages.len()),
            SocketOutlet::Unresolved => Err(Errno::DESTADDRREQ),
            SocketOutlet::NoRoute => Err(Errno::NETUNREACH),
        }
    }

    fn refusing(&self, now_ns: u64) -> Option<Reason> {
        match self {
            SocketOutlet::Udp(udp) => udp.refusing(now_ns),
            SocketOutlet::Unix(unix) => unix.refusing(now_ns),
            SocketOutlet::Unresolved => Some(Reason::TargetUnresolved),
            SocketOutlet::NoRoute => Some(Reason::NetworkUnreachable),
            SocketOutlet::Null => None,
        }
    }

    fn run_datagram_bytes_max(&self, _now_ns: u64) -> usize {
        match self {
            SocketOutlet::Udp(udp) => udp.run_datagram_bytes_max(),
            SocketOutlet::Unix(_) => 0,
            SocketOutlet::Null | SocketOutlet::Unresolved | SocketOutlet::NoRoute => usize::MAX,
        }
    }

    fn in_common(&self) -> InCommon {
        match self {
            SocketOutlet::Udp(udp) => udp.in_common(),
            _ => InCommon::Nothing,
        }
    }

    fn limit_runs(&mut self, datagram_bytes: usize) {
        if let SocketOutlet::Udp(udp) = self {
            udp.limit_runs(datagram_bytes);
        }
    }

    fn take_returned(&mut self, meter: &TargetMeter, now_ns: u64) {
        match self {
            SocketOutlet::Udp(udp) => udp.take_returned(meter, now_ns),
            SocketOutlet::Unix(unix) => meter.socket_renewals.add(unix.take_renewals()),
            SocketOutlet::Null | SocketOutlet::Unresolved | SocketOutlet::NoRoute => {}
        }
    }

    fn is_unanswered(&self) -> bool {
        match self {
            SocketOutlet::Udp(udp) => udp.is_unanswered(),
            _ => false,
        }
    }

    fn has_outstanding(&mut self) -> bool {
        match self {
            SocketOutlet::Udp(udp) => udp.has_outstanding(),
            _ => false,
        }
    }

    fn begin_drain(&mut self, now_ns: u64) {
        if let SocketOutlet::Unix(unix) = self {
            unix.begin_drain(now_ns);
        }
    }

    fn give_up_outstanding(&mut self) {
        if let SocketOutlet::Udp(udp) = self {
            udp.give_up_outstanding();
        }
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            SocketOutlet::Udp(udp) => udp.writable_socket(),
            SocketOutlet::Unix(unix) => unix.socket(),
            SocketOutlet::Null | SocketOutlet::Unresolved | SocketOutlet::NoRoute => None,
        }
    }

    fn has_socket(&self) -> bool {
        matches!(self, SocketOutlet::Udp(_) | SocketOutlet::Unix(_))
    }

    fn reports_all(&self) -> bool {
        match self {
            SocketOutlet::Udp(udp) => udp.reports_all(),
            _ => true,
        }
    }

    fn replace(&mut self, destination: TargetKind) -> Replaced {
        match SocketOutlet::new(destination) {
            Some(outlet) => {
                *self = outlet;
                Replaced::Yes
            }
            None => Replaced::No,
        }
    }
}
