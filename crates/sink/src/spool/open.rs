//! Opens a spool: finds its segments and its end.

use super::cursor::Cursor;
use super::format::Left;
use super::read::Reader;
use super::segments::Segments;
use super::{Disk, Ended, OpenError, Options, Recovered, Spool, Tally};

impl<D: Disk> Spool<D> {
    /// Opens the spool on the disk, or creates one. Nothing is appended to a segment of an earlier process.
    ///
    /// Reads only the heads of the last segment: damage elsewhere is found when it is read.
    ///
    /// # Errors
    /// [`OpenError::Version`] is permanent. After any other error, nothing has changed except that leftovers were removed; try
    /// again later.
    pub fn open(mut disk: D, options: Options) -> Result<(Spool<D>, Recovered), OpenError> {
        let segment_bytes = options.segment_bytes.min(options.bytes_max / 8);
        let options = Options { segment_bytes, ..options };

        let (mut cursor, slot) = Cursor::open(&mut disk)?;
        let (mut segments, leftover_bytes) = Segments::open(&mut disk)?;
        let (last, cut_bytes) = segments.cut_tail(&mut disk)?;

        // Without a cursor, everything in the spool is repeated.
        let first = segments.all.front().map_or(Tally::default(), |first| first.header.before);
        let acknowledged = slot.map_or(first, |slot| slot.acknowledged);
        let end = slot.map_or(last, |slot| last.max(acknowledged).max(slot.end));
        cursor.write(acknowledged, end, Left::Open)?;

        let left = match slot {
            Some(slot) => slot.left,
            None if segments.all.is_empty() => Left::Closed,
            None => Left::Open,
        };
        let ended = if left == Left::Open { Ended::Crashed } else { Ended::Closed };
        let waiting = end - acknowledged;
        let maybe_acknowledged = if left == Left::Closed { Tally::default() } else { waiting };
        let cut_bytes = cut_bytes + leftover_bytes;
        let recovered = Recovered { waiting, maybe_acknowledged, cut_bytes, ended };

        let (reader, rescue, read) = (Reader::default(), None, acknowledged);
        let mut spool =
            Spool { disk, options, segments, cursor, reader, rescue, end, read, acknowledged };
        spool.reclaim();
        Ok((spool, recovered))
    }
}
