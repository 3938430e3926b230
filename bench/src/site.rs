//! Where relays and receivers run: on this host's loopback, or on two hosts connected by a cable.

use anyhow::Context;
use load::Address;
use load::spin::Receiver;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use sys::link::Links;
use sys::namespace::OpenNamespace;
use sys::process::{CAP_NET_ADMIN, CAP_SYS_ADMIN, effective_capabilities};

/// Where the targets are, seen from the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Reach {
    /// On the relay's host.
    Loopback,
    /// On another host, over a veth pair between two network namespaces.
    Cable,
}

// The network reserved for benchmarks (RFC 2544).
const RELAY_ADDR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const TARGET_ADDR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const NOBODY_ADDR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);
const PREFIX_BITS: u8 = 24;

/// The name of the device at either end of the cable.
const DEVICE: &str = "bench0";

/// The network of a case.
pub(crate) enum Site {
    Loopback,
    Cable {
        /// Where the relays run and the generator sends, on loopback.
        relays: OpenNamespace,
        /// Where the receivers are.
        targets: OpenNamespace,
    },
}

impl Site {
    /// Creates the network. It disappears together with this value and the relays in it, however the bench ends, because the
    /// namespaces are not mounted anywhere.
    pub(crate) fn open(reach: Reach) -> anyhow::Result<Site> {
        match reach {
            Reach::Loopback => Ok(Site::Loopback),
            Reach::Cable => lay_cable().context("a veth pair between two network namespaces"),
        }
    }

    /// Why this process cannot create a network of this kind; `None` if it can.
    pub(crate) fn obstacle(reach: Reach) -> Option<&'static str> {
        let has = |bit: u32| effective_capabilities().is_some_and(|set| set >> bit & 1 == 1);
        let may = has(CAP_SYS_ADMIN) && has(CAP_NET_ADMIN);
        (reach == Reach::Cable && !may)
            .then_some("network namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")
    }

    /// Runs `f` in the namespace of the relays.
    pub(crate) fn at_relays<R: Send>(&self, f: impl FnOnce() -> R + Send) -> anyhow::Result<R> {
        match self {
            Site::Loopback => Ok(f()),
            Site::Cable { relays, .. } => Ok(relays.run(f)?),
        }
    }

    /// Runs `f` in the namespace of the targets.
    pub(crate) fn at_targets<R: Send>(&self, f: impl FnOnce() -> R + Send) -> anyhow::Result<R> {
        match self {
            Site::Loopback => Ok(f()),
            Site::Cable { targets, .. } => Ok(targets.run(f)?),
        }
    }

    /// Moves the calling thread, which was started for this purpose, to the namespace of the relays.
    pub(crate) fn move_this_thread(&self) -> anyhow::Result<()> {
        match self {
            Site::Loopback => Ok(()),
            Site::Cable { relays, .. } => Ok(relays.move_this_thread()?),
        }
    }

    /// The address of the targets' host.
    pub(crate) fn target_addr(&self) -> IpAddr {
        match self {
            Site::Loopback => Ipv4Addr::LOCALHOST.into(),
            Site::Cable { .. } => TARGET_ADDR.into(),
        }
    }

    /// An address without a host to which the relays have a route.
    pub(crate) fn dead_next_hop(&self) -> Option<SocketAddr> {
        match self {
            Site::Loopback => None,
            Site::Cable { .. } => Some(SocketAddr::from((NOBODY_ADDR, 9))),
        }
    }

    /// Opens a receiver.
    pub(crate) fn receiver(&self, buffer_bytes: usize) -> anyhow::Result<Receiver> {
        let any = Address::Udp(SocketAddr::new(self.target_addr(), 0));
        Ok(self.at_targets(|| Receiver::open(&any, buffer_bytes))??)
    }
}

fn lay_cable() -> anyhow::Result<Site> {
    let (relays, targets) = (OpenNamespace::create()?, OpenNamespace::create()?);
    let (mut near, mut far) = (Links::open(&relays)?, Links::open(&targets)?);
    near.add_veth(DEVICE, DEVICE, &targets)?;
    for (links, addr) in [(&mut near, RELAY_ADDR), (&mut far, TARGET_ADDR)] {
        links.set_up("lo")?;
        links.add_address(DEVICE, addr.into(), PREFIX_BITS)?;
        links.set_up(DEVICE)?;
    }
    Ok(Site::Cable { relays, targets })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    #[test]
    fn a_cable_carries_from_the_relays_to_the_targets() {
        if let Some(obstacle) = Site::obstacle(Reach::Cable) {
            assert!(std::env::var_os("REQUIRE_NETNS").is_none(), "{obstacle}");
            println!("skipped: {obstacle}");
            return;
        }
        let site = Site::open(Reach::Cable).unwrap();
        let mut receiver = site.receiver(2_048).unwrap();
        let Address::Udp(addr) = *receiver.address() else { panic!("a cable carries UDP") };
        assert_eq!(addr.ip(), IpAddr::from(TARGET_ADDR));
        let socket = site.at_relays(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            // The carrier may not be up yet.
            let _ = socket.send_to(&[0; 64], addr);
            if receiver.receive() > 0 {
                break;
            }
            assert!(Instant::now() < deadline, "nothing arrives over the cable");
            std::thread::yield_now();
        }
    }
}
