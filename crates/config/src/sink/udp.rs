//! A sink that is a UDP address.

use crate::address::HostPort;

/// Datagrams to a UDP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSink {
    pub addr: HostPort,
}
