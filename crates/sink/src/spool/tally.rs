use std::ops::Sub;

/// Entries, their rows, and the rows' bytes. Of everything that was appended before an entry it is that entry's place in the
/// spool's life, so that a gap is a subtraction of two places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries: what the caller appended at once.
    pub entries: u64,
    /// Rows in them, as the caller counts.
    pub rows: u64,
    /// Bytes of the rows, as the caller counts; not what they take on disk.
    pub row_bytes: u64,
}

impl Tally {
    /// Whether there is nothing in it.
    pub fn is_zero(&self) -> bool {
        *self == Tally::default()
    }

    /// With one entry more. Wraps: what is read from a disk may be any number.
    pub(super) fn and_entry(self, rows: u32, row_bytes: u64) -> Tally {
        Tally {
            entries: self.entries.wrapping_add(1),
            rows: self.rows.wrapping_add(u64::from(rows)),
            row_bytes: self.row_bytes.wrapping_add(row_bytes),
        }
    }

    /// The one with more entries.
    pub(super) fn max(self, other: Tally) -> Tally {
        if other.entries > self.entries { other } else { self }
    }
}

impl Sub for Tally {
    type Output = Tally;

    fn sub(self, before: Tally) -> Tally {
        Tally {
            entries: self.entries.saturating_sub(before.entries),
            rows: self.rows.saturating_sub(before.rows),
            row_bytes: self.row_bytes.saturating_sub(before.row_bytes),
        }
    }
}

/// Which entry of a spool, or the end of which gap. Ids grow by one with each entry, over restarts too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId {
    /// Everything up to the entry, which is in it.
    pub(super) after: Tally,
}

impl EntryId {
    /// The number of the entry over the spool's life; the first is 1.
    pub fn number(&self) -> u64 {
        self.after.entries
    }
}
