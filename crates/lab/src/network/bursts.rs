use load::Random;
use std::collections::HashMap;

/// Loss in bursts: Gilbert's model, separately for each flow and direction.
///
/// A flow is either in a good state, in which nothing is lost, or in a bad state, in which everything is lost. Each packet
/// changes the state with a certain probability, so the length of a burst is a number of packets of this flow, whatever else is
/// sent.
pub(super) struct Bursts {
    /// Mean length of a burst in packets, at least 1.
    mean_packets: f64,
    /// Whether a flow is in the bad state.
    flows: HashMap<Flow, bool>,
    random: Random,
}

/// Addresses and ports of an IPv4 packet, in the order of its headers.
type Flow = [u8; 12];

impl Bursts {
    pub(super) fn new(mean_packets: f64, seed: u64) -> Bursts {
        Bursts { mean_packets, flows: HashMap::new(), random: Random::seeded(seed) }
    }

    /// Whether this frame is lost, if `loss` (0 to 1) is the share of all packets to lose. Only IPv4 frames are lost: without ARP
    /// a link would not only lose packets but stop for seconds.
    pub(super) fn is_lost(&mut self, loss: f64, frame: &[u8]) -> bool {
        let Some(flow) = flow(frame).filter(|_| loss > 0.0) else { return false };
        let leaves = 1.0 / self.mean_packets;
        // The share of time in the bad state, begins / (begins + leaves), must equal the loss.
        let begins = leaves * loss / (1.0 - loss);

        let is_bad = self.flows.entry(flow).or_default();
        let changes = if *is_bad { leaves } else { begins };
        *is_bad ^= self.random.unit() < changes;
        *is_bad
    }
}

/// The flow of a frame without options in its IPv4 header. All fragments but the first have no ports, so those between two hosts
/// form one flow.
fn flow(frame: &[u8]) -> Option<Flow> {
    const ETHERNET_BYTES: usize = 14;
    let is_ipv4 = frame.get(12..ETHERNET_BYTES)? == [0x08, 0x00];
    let (packet, mut flow) = (frame.get(ETHERNET_BYTES..)?, Flow::default());

    // The mask removes the flags, which are not part of the fragment's offset.
    let is_first = packet.get(6)? & 0x1f == 0 && *packet.get(7)? == 0;
    let end = if is_first { 24 } else { 20 };
    flow[..end - 12].copy_from_slice(packet.get(12..end)?);
    is_ipv4.then_some(flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(port: u8) -> Vec<u8> {
        let mut frame = vec![0; 14 + 28];
        frame[12] = 8;
        frame[14 + 20] = port;
        frame
    }

    #[test]
    fn losses_have_their_share_and_come_in_bursts_of_each_flow() {
        let mut bursts = Bursts::new(5.0, 1);
        let flows = [frame(1), frame(2)];
        let (mut lost, mut begun, mut was_lost) = ([0; 2], [0; 2], [false; 2]);
        const PACKETS: u32 = 200_000;
        for _ in 0..PACKETS {
            for (index, frame) in flows.iter().enumerate() {
                let is_lost = bursts.is_lost(0.2, frame);
                lost[index] += u32::from(is_lost);
                begun[index] += u32::from(is_lost && !was_lost[index]);
                was_lost[index] = is_lost;
            }
        }
        for (lost, begun) in std::iter::zip(lost, begun) {
            let (share, length) =
                (f64::from(lost) / f64::from(PACKETS), f64::from(lost) / f64::from(begun));
            assert!(
                (0.19..0.21).contains(&share) && (4.8..5.2).contains(&length),
                "{share} {length}"
            );
        }
    }

    #[test]
    fn what_is_not_ipv4_passes_and_so_does_everything_without_loss() {
        let mut bursts = Bursts::new(5.0, 1);
        let mut arp = frame(1);
        arp[13] = 6;
        assert!((0..1_000).all(|_| !bursts.is_lost(0.9, &arp) && !bursts.is_lost(0.9, &[8; 20])));
        assert!((0..1_000).any(|_| bursts.is_lost(0.9, &frame(1))));
        assert!((0..1_000).all(|_| !bursts.is_lost(0.0, &frame(1))));
    }

    #[test]
    fn later_fragments_are_one_flow() {
        let mut fragment = frame(1);
        fragment[14 + 7] = 185;
        assert_eq!(flow(&fragment).unwrap()[8..], [0; 4]);
        assert_eq!(flow(&frame(1)).unwrap()[8..], [1, 0, 0, 0]);
    }
}
