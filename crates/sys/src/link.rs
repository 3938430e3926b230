//! Network devices through rtnetlink: creates, connects, addresses and reads veth pairs and bridges.
//!
//! Devices are named as in `ip link`. Everything happens in the namespace that [`Links::open`] was given; the calling thread
//! does not move.

mod device;
mod error;
mod tap;

pub use device::{Device, Statistics};
pub use error::Error;
pub use tap::Tap;

use crate::Errno;
use crate::namespace::OpenNamespace;
use crate::netlink::ask::{
    Asker, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, append_attribute, append_nested,
};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

/// The devices of one namespace. Holds a socket, which keeps the namespace alive.
pub struct Links {
    pub(crate) asker: Asker,
    pub(crate) body: Vec<u8>,
}

impl Links {
    /// Opens a socket in a namespace. Changing devices requires `CAP_NET_ADMIN` over the namespace, which its creator has.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or a socket cannot be opened in it.
    pub fn open(namespace: &OpenNamespace) -> Result<Links, Error> {
        let opened = namespace.run(Asker::open_explaining).map_err(Error::Namespace)?;
        let asker = opened.map_err(|error| Error::new("socket", "netlink", Errno::from(&error)))?;
        Ok(Links { asker, body: Vec::new() })
    }

    /// Creates a veth pair: `device` here, and its other end, `peer`, in another namespace. Both are down.
    ///
    /// # Errors
    /// `EEXIST` when a name is taken, `EOPNOTSUPP` when the kernel has no `veth`, `EPERM`.
    pub fn add_veth(
        &mut self,
        device: &str,
        peer: &str,
        peer_namespace: &OpenNamespace,
    ) -> Result<(), Error> {
        self.begin_link(0, 0);
        append_name(&mut self.body, device);
        append_nested(&mut self.body, IFLA_LINKINFO, |body| {
            append_attribute(body, IFLA_INFO_KIND, b"veth\0");
            append_nested(body, IFLA_INFO_DATA, |body| {
                append_nested(body, VETH_INFO_PEER, |body| {
                    append_ifinfomsg(body, 0, 0);
                    append_name(body, peer);
                    let fd = peer_namespace.as_fd().as_raw_fd();
                    append_attribute(body, IFLA_NET_NS_FD, &fd.to_ne_bytes());
                });
            });
        });

        self.create("RTM_NEWLINK (veth)", RTM_NEWLINK, device)
    }

    /// Creates a bridge without spanning tree, so that its ports forward at once, and without multicast snooping, so that it
    /// sends nothing of its own. It is down.
    ///
    /// # Errors
    /// `EEXIST` when the name is taken, `EOPNOTSUPP` when the kernel has no `bridge`, `EPERM`.
    pub fn add_bridge(&mut self, device: &str) -> Result<(), Error> {
        self.begin_link(0, 0);
        append_name(&mut self.body, device);
        append_nested(&mut self.body, IFLA_LINKINFO, |body| {
            append_attribute(body, IFLA_INFO_KIND, b"bridge\0");
            append_nested(body, IFLA_INFO_DATA, |body| {
                append_attribute(body, IFLA_BR_FORWARD_DELAY, &0_u32.to_ne_bytes());
                append_attribute(body, IFLA_BR_STP_STATE, &0_u32.to_ne_bytes());
                append_attribute(body, IFLA_BR_MCAST_SNOOPING, &[0]);
            });
        });

        self.create("RTM_NEWLINK (bridge)", RTM_NEWLINK, device)
    }

    /// Makes a device a port of a bridge.
    ///
    /// # Errors
    /// `ENODEV` when either does not exist; `EPERM`.
    pub fn set_master(&mut self, device: &str, bridge: &str) -> Result<(), Error> {
        let bridge = self.index(bridge)?;
        self.change("RTM_NEWLINK (master)", device, IFLA_MASTER, bridge)
    }

    /// Brings a device up. It carries packets once its other end is up too.
    ///
    /// # Errors
    /// `ENODEV`, `EPERM`.
    pub fn set_up(&mut self, device: &str) -> Result<(), Error> {
        let index = self.index(device)?;
        self.begin_link(index, libc::IFF_UP as u32);
        self.modify("RTM_NEWLINK (up)", RTM_NEWLINK, device)
    }

    /// Sets the MTU: the largest IP packet, in bytes.
    ///
    /// # Errors
    /// `EINVAL` outside the device's range, `ENODEV`, `EPERM`.
    pub fn set_mtu(&mut self, device: &str, bytes: u32) -> Result<(), Error> {
        self.change("RTM_NEWLINK (mtu)", device, IFLA_MTU, bytes)
    }

    /// Sets how many segments may leave as one packet; with 1, every segment leaves alone.
    ///
    /// # Errors
    /// `EINVAL` above 65535, `ENODEV`, `EPERM`; `EOPNOTSUPP` before Linux 4.16.
    pub fn set_gso_max_segs(&mut self, device: &str, segments: u32) -> Result<(), Error> {
        self.change("RTM_NEWLINK (gso_max_segs)", device, IFLA_GSO_MAX_SEGS, segments)
    }

    /// Sets how many packets may wait in the transmit queue.
    ///
    /// # Errors
    /// `ENODEV`, `EPERM`.
    pub fn set_queue_len(&mut self, device: &str, packets: u32) -> Result<(), Error> {
        self.change("RTM_NEWLINK (txqlen)", device, IFLA_TXQLEN, packets)
    }

    /// Gives a device an address and the route to its network. An IPv6 address is not probed for duplicates, so it can be used
    /// at once.
    ///
    /// # Errors
    /// `EEXIST` when the device has the address already, `EOPNOTSUPP` or `EACCES` when the namespace has no IPv6, `ENODEV`,
    /// `EPERM`.
    pub fn add_address(
        &mut self,
        device: &str,
        addr: IpAddr,
        prefix_bits: u8,
    ) -> Result<(), Error> {
        let index = self.index(device)?;
        let (family, octets) = match addr {
            IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
            IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
        };

        // struct ifaddrmsg (linux/if_addr.h): family, prefix length, flags, scope (global), index.
        self.body.clear();
        self.body.extend_from_slice(&[family as u8, prefix_bits, IFA_F_NODAD, 0]);
        self.body.extend_from_slice(&index.to_ne_bytes());
        append_attribute(&mut self.body, IFA_LOCAL, &octets);
        append_attribute(&mut self.body, IFA_ADDRESS, &octets);

        self.create("RTM_NEWADDR", RTM_NEWADDR, device)
    }

    /// Removes a device; removing one end of a veth pair removes the other too.
    ///
    /// # Errors
    /// `ENODEV`; `EOPNOTSUPP` for a device that cannot be removed; `EPERM`.
    pub fn delete(&mut self, device: &str) -> Result<(), Error> {
        let index = self.index(device)?;
        self.begin_link(index, 0);
        self.modify("RTM_DELLINK", RTM_DELLINK, device)
    }

    /// The index of a device in its namespace.
    ///
    /// # Errors
    /// `ENODEV` when there is no device of that name.
    pub fn index(&mut self, device: &str) -> Result<u32, Error> {
        self.device(device).map(|found| found.index)
    }

    /// Reads one device.
    ///
    /// # Errors
    /// `ENODEV` when there is no device of that name.
    pub fn device(&mut self, device: &str) -> Result<Device, Error> {
        self.begin_link(0, 0);
        append_name(&mut self.body, device);

        let mut found = None;
        let asked = self.asker.ask((RTM_GETLINK, 0), &self.body, |kind, body| {
            if kind == RTM_NEWLINK {
                found = Device::parse(body);
            }
        });

        self.explain("RTM_GETLINK", device, asked)?;
        found.ok_or_else(|| Error::new("RTM_GETLINK", device, Errno::PROTO))
    }

    fn change(
        &mut self,
        call: &'static str,
        device: &str,
        kind: u16,
        value: u32,
    ) -> Result<(), Error> {
        let index = self.index(device)?;
        self.begin_link(index, 0);
        append_attribute(&mut self.body, kind, &value.to_ne_bytes());
        self.modify(call, RTM_NEWLINK, device)
    }

    /// Starts a request about a device by index, or about the one named in the request when the index is 0, and sets these
    /// flags on it.
    fn begin_link(&mut self, index: u32, flags: u32) {
        self.body.clear();
        append_ifinfomsg(&mut self.body, index, flags);
    }

    fn create(&mut self, call: &'static str, kind: u16, device: &str) -> Result<(), Error> {
        self.send(call, (kind, NLM_F_CREATE | NLM_F_EXCL), device)
    }

    fn modify(&mut self, call: &'static str, kind: u16, device: &str) -> Result<(), Error> {
        self.send(call, (kind, 0), device)
    }

    /// Sends the request in `body` and waits for the kernel's answer.
    pub(crate) fn send(
        &mut self,
        call: &'static str,
        (kind, flags): (u16, u16),
        device: &str,
    ) -> Result<(), Error> {
        let asked = self.asker.ask((kind, flags | NLM_F_ACK), &self.body, |_, _| {});
        self.explain(call, device, asked)
    }

    /// Adds to an error what the request was about and the kernel's explanation.
    pub(crate) fn explain(
        &mut self,
        call: &'static str,
        device: &str,
        asked: Result<(), Errno>,
    ) -> Result<(), Error> {
        let Err(errno) = asked else { return Ok(()) };
        let explanation = self.asker.take_explanation();
        Err(Error::Refused { call, device: device.to_owned(), errno, explanation })
    }
}

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_BR_FORWARD_DELAY: u16 = 1;
const IFLA_BR_STP_STATE: u16 = 5;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 0x02;

/// `struct ifinfomsg` (linux/rtnetlink.h): family, padding, hardware type, index, flags, and the mask of flags to change.
fn append_ifinfomsg(body: &mut Vec<u8>, index: u32, flags: u32) {
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&index.to_ne_bytes());
    body.extend_from_slice(&flags.to_ne_bytes());
    body.extend_from_slice(&flags.to_ne_bytes());
}

fn append_name(body: &mut Vec<u8>, name: &str) {
    let mut value = name.as_bytes().to_vec();
    value.push(0);
    append_attribute(body, IFLA_IFNAME, &value);
}
