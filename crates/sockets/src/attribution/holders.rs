//! The processes that polls found to hold sockets, each with a number that fits an entry of the table: a close has no inode, so
//! only the polls before it can say whose it was.

use super::{Process, Processes};
use std::collections::HashMap;
use std::num::NonZeroU32;

/// Maximum number of processes remembered. Sockets of others have none in their closing record. One takes about 64 bytes.
const HOLDERS_MAX: usize = 65_536;

/// Number of a process in [`Holders`]: its slot, and above it how often the slot has been used. So a number that outlives its
/// process names none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder(NonZeroU32);

/// Processes by number, kept as long as a socket of the table refers to them.
#[derive(Default)]
pub(crate) struct Holders {
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// The newest number of each process id.
    by_pid: HashMap<u32, Holder>,
}

struct Slot {
    uses: u16,
    pid: u32,
    name: Box<str>,
    /// The last poll that found the process, or kept a socket of it.
    seen_poll: u32,
}

impl Holder {
    fn new(slot: u16, uses: u16) -> Option<Holder> {
        NonZeroU32::new(u32::from(uses) << 16 | u32::from(slot)).map(Holder)
    }

    fn slot(self) -> u16 {
        self.0.get() as u16
    }

    fn uses(self) -> u16 {
        (self.0.get() >> 16) as u16
    }
}

impl Holders {
    /// Numbers the processes of a scan: once per process, so that a socket's number is one look-up by its inode.
    pub(crate) fn adopt(&mut self, processes: &mut Processes, poll: u32) {
        processes.owners.number_each(|process| self.number(process, poll));
    }

    fn number(&mut self, process: Process<'_>, poll: u32) -> Option<Holder> {
        if let Some(&holder) = self.by_pid.get(&process.pid)
            && let Some(slot) = self.slot_mut(holder)
            && *slot.name == *process.name
        {
            slot.seen_poll = poll;
            return Some(holder);
        }

        // A process that changed its name, or another with the id of one that has ended: sockets of the former keep its number.
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < HOLDERS_MAX => {
                self.slots.push(Slot { uses: 0, pid: 0, name: Box::default(), seen_poll: 0 });
                u16::try_from(self.slots.len() - 1).ok()?
            }
            None => return None,
        };

        let at = self.slots.get_mut(usize::from(slot))?;
        // From 1, so that no number is 0.
        at.uses = at.uses.checked_add(1).unwrap_or(1);
        (at.pid, at.name, at.seen_poll) = (process.pid, process.name.into(), poll);

        let holder = Holder::new(slot, at.uses)?;
        self.by_pid.insert(process.pid, holder);
        Some(holder)
    }

    fn slot_mut(&mut self, holder: Holder) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(holder.slot())).filter(|slot| slot.uses == holder.uses())
    }

    /// The process with this number, unless it has been forgotten.
    pub(crate) fn get(&self, holder: Holder) -> Option<Process<'_>> {
        let slot = self.slots.get(usize::from(holder.slot()))?;
        let is_same = slot.uses == holder.uses() && slot.pid != 0;
        is_same.then_some(Process { pid: slot.pid, name: &slot.name })
    }

    /// Keeps a process that a socket of the table refers to.
    pub(crate) fn keep(&mut self, holder: Option<Holder>, poll: u32) {
        if let Some(slot) = holder.and_then(|holder| self.slot_mut(holder)) {
            slot.seen_poll = poll;
        }
    }

    /// Forgets the processes that neither a scan nor a socket has referred to for this number of polls. A close that waits for a
    /// look is in no table, and waits for less.
    pub(crate) fn sweep(&mut self, poll: u32, kept_polls: u32) {
        for (slot, number) in self.slots.iter_mut().zip(0_u16..=u16::MAX) {
            if slot.pid == 0 || poll.wrapping_sub(slot.seen_poll) <= kept_polls {
                continue;
            }

            if self.by_pid.get(&slot.pid).copied() == Holder::new(number, slot.uses) {
                self.by_pid.remove(&slot.pid);
            }
            // No process has the id 0. The next use of the slot has another number.
            (slot.pid, slot.name) = (0, Box::default());
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, name: &str) -> Process<'_> {
        Process { pid, name }
    }

    #[test]
    fn a_number_names_its_process_and_never_the_next_one_in_its_slot() {
        let mut holders = Holders::default();
        let nginx = holders.number(process(7, "nginx"), 1).unwrap();
        assert_eq!(holders.number(process(7, "nginx"), 2), Some(nginx));
        assert_eq!(holders.get(nginx), Some(process(7, "nginx")));

        // Another program has the id now. A socket of the former one still names that.
        let other = holders.number(process(7, "curl"), 3).unwrap();
        assert_ne!(other, nginx);
        assert_eq!(holders.get(nginx), Some(process(7, "nginx")));

        for poll in 4..=40 {
            holders.keep(Some(nginx), poll);
            holders.sweep(poll, 30);
        }
        assert_eq!(holders.get(nginx), Some(process(7, "nginx")), "kept by a socket");
        assert_eq!(holders.get(other), None, "kept by nothing");

        for poll in 41..=80 {
            holders.sweep(poll, 30);
        }
        let next = [1, 2].map(|pid| holders.number(process(pid, "sshd"), 81).unwrap());
        assert_eq!((holders.slots.len(), holders.by_pid.len()), (2, 2), "slots are used again");
        assert!(!next.contains(&nginx) && !next.contains(&other));
        assert_eq!((holders.get(nginx), holders.get(other)), (None, None));
    }

    #[test]
    fn no_more_than_the_maximum_is_remembered() {
        let mut holders = Holders::default();
        for pid in 1..=HOLDERS_MAX as u32 {
            assert!(holders.number(process(pid, "a"), 1).is_some());
        }
        assert_eq!(holders.number(process(HOLDERS_MAX as u32 + 1, "a"), 1), None);
        holders.sweep(9, 3);
        assert!(holders.number(process(1, "a"), 9).is_some());
        assert_eq!((holders.slots.len(), holders.by_pid.len()), (HOLDERS_MAX, 1));
    }
}
