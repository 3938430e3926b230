//! The format of a spool's files. All numbers are little-endian.
//!
//! A segment is two copies of its header, each at the beginning of a 4 KiB page, followed by entries. An entry is a head of 48
//! bytes and a body. A head has its own CRC: after a damaged body, the next head is where it should be; after a damaged
//! head, the next one is searched for. CRCs in a segment are seeded with its salt, a random number, so that this search does
//! not mistake a body that looks like an entry for one, whoever wrote it.

use super::Tally;

/// Bytes before the first entry of a segment.
pub(super) const HEADER_BYTES: u64 = 2 * PAGE_BYTES;
/// Bytes before the body of an entry.
pub(super) const HEAD_BYTES: usize = 48;
/// Distance between the two copies of a header, and between the two slots of the cursor.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Bytes of a header or slot that carry data; the last four are the CRC of the others, in every version.
pub(super) const FIXED_BYTES: usize = 128;

const SEGMENT_MAGIC: [u8; 8] = *b"WeirSpoS";
const CURSOR_MAGIC: [u8; 8] = *b"WeirSpoC";
const VERSION: u32 = 1;

/// The result of reading a header or slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fixed<T> {
    /// Intact, and of our version.
    Known(T),
    /// Intact, and of another version.
    Version(u32),
    /// Anything else.
    Damaged,
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) salt: u32,
    /// Everything that was appended before the segment's first entry.
    pub(super) before: Tally,
}

impl Header {
    /// Both copies, up to the first entry.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut fixed = begin(SEGMENT_MAGIC);
        fixed[12..16].copy_from_slice(&self.salt.to_le_bytes());
        put_tally(&mut fixed[16..40], self.before);
        seal(&mut fixed);

        let mut bytes = vec![0; HEADER_BYTES as usize];
        for at in [0, PAGE_BYTES as usize] {
            bytes[at..at + FIXED_BYTES].copy_from_slice(&fixed);
        }
        bytes
    }

    pub(super) fn read(fixed: &[u8; FIXED_BYTES]) -> Fixed<Header> {
        open(fixed, SEGMENT_MAGIC, |fixed| Header {
            salt: u32_at(fixed, 12),
            before: tally_at(fixed, 16),
        })
    }
}

/// How the last process that used the spool left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The process is still running, or it crashed.
    Open,
    /// The process closed it.
    Closed,
    /// The process closed it, and some entries may have been delivered.
    ClosedHandedOn,
}

impl Left {
    fn number(self) -> u32 {
        match self {
            Left::Open => 0,
            Left::Closed => 1,
            Left::ClosedHandedOn => 2,
        }
    }

    fn numbered(number: u32) -> Left {
        match number {
            1 => Left::Closed,
            2 => Left::ClosedHandedOn,
            _ => Left::Open,
        }
    }
}

/// One of the two slots of the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// The slot with the higher generation counts.
    pub(super) generation: u64,
    pub(super) acknowledged: Tally,
    /// What was durably appended.
    pub(super) end: Tally,
    pub(super) left: Left,
}

impl Slot {
    /// A whole page.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut fixed = begin(CURSOR_MAGIC);
        fixed[12..16].copy_from_slice(&self.left.number().to_le_bytes());
        fixed[16..24].copy_from_slice(&self.generation.to_le_bytes());
        put_tally(&mut fixed[24..48], self.acknowledged);
        put_tally(&mut fixed[48..72], self.end);
        seal(&mut fixed);

        let mut bytes = vec![0; PAGE_BYTES as usize];
        bytes[..FIXED_BYTES].copy_from_slice(&fixed);
        bytes
    }

    pub(super) fn read(fixed: &[u8; FIXED_BYTES]) -> Fixed<Slot> {
        open(fixed, CURSOR_MAGIC, |fixed| Slot {
            generation: u64_at(fixed, 16),
            acknowledged: tally_at(fixed, 24),
            end: tally_at(fixed, 48),
            left: Left::numbered(u32_at(fixed, 12)),
        })
    }
}

/// The bytes before the body of an entry. Without a body it is a mark, which records what came before it and is not an entry:
/// it is written before each `fsync`, so that damage to the last entry is counted too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) body_bytes: u32,
    body_crc: u32,
    pub(super) rows: u32,
    pub(super) row_bytes: u64,
    /// Everything that was appended before.
    pub(super) before: Tally,
}

impl Head {
    pub(super) fn entry(salt: u32, before: Tally, rows: u32, row_bytes: u64, body: &[u8]) -> Head {
        let body_crc = crc32c::crc32c_append(salt, body);
        Head { body_bytes: body.len() as u32, body_crc, rows, row_bytes, before }
    }

    /// The head of the same entry in another segment.
    pub(super) fn with_salt(&self, salt: u32, body: &[u8]) -> Head {
        Head::entry(salt, self.before, self.rows, self.row_bytes, body)
    }

    pub(super) fn mark(before: Tally) -> Head {
        Head { body_bytes: 0, body_crc: 0, rows: 0, row_bytes: 0, before }
    }

    pub(super) fn is_mark(&self) -> bool {
        self.body_bytes == 0
    }

    /// Everything appended up to and including this.
    pub(super) fn after(&self) -> Tally {
        if self.is_mark() { self.before } else { self.before.and_entry(self.rows, self.row_bytes) }
    }

    pub(super) fn bytes(&self, salt: u32) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[4..8].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.rows.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.row_bytes.to_le_bytes());
        put_tally(&mut bytes[24..48], self.before);
        let crc = crc32c::crc32c_append(salt, &bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The head at the beginning of `bytes`, if there is one whose body fits in `body_bytes_max` bytes.
    pub(super) fn read(bytes: &[u8], salt: u32, body_bytes_max: u64) -> Option<Head> {
        let bytes: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        let head = Head {
            body_bytes: u32_at(bytes, 4),
            body_crc: u32_at(bytes, 8),
            rows: u32_at(bytes, 12),
            row_bytes: u64_at(bytes, 16),
            before: tally_at(bytes, 24),
        };

        // The cheap test first: a search tries every byte of a segment.
        let is_possible = u64::from(head.body_bytes) <= body_bytes_max;
        let is_whole = || crc32c::crc32c_append(salt, &bytes[4..]) == u32_at(bytes, 0);
        (is_possible && is_whole()).then_some(head)
    }

    pub(super) fn is_of(&self, salt: u32, body: &[u8]) -> bool {
        crc32c::crc32c_append(salt, body) == self.body_crc
    }
}

fn begin(magic: [u8; 8]) -> [u8; FIXED_BYTES] {
    let mut fixed = [0; FIXED_BYTES];
    fixed[..8].copy_from_slice(&magic);
    fixed[8..12].copy_from_slice(&VERSION.to_le_bytes());
    fixed
}

fn seal(fixed: &mut [u8; FIXED_BYTES]) {
    let crc = crc32c::crc32c(&fixed[..FIXED_BYTES - 4]);
    fixed[FIXED_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn open<T>(fixed: &[u8; FIXED_BYTES], magic: [u8; 8], read: impl FnOnce(&[u8]) -> T) -> Fixed<T> {
    // Check the CRC before the version: a flipped bit is damage, not a reason to refuse the spool.
    let is_whole = crc32c::crc32c(&fixed[..FIXED_BYTES - 4]) == u32_at(fixed, FIXED_BYTES - 4);
    if !fixed.starts_with(&magic) || !is_whole {
        return Fixed::Damaged;
    }
    match u32_at(fixed, 8) {
        VERSION => Fixed::Known(read(fixed)),
        version => Fixed::Version(version),
    }
}

fn put_tally(bytes: &mut [u8], tally: Tally) {
    for (place, value) in
        bytes.chunks_exact_mut(8).zip([tally.entries, tally.rows, tally.row_bytes])
    {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

fn tally_at(bytes: &[u8], at: usize) -> Tally {
    Tally {
        entries: u64_at(bytes, at),
        rows: u64_at(bytes, at + 8),
        row_bytes: u64_at(bytes, at + 16),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().copied().map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().copied().map_or(0, u64::from_le_bytes)
}
