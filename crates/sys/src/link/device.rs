use crate::netlink::ask::attribute;

/// One device, as read at one moment.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its index in its namespace.
    pub index: u32,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Whether it can carry packets now: it and its other end are up (`operstate` up).
    pub is_operational: bool,
    /// Largest packet in bytes of IP.
    pub mtu_bytes: u32,
    /// Most segments that may leave as one packet. `None` before Linux 4.16.
    pub gso_max_segs: Option<u32>,
    /// Most bytes that may leave as one packet. `None` before Linux 4.16.
    pub gso_max_size_bytes: Option<u32>,
    /// What it has carried.
    pub statistics: Statistics,
}

/// What a device has carried since it was created (`struct rtnl_link_stats64`).
///
/// A packet that was received and then dropped by [`crate::traffic`] is counted as received here.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Statistics {
    /// Packets received; one that holds several segments counts once.
    pub received_packets: u64,
    /// Packets sent, likewise.
    pub sent_packets: u64,
    /// Bytes received, with the link header.
    pub received_bytes: u64,
    /// Bytes sent, with the link header.
    pub sent_bytes: u64,
    /// Incoming packets that the device itself dropped.
    pub received_dropped: u64,
    /// Outgoing packets that the device itself dropped, for instance because the other end is down.
    pub sent_dropped: u64,
}

const IFINFOMSG_BYTES: usize = 16;
const IFLA_MTU: u16 = 4;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_STATS64: u16 = 23;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IF_OPER_UP: u8 = 6;

impl Device {
    /// Reads the body of an `RTM_NEWLINK` message.
    pub(super) fn parse(body: &[u8]) -> Option<Device> {
        let number = |at: usize| {
            body.get(at..)?.first_chunk().map(|bytes: &[u8; 4]| u32::from_ne_bytes(*bytes))
        };
        let (index, flags) = (number(4)?, number(8)?);

        let attributes = body.get(IFINFOMSG_BYTES..)?;
        let word =
            |kind| attribute(attributes, kind)?.first_chunk().copied().map(u32::from_ne_bytes);

        Some(Device {
            index,
            is_up: flags & libc::IFF_UP as u32 != 0,
            is_operational: attribute(attributes, IFLA_OPERSTATE) == Some(&[IF_OPER_UP]),
            mtu_bytes: word(IFLA_MTU).unwrap_or(0),
            gso_max_segs: word(IFLA_GSO_MAX_SEGS),
            gso_max_size_bytes: word(IFLA_GSO_MAX_SIZE),
            statistics: Statistics::parse(attribute(attributes, IFLA_STATS64).unwrap_or_default()),
        })
    }
}

impl Statistics {
    fn parse(bytes: &[u8]) -> Statistics {
        let mut numbers = bytes.chunks_exact(8).map(|bytes| {
            bytes.first_chunk().map_or(0, |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes))
        });
        let mut next = || numbers.next().unwrap_or(0);
        let (received_packets, sent_packets) = (next(), next());
        let (received_bytes, sent_bytes) = (next(), next());
        let (_received_errors, _sent_errors) = (next(), next());

        Statistics {
            received_packets,
            sent_packets,
            received_bytes,
            sent_bytes,
            received_dropped: next(),
            sent_dropped: next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_ends_early_is_no_device() {
        for len in 0..12 {
            assert_eq!(Device::parse(&[0xff; 16][..len]), None);
        }
        let bare = Device::parse(&[0; 16]).unwrap();
        assert_eq!(bare, Device::default());
    }

    #[test]
    fn short_statistics_read_as_zero() {
        let statistics = Statistics::parse(&7_u64.to_ne_bytes());
        assert_eq!(statistics, Statistics { received_packets: 7, ..Statistics::default() });
    }
}
