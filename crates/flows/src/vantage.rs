//! Where frames are seen: at one side of one device.
//!
//! A frame enters a device once and leaves it once, whichever ports and line cards it takes. So what the ports of a device see of
//! a flow as it enters adds up, and so does what they see as it leaves, but the two are the same frames. Each such sum is a
//! *vantage*: all parts (sub-agents) and ports of one agent's address, in one direction.
//!
//! A sum over devices takes each frame of a device once, as its samples come. Frames that enter by a sampled port and leave by one are
//! taken on one side, the device's main one. Those that are sampled on the other side alone are taken there.

use crate::definition::Direction;
use crate::source::End;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::net::IpAddr;

/// Vantages of a device: one for each [`Direction`].
pub(crate) const SIDES: usize = 3;

/// Room for the vantages of a device in their numbers.
const NUMBERS: u32 = 4;

/// A side is the one that counts in sums only once it has seen this much more than the one before.
const MORE: f64 = 1.25;

/// What is left of what a side saw, after a second.
const KEPT: f64 = 0.9;

/// How long a sampled end is remembered, and how often a sampler that goes on says so, in nanoseconds.
const SAMPLED_NS: u64 = 60_000_000_000;
const SAMPLED_EVERY_NS: u64 = 5_000_000_000;

/// Sampled ends for each sampler: usually one on each side. What is beyond that is not remembered.
const ENDS_OF_SAMPLER: usize = 2;

/// An interface where frames are sampled, and the vantage that they are part of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct SampledEnd {
    vantage: u32,
    if_index: u32,
}

/// The number of the device of a vantage.
pub(crate) const fn device_of(vantage: u32) -> u32 {
    vantage / NUMBERS
}

/// One device.
#[derive(Clone, Copy, Debug)]
struct Device {
    /// The number of its first vantage.
    first: u32,
    /// Known agents with its address: its parts.
    agents: u32,
    /// Frames that each side saw lately.
    frames: [f64; SIDES],
    /// The side that counts in sums.
    main: Direction,
}

/// All devices that have a known agent.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    by_address: HashMap<IpAddr, u32, RandomState>,
    places: Vec<Device>,
    free: Vec<u32>,
    /// The number of the last device. Numbers are not used again.
    last: u32,
    /// Ends that are sampled, and when a sample last said so.
    sampled: HashMap<SampledEnd, u64, RandomState>,
}

impl Devices {
    /// Maximum memory for this many agents with this many samplers, in bytes.
    pub(crate) const fn memory_max_bytes(agents: usize, samplers: usize) -> usize {
        let ends = samplers * ENDS_OF_SAMPLER * (size_of::<(SampledEnd, u64)>() + 1);
        (agents * (size_of::<(IpAddr, u32)>() + 1) + ends) * 16 / 7
            + agents * 2 * (size_of::<Device>() + size_of::<u32>())
    }

    /// Maximum number of vantages for this many agents.
    pub(crate) const fn vantages_max(agents: usize) -> usize {
        agents * SIDES
    }

    /// Adds a part to the device with this address. Returns the device's place and the number of its first vantage.
    pub(crate) fn enter(&mut self, address: IpAddr) -> (u32, u32) {
        if let Some(place) = self.by_address.get(&address) {
            let device = &mut self.places[*place as usize];
            device.agents += 1;
            return (*place, device.first);
        }
        self.last = self.last % (u32::MAX / NUMBERS - 1) + 1;
        let first = self.last * NUMBERS;
        let device = Device { first, agents: 1, frames: [0.0; SIDES], main: Direction::Any };
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = device;
                place
            }
            None => {
                self.places.push(device);
                (self.places.len() - 1) as u32
            }
        };
        self.by_address.insert(address, place);
        (place, first)
    }

    /// Removes a part of the device at a place. Appends the vantages to `gone` that are no more.
    pub(crate) fn leave(&mut self, address: IpAddr, place: u32, gone: &mut Vec<u32>) {
        let device = &mut self.places[place as usize];
        device.agents = device.agents.saturating_sub(1);
        if device.agents == 0 {
            gone.extend(vantages(device.first));
            self.by_address.remove(&address);
            self.free.push(place);
        }
    }

    /// Notes that a side of a device saw frames. Returns whether it is the side that counts in sums.
    #[inline]
    pub(crate) fn see(&mut self, place: u32, side: Direction, frames: f64) -> bool {
        let device = &mut self.places[place as usize];
        let seen = &mut device.frames[side as usize];
        *seen += frames;
        if side != device.main && *seen > MORE * device.frames[device.main as usize] {
            device.main = side;
        }
        side == device.main
    }

    /// Notes that a sampler of a vantage takes frames at this interface. Returns when it is to be noted again.
    #[cold]
    pub(crate) fn note_sampled(
        &mut self,
        (vantage, if_index): (u32, u32),
        now_ns: u64,
        samplers_max: usize,
    ) -> u64 {
        let end = SampledEnd { vantage, if_index };
        if self.sampled.len() < samplers_max * ENDS_OF_SAMPLER || self.sampled.contains_key(&end) {
            self.sampled.insert(end, now_ns);
        }
        now_ns + SAMPLED_EVERY_NS
    }

    /// Whether a frame that a vantage saw is seen by no other of its device: the other end of its way is none, or not sampled.
    #[inline(never)]
    pub(crate) fn is_alone(&self, vantage: u32, other_end: End, now_ns: u64) -> bool {
        const INGRESS: u32 = Direction::Ingress as u32;
        const EGRESS: u32 = Direction::Egress as u32;
        let vantage = match vantage % NUMBERS {
            INGRESS => vantage - INGRESS + EGRESS,
            EGRESS => vantage - EGRESS + INGRESS,
            _ => return false,
        };
        match other_end {
            End::Port(if_index) => {
                let at_ns = self.sampled.get(&SampledEnd { vantage, if_index });
                at_ns.is_none_or(|at_ns| now_ns.saturating_sub(*at_ns) > SAMPLED_NS)
            }
            End::Inside => true,
            End::Unknown => false,
        }
    }

    /// Forgets ends where no sample was taken lately.
    pub(crate) fn forget(&mut self, now_ns: u64) {
        self.sampled.retain(|_, at_ns| now_ns.saturating_sub(*at_ns) <= SAMPLED_NS);
    }

    /// Lets what sides saw fade. Call it about once a second.
    pub(crate) fn fade(&mut self) {
        self.places.iter_mut().for_each(|one| one.frames = one.frames.map(|seen| seen * KEPT));
    }
}

/// The numbers of the vantages of a device, by its first.
pub(crate) fn vantages(first: u32) -> std::ops::Range<u32> {
    first..first + SIDES as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn parts_of_a_device_share_its_vantages_until_the_last_is_gone() {
        let mut devices = Devices::default();
        let (place, first) = devices.enter(ADDRESS);
        assert_eq!(devices.enter(ADDRESS), (place, first));
        let mut gone = Vec::new();
        devices.leave(ADDRESS, place, &mut gone);
        assert!(gone.is_empty());
        devices.leave(ADDRESS, place, &mut gone);
        assert_eq!(gone, [first, first + 1, first + 2]);
        let (again, next) = devices.enter(ADDRESS);
        assert!(again == place && device_of(next) != device_of(first));
    }

    #[test]
    fn the_side_that_saw_most_counts_and_stays_while_they_are_alike() {
        let mut devices = Devices::default();
        let (place, _) = devices.enter(ADDRESS);
        assert!(devices.see(place, Direction::Egress, 100.0));
        assert!(!devices.see(place, Direction::Ingress, 110.0));
        assert!(devices.see(place, Direction::Egress, 1.0));
        assert!(devices.see(place, Direction::Ingress, 50.0));
        assert!(!devices.see(place, Direction::Egress, 50.0));
    }
}
