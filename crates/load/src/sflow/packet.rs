//! The first bytes of frames, as sampled by a switch.

use super::TrueFlow;
use std::net::IpAddr;

/// Bytes of a frame in a sample (sFlow version 5, section 3.1: the usual size).
const HEADER_BYTES: usize = 128;

/// IPv6's fragment extension header (RFC 8200, section 4.5).
const FRAGMENT_HEADER: u8 = 44;

/// A packet over IPv4 or IPv6, as its source sends it. Both addresses have the same family.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Packet {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol number: 6, 17, 1, 58, 47 and so on.
    pub protocol: u8,
    /// Source port for UDP and TCP.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// TCP flags.
    pub tcp_flags: u8,
    /// Type for ICMP and ICMPv6.
    pub icmp_type: u8,
    /// Which fragment of a larger packet it is.
    pub fragment: Fragment,
    /// Frame size in bytes, including the check sequence: 64 to 9,216.
    pub frame_bytes: u32,
}

/// Which part of a packet a frame contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fragment {
    /// The whole packet.
    #[default]
    Whole,
    /// The first fragment, with the ports.
    First,
    /// A later fragment, without ports.
    Later,
}

impl Fragment {
    /// The 16 bits of flags and offset in IPv4 (RFC 791).
    fn v4(self) -> u16 {
        match self {
            Fragment::Whole => 0,
            Fragment::First => 0x2000,
            Fragment::Later => 185,
        }
    }

    /// The same in IPv6's extension header (RFC 8200, section 4.5): the offset, then three bits.
    fn v6(self) -> u16 {
        match self {
            Fragment::Whole => 0,
            Fragment::First => 1,
            Fragment::Later => 185 << 3,
        }
    }
}

impl From<&TrueFlow> for Packet {
    fn from(flow: &TrueFlow) -> Packet {
        Packet {
            src: flow.src.into(),
            dst: flow.dst.into(),
            protocol: flow.protocol,
            src_port: flow.src_port,
            dst_port: flow.dst_port,
            tcp_flags: 0x10,
            icmp_type: 8,
            fragment: Fragment::Whole,
            frame_bytes: flow.frame_bytes,
        }
    }
}

impl Packet {
    /// Its first bytes: Ethernet, IP, and what follows.
    pub fn header(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        self.put_ip(&mut bytes);
        if self.fragment != Fragment::Later {
            self.put_transport(&mut bytes);
        }

        let sampled = HEADER_BYTES.min(self.frame_bytes.saturating_sub(4) as usize);
        bytes.resize(sampled.max(bytes.len()), 0);
        bytes
    }

    fn put_ip(&self, bytes: &mut Vec<u8>) {
        // Without the Ethernet header and check sequence.
        let ip_bytes = self.frame_bytes.saturating_sub(18) as u16;
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                bytes.extend([0x08, 0x00, 0x45, 0]);
                bytes.extend(ip_bytes.to_be_bytes());
                bytes.extend([0, 0]);
                bytes.extend(self.fragment.v4().to_be_bytes());
                bytes.extend([64, self.protocol, 0, 0]);
                bytes.extend(src.octets());
                bytes.extend(dst.octets());
            }
            (src, dst) => {
                let v6 = |address: IpAddr| match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                };
                let is_whole = self.fragment == Fragment::Whole;
                let next = if is_whole { self.protocol } else { FRAGMENT_HEADER };
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                bytes.extend(ip_bytes.saturating_sub(40).to_be_bytes());
                bytes.extend([next, 64]);
                bytes.extend(v6(src));
                bytes.extend(v6(dst));
                if !is_whole {
                    bytes.extend([self.protocol, 0]);
                    bytes.extend(self.fragment.v6().to_be_bytes());
                    bytes.extend([0, 0, 0, 1]);
                }
            }
        }
    }

    fn put_transport(&self, bytes: &mut Vec<u8>) {
        match self.protocol {
            1 | 58 => bytes.extend([self.icmp_type, 0, 0, 0]),
            // GRE without options, around IPv4.
            47 => bytes.extend([0, 0, 0x08, 0x00]),
            6 | 17 => {
                bytes.extend(self.src_port.to_be_bytes());
                bytes.extend(self.dst_port.to_be_bytes());
                if self.protocol == 6 {
                    bytes.extend([0; 8]);
                    bytes.extend([0x50, self.tcp_flags, 0, 0]);
                }
            }
            _ => {}
        }
    }
}
