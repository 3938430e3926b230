//! How far a spool is acknowledged, on disk.

use super::disk::{Disk, DiskFile, read_all, write_all};
use super::format::{FIXED_BYTES, Fixed, Left, PAGE_BYTES, Slot};
use super::walk::TRIES;
use super::{OpenError, Tally};
use sys::Errno;

const NAME: &str = "cursor";

/// A file of two slots that are written in turn: if a crash tears one slot, the other is intact.
pub(super) struct Cursor<F> {
    file: F,
    generation: u64,
    /// What each slot durably records as acknowledged. `None`: unknown, or never written.
    slots: [Option<Tally>; 2],
}

impl<F: DiskFile> Cursor<F> {
    /// Opens or creates the file; also returns the newest intact slot, if any.
    pub(super) fn open<D: Disk<File = F>>(
        disk: &mut D,
    ) -> Result<(Cursor<F>, Option<Slot>), OpenError> {
        let file = match disk.open(NAME) {
            Err(Errno::NOENT) => {
                let file = disk.create(NAME)?;
                disk.sync()?;
                file
            }
            file => file?,
        };

        let mut newest: Option<Slot> = None;
        let mut failed = Ok(());
        for at in [0, PAGE_BYTES] {
            let mut fixed = [0; FIXED_BYTES];
            match read_patiently(&file, &mut fixed, at).map(|()| Slot::read(&fixed)) {
                Ok(Fixed::Known(slot)) => {
                    let is_newer = newest.is_none_or(|other| slot.generation > other.generation);
                    newest = if is_newer { Some(slot) } else { newest };
                }
                Ok(Fixed::Version(version)) => return Err(OpenError::Version(version)),
                // Use the other slot; if there is none, everything in the spool is repeated.
                Ok(Fixed::Damaged) => {}
                Err(errno) => failed = Err(errno),
            }
        }
        if newest.is_none() {
            failed?;
        }

        let generation = newest.map_or(0, |slot| slot.generation);
        Ok((Cursor { file, generation, slots: [None; 2] }, newest))
    }

    /// Whether the newest slot records this as acknowledged.
    pub(super) fn says(&self, acknowledged: Tally) -> bool {
        self.slots[self.slot()] == Some(acknowledged)
    }

    /// Writes the older slot and makes it durable.
    pub(super) fn write(
        &mut self,
        acknowledged: Tally,
        end: Tally,
        left: Left,
    ) -> Result<(), Errno> {
        self.generation = self.generation.wrapping_add(1);
        let slot = Slot { generation: self.generation, acknowledged, end, left };
        let idx = self.slot();
        self.slots[idx] = None;

        let done = write_all(&self.file, &slot.bytes(), idx as u64 * PAGE_BYTES)
            .and_then(|()| self.file.sync());
        if done.is_err() {
            // The other slot may be the only intact one: the next attempt writes this one again.
            self.generation = self.generation.wrapping_add(1);
            return done;
        }
        self.slots[idx] = Some(acknowledged);
        Ok(())
    }

    /// Makes both slots record it: acknowledged entries may be removed only once either slot alone proves that they
    /// were acknowledged.
    pub(super) fn write_both(&mut self, acknowledged: Tally, end: Tally) -> Result<(), Errno> {
        for _ in 0..self.slots.len() {
            let is_behind =
                |slot: &Option<Tally>| slot.is_none_or(|slot| slot.entries < acknowledged.entries);
            if self.slots.iter().any(is_behind) {
                self.write(acknowledged, end, Left::Open)?;
            }
        }
        Ok(())
    }

    /// The slot of the current generation.
    fn slot(&self) -> usize {
        (self.generation % 2) as usize
    }
}

fn read_patiently(file: &impl DiskFile, bytes: &mut [u8], at: u64) -> Result<(), Errno> {
    let mut tries = (0..TRIES).map(|_| read_all(file, bytes, at).map(|_| ()));
    tries.find(Result::is_ok).unwrap_or(Err(Errno::IO))
}
