//! Where frames are seen: at one side of one device.
//!
//! A frame enters a device once and leaves it once, whichever ports and line cards it takes. So what the ports of a device see of
//! a flow as it enters adds up, and so does what they see as it leaves, but the two are the same frames. Each such sum is a
//! *vantage*: all parts (sub-agents) and ports of one agent's address, in one direction.

use crate::definition::Direction;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::net::IpAddr;

/// Vantages of a device: one for each [`Direction`].
const SIDES: u32 = 3;

/// Room for the vantages of a device in their numbers.
const NUMBERS: u32 = 4;

/// A side is the one that counts in sums only once it has seen this much more than the one before.
const MORE: f64 = 1.25;

/// What is left of what a side saw, after a second.
const KEPT: f64 = 0.9;

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
    frames: [f64; SIDES as usize],
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
}

impl Devices {
    /// Maximum memory for this many agents, in bytes.
    pub(crate) const fn memory_max_bytes(agents: usize) -> usize {
        (agents * (size_of::<(IpAddr, u32)>() + 1) * 16) / 7
            + agents * 2 * (size_of::<Device>() + size_of::<u32>())
    }

    /// Maximum number of vantages for this many agents.
    pub(crate) const fn vantages_max(agents: usize) -> usize {
        agents * SIDES as usize
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
        let device =
            Device { first, agents: 1, frames: [0.0; SIDES as usize], main: Direction::Any };
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

    /// Lets what sides saw fade. Call it about once a second.
    pub(crate) fn fade(&mut self) {
        self.places.iter_mut().for_each(|one| one.frames = one.frames.map(|seen| seen * KEPT));
    }
}

/// The numbers of the vantages of a device, by its first.
pub(crate) fn vantages(first: u32) -> std::ops::Range<u32> {
    first..first + SIDES
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
