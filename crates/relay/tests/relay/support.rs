//! Shared by the tests of real listeners.

use ledger::{HopKind, HopSnapshot, Ledger, Snapshot};
use relay::{
    Gso, Listener, ListenerOptions, Order, Path, Schedule, SocketOwner, SourceAddress,
    TargetChange, TargetKind, TargetOptions,
};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;
use sys::socket::{Balance, LocalAddress, SendOptions, connect_udp, listen_udp, local_address};
use testkit::DEADLINE;

pub(crate) fn options(schedule: Schedule) -> ListenerOptions {
    ListenerOptions {
        name: "in".into(),
        ring_bytes: 8 << 20,
        schedule,
        allow_sources: vec![],
        deny_sources: vec![],
        socket_owner: SocketOwner::Relay,
        trust_header_from: Vec::new(),
        cpus: Default::default(),
        sockets_max: 1,
        link: None,
        gather: None,
        balance: Balance::default(),
        order: Order::default(),
    }
}

pub(crate) fn named(name: &str) -> TargetOptions {
    TargetOptions { name: name.into(), ..TargetOptions::default() }
}

/// Makes one change and waits until it is in force.
pub(crate) fn change(listener: &mut Listener, change: TargetChange) {
    let changes = listener.begin_changes(vec![change], DEADLINE);
    let results = listener.finish_changes(changes, &mut || {});
    results.into_iter().for_each(|result| result.unwrap());
}

pub(crate) fn udp_to(addr: SocketAddr) -> TargetKind {
    let socket = connect_udp(addr, &SendOptions::default()).unwrap();
    let path = Path::fixed(&sys::route::egress(addr.ip()).unwrap());
    TargetKind::Udp { socket, gso: Gso::Auto, source_address: SourceAddress::Own, path }
}

/// A bound receiver with room for everything that a test sends.
pub(crate) fn sink() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    sys::socket::set_receive_buffer(socket.as_fd(), 64 << 20).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

/// A listener on loopback, and a sender connected to it.
pub(crate) struct Bench {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) listener: Option<Listener>,
    pub(crate) sender: UdpSocket,
}

impl Bench {
    pub(crate) fn start(schedule: Schedule, targets: Vec<(TargetOptions, TargetKind)>) -> Bench {
        let socket = listen_udp("127.0.0.1:0".parse().unwrap(), &Default::default()).unwrap();
        sys::socket::set_receive_buffer(socket.as_fd(), 64 << 20).unwrap();
        let Some(LocalAddress::Inet(addr)) = local_address(socket.as_fd()) else { panic!() };
        let ledger = Arc::new(Ledger::new("test".into()));
        let listener = Listener::start(options(schedule), socket, targets, &ledger).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(addr).unwrap();
        Bench { ledger, listener: Some(listener), sender }
    }

    pub(crate) fn listener(&mut self) -> &mut Listener {
        self.listener.as_mut().unwrap()
    }

    /// Waits for a condition on the ledger, which must balance at every check.
    pub(crate) fn wait_until(&self, what: &str, condition: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let begin = Instant::now();
        loop {
            let snapshot = self.ledger.check();
            assert!(snapshot.is_balanced(), "{snapshot:#?}");
            if condition(&snapshot) {
                return snapshot;
            }
            assert!(begin.elapsed() < DEADLINE, "{what} within {DEADLINE:?}: {snapshot:#?}");
            std::thread::yield_now();
        }
    }

    pub(crate) fn stop(&mut self) -> Snapshot {
        let listener = self.listener.take().unwrap();
        listener.begin_stop(Instant::now() + DEADLINE);
        listener.finish_stop();
        let snapshot = self.ledger.check();
        assert!(snapshot.is_balanced(), "{snapshot:#?}");
        assert_eq!(snapshot.unaccounted(), 0, "{snapshot:#?}");
        snapshot
    }
}

pub(crate) fn target<'a>(snapshot: &'a Snapshot, kind: HopKind, name: &str) -> &'a HopSnapshot {
    snapshot.hop(kind, "in", Some(name)).unwrap()
}
