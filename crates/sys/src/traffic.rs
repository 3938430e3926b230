//! Drops packets at random where they arrive, as a wire does: the sender does not learn of it.
//!
//! [`IngressLoss`] drops at a device, before anything else on that side sees the packet: a `clsact` queue with a `cls_bpf` filter
//! of classic BPF, whose random load is the kernel's own generator. Dropping where packets leave would be simpler and wrong: the
//! kernel reports it to TCP, which slows down at once, treats the segment as unsent, and retries without backing off
//! (net/ipv4/tcp_output.c, __tcp_transmit_skb, tcp_retransmit_timer).
//!
//! Where the kernel has neither, [`drop_at_socket`] drops at the socket that a packet has reached.

mod loss;

pub use loss::Loss;

use crate::Errno;
use crate::link::{Error, Links};
use crate::namespace::OpenNamespace;
use crate::netlink::ask::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE, append_attribute,
    append_nested, attribute,
};
use crate::socket::{FilterInstruction, attach_filter};
use std::io;
use std::os::fd::BorrowedFd;

/// Packet loss at one device, for the packets that it receives.
///
/// IPv4 and IPv6 packets are dropped independently with the same probability; one that holds several segments (TCP sends these
/// where the device allows) is dropped whole. ARP and ICMPv6, with its neighbor discovery, pass: without them a link would not
/// merely lose packets but stall for seconds.
///
/// Dropping this value undoes nothing; the filter is removed with its device.
pub struct IngressLoss {
    links: Links,
    device: String,
    index: u32,
}

/// What has arrived at a device with loss.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Packets that reached the filter, including ARP and dropped ones. Each segment of an aggregated packet counts.
    pub packets: u64,
    /// Bytes of those, without the link header.
    pub bytes: u64,
    /// Packets that were dropped; one that held several segments counts once. Wraps.
    pub dropped: u32,
}

impl Counts {
    /// The difference from an earlier count.
    #[must_use]
    pub fn since(self, earlier: Counts) -> Counts {
        Counts {
            packets: self.packets.wrapping_sub(earlier.packets),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            dropped: self.dropped.wrapping_sub(earlier.dropped),
        }
    }
}

impl IngressLoss {
    /// Starts dropping at a device.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] when the kernel has no `clsact` (`NET_SCH_INGRESS`) or no `cls_bpf` (`NET_CLS_BPF`); `EEXIST`
    /// when the device already has such a queue; `ENODEV`, `EPERM`.
    pub fn attach(
        namespace: &OpenNamespace,
        device: &str,
        loss: Loss,
    ) -> Result<IngressLoss, Error> {
        let mut links = Links::open(namespace)?;
        let index = links.index(device)?;
        let mut ingress = IngressLoss { links, device: device.to_owned(), index };

        ingress.begin(CLSACT_HANDLE, CLSACT_PARENT, 0);
        append_attribute(&mut ingress.links.body, TCA_KIND, b"clsact\0");
        ingress.send("RTM_NEWQDISC (clsact)", (RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL))?;

        ingress.filter(loss, NLM_F_CREATE | NLM_F_EXCL)?;
        Ok(ingress)
    }

    /// Changes the probability. Each packet passes either the old filter or the new one; none escapes both.
    ///
    /// # Errors
    /// `ENODEV` when the device is gone; `EPERM`.
    pub fn set(&mut self, loss: Loss) -> Result<(), Error> {
        self.filter(loss, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// What has arrived since [`Self::attach`].
    ///
    /// # Errors
    /// `ENODEV` when the device is gone.
    pub fn counts(&mut self) -> Result<Counts, Error> {
        self.begin(0, CLSACT_PARENT, 0);
        let mut counts = None;

        // Without an echo, the answer goes only to sockets that receive every change (net/sched/sch_api.c, qdisc_get_notify).
        let request = (RTM_GETQDISC, NLM_F_ECHO | NLM_F_ACK);
        let asked = self.links.asker.ask(request, &self.links.body, |kind, body| {
            if kind == RTM_NEWQDISC {
                counts = body.get(TCMSG_BYTES..).and_then(Counts::parse);
            }
        });

        self.links.explain("RTM_GETQDISC (clsact)", &self.device, asked)?;
        counts.ok_or_else(|| Error::new("RTM_GETQDISC (clsact)", &self.device, Errno::PROTO))
    }

    /// The name of the device.
    pub fn device(&self) -> &str {
        &self.device
    }

    fn filter(&mut self, loss: Loss, flags: u16) -> Result<(), Error> {
        let every_protocol = u32::from((libc::ETH_P_ALL as u16).to_be());
        self.begin(FILTER_HANDLE, INGRESS_PARENT, FILTER_PRIORITY << 16 | every_protocol);

        let program = loss.ingress_program();
        append_attribute(&mut self.links.body, TCA_KIND, b"bpf\0");
        append_nested(&mut self.links.body, TCA_OPTIONS, |body| {
            append_attribute(body, TCA_BPF_OPS_LEN, &(program.len() as u16).to_ne_bytes());
            append_attribute(body, TCA_BPF_OPS, &bytes_of(&program));
            append_attribute(body, TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes());
        });

        self.send("RTM_NEWTFILTER (cls_bpf)", (RTM_NEWTFILTER, flags))
    }

    /// Starts a request with `struct tcmsg` (linux/rtnetlink.h): family and padding, index, handle, parent, info.
    fn begin(&mut self, handle: u32, parent: u32, info: u32) {
        let body = &mut self.links.body;
        body.clear();
        body.extend_from_slice(&[0; 4]);
        for word in [self.index, handle, parent, info] {
            body.extend_from_slice(&word.to_ne_bytes());
        }
    }

    fn send(&mut self, call: &'static str, request: (u16, u16)) -> Result<(), Error> {
        self.links.send(call, request, &self.device)
    }
}

impl Counts {
    /// Reads the attributes of an `RTM_NEWQDISC` message.
    fn parse(attributes: &[u8]) -> Option<Counts> {
        let statistics = attribute(attributes, TCA_STATS2)?;
        // struct gnet_stats_basic (linux/gen_stats.h): bytes u64, packets u32.
        let basic = attribute(statistics, TCA_STATS_BASIC)?;
        let packets = basic.get(8..)?.first_chunk().copied().map(u32::from_ne_bytes)?;

        // Linux 5.5 and later have a counter that does not wrap, present once it exceeds the other.
        let packets = attribute(statistics, TCA_STATS_PKT64)
            .and_then(|value| value.first_chunk().copied())
            .map_or(u64::from(packets), u64::from_ne_bytes);

        // struct gnet_stats_queue: queue length, backlog, drops, requeues, overlimits.
        let queue = attribute(statistics, TCA_STATS_QUEUE)?;
        Some(Counts {
            packets,
            bytes: basic.first_chunk().copied().map(u64::from_ne_bytes)?,
            dropped: queue.get(8..)?.first_chunk().copied().map(u32::from_ne_bytes)?,
        })
    }
}

/// Drops packets that reach one socket, for kernels without [`IngressLoss`]. It needs no privilege.
///
/// Works for UDP and for TCP, where acknowledgments must be dropped at the sender's socket in the same way. An accepted socket
/// inherits its listener's filter. Here too the sender does not learn of it. It differs from a wire in that it acts once per
/// direction whatever the number of links between, only on sockets that were prepared, and not where the kernel answers without a
/// socket, as in TIME-WAIT. A UDP socket counts these packets as its own drops ([`crate::socket::mem_info`]), where they cannot
/// be told apart from those of a full buffer.
///
/// # Errors
/// Any of `setsockopt(2)`.
pub fn drop_at_socket(socket: BorrowedFd<'_>, loss: Loss) -> io::Result<()> {
    attach_filter(socket, &loss.socket_program())
}

fn bytes_of(program: &[FilterInstruction]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for instruction in program {
        bytes.extend_from_slice(&instruction.code.to_ne_bytes());
        bytes.extend_from_slice(&[instruction.jt, instruction.jf]);
        bytes.extend_from_slice(&instruction.k.to_ne_bytes());
    }
    bytes
}

const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const TCMSG_BYTES: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
/// `TC_H_CLSACT` (linux/pkt_sched.h), as the parent and, without its minor number, as the handle.
const CLSACT_PARENT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`.
const INGRESS_PARENT: u32 = 0xffff_fff2;
const FILTER_HANDLE: u32 = 1;
const FILTER_PRIORITY: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_their_places() {
        let mut bytes = Vec::new();
        append_nested(&mut bytes, TCA_STATS2, |bytes| {
            let mut basic = 900_u64.to_ne_bytes().to_vec();
            basic.extend_from_slice(&9_u32.to_ne_bytes());
            append_attribute(bytes, TCA_STATS_BASIC, &basic);
            let queue: Vec<u8> = [1_u32, 2, 3, 4, 5].iter().flat_map(|w| w.to_ne_bytes()).collect();
            append_attribute(bytes, TCA_STATS_QUEUE, &queue);
        });
        let counts = Counts { packets: 9, bytes: 900, dropped: 3 };
        assert_eq!(Counts::parse(&bytes), Some(counts));
        for len in 0..bytes.len() - 12 {
            assert_eq!(Counts::parse(&bytes[..len]), None);
        }
        let earlier = Counts { packets: 4, bytes: 400, dropped: u32::MAX };
        assert_eq!(counts.since(earlier), Counts { packets: 5, bytes: 500, dropped: 4 });
    }
}
