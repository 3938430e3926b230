//! Datagrams and the path MTU.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use sys::Errno;
use sys::namespace::Home;
use sys::socket::{Fragmentation, SendOptions, connect_udp, path_mtu_bytes, set_fragmentation};
use testkit::{Netns, need_root_netns};

const MTU: usize = 1_400;

#[test]
fn what_is_larger_than_the_path_is_cut_up_or_refused() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    netns.ip(&format!("link set lo mtu {MTU}"));
    let check_both = || {
        check("127.0.0.1:9", MTU - 20 - 8);
        check("[::1]:9", MTU - 40 - 8);
    };
    Home::remember().unwrap().enter(&netns.open(), check_both).unwrap();
}

/// The receiver is in this namespace, on any port.
fn check(addr: &str, fits: usize) {
    let mut addr: SocketAddr = addr.parse().unwrap();
    addr.set_port(0);
    let receiver = UdpSocket::bind(addr).unwrap();
    let receiver_addr = receiver.local_addr().unwrap();
    let sender = connect_udp(receiver_addr, &SendOptions::default()).unwrap();
    assert_eq!(path_mtu_bytes(sender.as_fd()).unwrap(), MTU as u32);
    let sender = UdpSocket::from(sender);
    let send = |bytes: usize| {
        sender.send(&vec![0; bytes]).map_err(|error| Errno::from(&error))?;
        Ok(receiver.recv(&mut vec![0; MTU * 2]).unwrap())
    };
    assert_eq!(send(fits + 1), Ok(fits + 1));
    set_fragmentation(sender.as_fd(), Fragmentation::Forbidden).unwrap();
    assert_eq!((send(fits + 1), send(fits)), (Err(Errno::MSGSIZE), Ok(fits)), "{addr}");
    set_fragmentation(sender.as_fd(), Fragmentation::Allowed).unwrap();
    assert_eq!(send(fits + 1), Ok(fits + 1));
}
