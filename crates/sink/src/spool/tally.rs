use std::ops::Sub;

/// A count of entries, their rows, and the rows' bytes. The tally of everything appended before an entry is its position in
/// the spool's life, so a gap is the difference of two positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries: one per append.
    pub entries: u64,
    /// Rows in them, as counted by the caller.
    pub rows: u64,
    /// Bytes of the rows, as counted by the caller; not their size on disk.
    pub row_bytes: u64,
}

impl Tally {
    /// Whether all counts are zero.
    pub fn is_zero(&self) -> bool {
        *self == Tally::default()
    }

    /// This with one entry more. Wraps, because numbers read from disk may be anything.
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

/// Identifies an entry of a spool, or the end of a gap. Ids grow by one with each entry, across restarts too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId {
    /// Everything up to and including the entry.
    pub(super) after: Tally,
}

impl EntryId {
    /// The number of the entry over the spool's life; the first is 1.
    pub fn number(&self) -> u64 {
        self.after.entries
    }
}
