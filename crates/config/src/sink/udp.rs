//! A sink that is a UDP address.

use crate::address::HostPort;
use ::sink::{Destination, UdpOptions};
use std::net::SocketAddr;
use sys::socket::SendOptions;

/// Datagrams to a UDP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSink {
    pub addr: HostPort,
}

impl UdpSink {
    pub(super) fn open(remote: SocketAddr) -> Box<dyn Destination> {
        ::sink::udp(UdpOptions { remote, send: SendOptions::default() })
    }
}
