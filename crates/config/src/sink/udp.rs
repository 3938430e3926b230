//! A sink that sends datagrams to a UDP address.

use super::Sink;
use super::kind::{Kind, Opening, Scheme};
use crate::address::{HostPort, receiver};
use crate::host::{self, Finding};
use ::sink::{Connector, UdpOptions};
use record::FieldSet;
use std::fmt;
use std::io;
use sys::socket::SendOptions;

pub(super) const SCHEMES: &[Scheme] = &[Scheme {
    words: &["udp"],
    form: "udp://HOST:PORT",
    feature: None,
    read: |to, _| Ok(Some(Sink::Udp(UdpSink { addr: receiver(to.rest)? }))),
}];

/// Datagrams to a UDP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSink {
    pub addr: HostPort,
}

impl Kind for UdpSink {
    fn open(&self, given: &Opening) -> io::Result<Connector> {
        let (remote, host) = (given.remote.clone(), given.host.clone());
        let options = UdpOptions { remote, send: SendOptions::default(), host };
        Ok(::sink::udp(options, given.fields.unwrap_or(FieldSet::ALL)))
    }

    fn receiver(&self) -> Option<&HostPort> {
        Some(&self.addr)
    }

    fn examine(&self, what: &str, findings: &mut Vec<Finding>) {
        findings.extend(host::udp_receiver(what, &self.addr, None, &[]));
    }
}

impl fmt::Display for UdpSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp://{}", self.addr)
    }
}
