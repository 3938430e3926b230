//! A sink that is a UDP address.

use crate::address::HostPort;
use ::sink::{Connector, UdpOptions};
use record::FieldSet;
use std::net::SocketAddr;
use sys::socket::SendOptions;

/// Datagrams to a UDP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSink {
    pub addr: HostPort,
}

impl UdpSink {
    pub(super) fn open(remote: SocketAddr, fields: FieldSet) -> Connector {
        ::sink::udp(UdpOptions { remote, send: SendOptions::default() }, fields)
    }
}
