//! What an interface says about itself.

/// The counters of an interface as of one moment (`ifTable` and `ifXTable`, RFC 2863). One of all ones is one that the agent does not
/// have. Frames count from zero again after 32 bits, octets after 64; with some agents after 32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortCounters {
    /// Its index (`ifIndex`).
    pub if_index: u32,
    /// Its kind (`ifType`).
    pub if_type: u32,
    /// Its speed. 0 if the agent does not know.
    pub speed_bits_per_sec: u64,
    /// 0 unknown, 1 full duplex, 2 half duplex, 3 in, 4 out.
    pub direction: u32,
    /// Bit 0: administratively up; bit 1: operationally up.
    pub status: u32,
    /// Octets received.
    pub in_octets: u64,
    /// Unicast frames received.
    pub in_ucast_packets: u32,
    /// Multicast frames received.
    pub in_multicast_packets: u32,
    /// Broadcast frames received.
    pub in_broadcast_packets: u32,
    /// Frames discarded on entry although nothing was wrong with them.
    pub in_discards: u32,
    /// Broken frames received.
    pub in_errors: u32,
    /// Frames received of protocols that nobody reads.
    pub in_unknown_protos: u32,
    /// Octets sent.
    pub out_octets: u64,
    /// Unicast frames sent.
    pub out_ucast_packets: u32,
    /// Multicast frames sent.
    pub out_multicast_packets: u32,
    /// Broadcast frames sent.
    pub out_broadcast_packets: u32,
    /// Frames discarded on exit although nothing was wrong with them.
    pub out_discards: u32,
    /// Frames that could not be sent.
    pub out_errors: u32,
    /// 1 promiscuous, 2 not.
    pub promiscuous_mode: u32,
}

/// What agents send for a speed that does not fit in 32 bits (`ifSpeed`, RFC 2863).
const SPEED_TOO_HIGH: u64 = u32::MAX as u64;

impl PortCounters {
    /// The speed that the agent states, in bits per second. `None` if it states none, or only that it is higher than it can say.
    pub(super) fn stated_bits_per_sec(&self) -> Option<u64> {
        let speed = self.speed_bits_per_sec;
        (speed != 0 && speed != SPEED_TOO_HIGH).then_some(speed)
    }
}
