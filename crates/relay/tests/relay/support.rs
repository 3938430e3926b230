//! What the tests of real listeners share.

use relay::{
    Gso, Listener, ListenerOptions, Path, Schedule, SocketOwner, TargetChange, TargetKind,
    TargetOptions,
};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use sys::socket::{SendOptions, connect_udp};
use testkit::DEADLINE;

pub(crate) fn options(schedule: Schedule) -> ListenerOptions {
    ListenerOptions {
        name: "in".into(),
        ring_bytes: 8 << 20,
        schedule,
        allow_sources: vec![],
        deny_sources: vec![],
        socket_owner: SocketOwner::Relay,
        gather: None,
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
    TargetKind::Udp { socket, gso: Gso::Auto, path }
}

/// A bound receiver with room for everything that a test sends.
pub(crate) fn sink() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    sys::socket::set_receive_buffer(socket.as_fd(), 64 << 20).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}
