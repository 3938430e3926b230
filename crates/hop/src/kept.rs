//! The state of each end that outlives its process, so that what was in flight during a crash is accounted for.
//!
//! The sending end keeps a few totals ([`KeptSender`]), written before anything that they count leaves. The receiving end writes
//! [`Record`]s of what it accepts, each before the datagram is passed on; replayed in order, they restore its memory. The caller
//! decides where to keep the bytes, for example in memory mapped from a file, which survives `kill -9`.

use crate::Amount;
use crate::sender::Fates;

/// Length of an encoded [`KeptSender`], in bytes.
pub const KEPT_SENDER_BYTES: usize = 16 + 3 * 8 + AMOUNTS * 16;
const AMOUNTS: usize = 8;

/// Room that a receiving end's file has for records besides those that it begins with, and as many again, in bytes: some 160,000
/// datagrams.
pub const FILE_ROOM_BYTES: usize = 4 << 20;

/// The state that a sending end keeps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeptSender {
    pub run: [u8; 16],
    /// The receiver's life; 0 when none has answered.
    pub life: u64,
    /// The next sequence number.
    pub next: u64,
    /// What the receiver had accepted of the run in that life, at the last count.
    pub accepted: Amount,
    /// What became of all datagrams taken in the run, by this process and earlier ones.
    pub fates: Fates,
}

impl KeptSender {
    /// Encodes the state, little-endian.
    pub fn encode(&self) -> [u8; KEPT_SENDER_BYTES] {
        let mut out = [0; KEPT_SENDER_BYTES];
        out[..16].copy_from_slice(&self.run);
        let Fates { taken, delivered, expired, lapped, ended, uncertain, lost_in_crash, .. } =
            self.fates;
        let totals = [self.life, self.next, self.fates.possible_duplicates];
        let amounts: [Amount; AMOUNTS] =
            [self.accepted, taken, delivered, expired, lapped, ended, uncertain, lost_in_crash];
        let amounts = amounts.into_iter().flat_map(|one| [one.datagrams, one.bytes]);
        let numbers = totals.into_iter().chain(amounts);
        for (place, number) in out[16..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out
    }

    /// Decodes what [`encode`](Self::encode) wrote. `None` when the bytes cannot be that.
    pub fn decode(bytes: &[u8]) -> Option<KeptSender> {
        let mut at = bytes;
        let run = *take(&mut at)?;
        let mut number = || take(&mut at).map(|bytes| u64::from_le_bytes(*bytes));
        let (life, next, possible_duplicates) = (number()?, number()?, number()?);
        let mut amounts = [Amount::default(); AMOUNTS];
        for amount in &mut amounts {
            *amount = Amount { datagrams: number()?, bytes: number()? };
        }
        let [accepted, taken, delivered, expired, lapped, ended, uncertain, lost_in_crash] =
            amounts;
        let fates = Fates {
            taken,
            delivered,
            expired,
            lapped,
            ended,
            uncertain,
            lost_in_crash,
            possible_duplicates,
            ..Fates::default()
        };
        let settled = fates.settled();
        let is_possible =
            settled.datagrams <= taken.datagrams && settled.bytes <= taken.bytes && run != [0; 16];
        is_possible.then_some(KeptSender { run, life, next, accepted, fates })
    }
}

/// One entry of a receiving end's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// The random number of this life.
    Life(u64),
    /// A known run: its number in other records, and its state.
    Run(KeptRun<'a>),
    /// More slots of a run, from sequence number `first` on: four bytes each.
    Slots { run: u32, first: u64, slots: &'a [u8] },
    /// The greatest time of a hello of a key's forgotten runs, by their senders' clocks.
    Forgotten { key: u64, unix_ns: u64 },
    /// What was accepted of forgotten runs of a sender.
    Past(KeptPast<'a>),
    /// The time of a run's newest hello, by the sender's clock.
    Said { run: u32, unix_ns: u64 },
    /// A datagram of `parts` parts, the last of which has sequence number `last`, was accepted. A floor adopted without a
    /// datagram needs no record: every packet of the sender carries it.
    Accepted { run: u32, floor: u64, last: u64, parts: u16, bytes: u16 },
}

/// A run as it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptRun<'a> {
    pub number: u32,
    pub id: [u8; 16],
    pub key: u64,
    pub said_unix_ns: u64,
    pub floor: u64,
    /// Accepted below the floor.
    pub accepted: Amount,
    /// The sender's names for its host and its listener.
    pub host: &'a str,
    pub listener: &'a str,
    /// Four bytes per sequence number, from the floor up.
    pub slots: &'a [u8],
}

/// The sum of a sender's forgotten runs, as it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptPast<'a> {
    pub key: u64,
    pub accepted: Amount,
    /// The sender's names for its host and its listener; empty for all other senders that have the key.
    pub host: &'a str,
    pub listener: &'a str,
}

const LIFE: u8 = 1;
const RUN: u8 = 2;
const SAID: u8 = 3;
const ACCEPTED: u8 = 4;
const SLOTS: u8 = 5;
const FORGOTTEN: u8 = 6;
const PAST: u8 = 7;

impl<'a> Record<'a> {
    /// Appends the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Record::Life(life) => {
                out.push(LIFE);
                out.extend(life.to_le_bytes());
            }
            Record::Run(run) => {
                out.push(RUN);
                out.extend(run.number.to_le_bytes());
                out.extend(run.id);
                let Amount { datagrams, bytes } = run.accepted;
                for number in [run.key, run.said_unix_ns, run.floor, datagrams, bytes] {
                    out.extend(number.to_le_bytes());
                }
                encode_names([run.host, run.listener], out);
                encode_slots(run.slots, out);
            }
            Record::Slots { run, first, slots } => {
                out.push(SLOTS);
                out.extend(run.to_le_bytes());
                out.extend(first.to_le_bytes());
                encode_slots(slots, out);
            }
            Record::Forgotten { key, unix_ns } => {
                out.push(FORGOTTEN);
                out.extend(key.to_le_bytes());
                out.extend(unix_ns.to_le_bytes());
            }
            Record::Past(past) => {
                out.push(PAST);
                let Amount { datagrams, bytes } = past.accepted;
                for number in [past.key, datagrams, bytes] {
                    out.extend(number.to_le_bytes());
                }
                encode_names([past.host, past.listener], out);
            }
            Record::Said { run, unix_ns } => {
                out.push(SAID);
                out.extend(run.to_le_bytes());
                out.extend(unix_ns.to_le_bytes());
            }
            Record::Accepted { run, floor, last, parts, bytes } => {
                out.push(ACCEPTED);
                out.extend(run.to_le_bytes());
                out.extend(floor.to_le_bytes());
                out.extend(last.to_le_bytes());
                out.extend(parts.to_le_bytes());
                out.extend(bytes.to_le_bytes());
            }
        }
    }

    /// Takes the first record off `bytes`. `None` when there is none, or it cannot be decoded.
    pub fn decode(bytes: &mut &'a [u8]) -> Option<Record<'a>> {
        let at = bytes;
        Some(match take::<1>(at)? {
            [LIFE] => Record::Life(u64_of(at)?),
            [RUN] => {
                let number = u32_of(at)?;
                let id = *take(at)?;
                let (key, said_unix_ns, floor) = (u64_of(at)?, u64_of(at)?, u64_of(at)?);
                let accepted = Amount { datagrams: u64_of(at)?, bytes: u64_of(at)? };
                let (host, listener) = (name_of(at)?, name_of(at)?);
                let slots = slots_of(at)?;
                Record::Run(KeptRun {
                    number,
                    id,
                    key,
                    said_unix_ns,
                    floor,
                    accepted,
                    host,
                    listener,
                    slots,
                })
            }
            [SLOTS] => Record::Slots { run: u32_of(at)?, first: u64_of(at)?, slots: slots_of(at)? },
            [FORGOTTEN] => Record::Forgotten { key: u64_of(at)?, unix_ns: u64_of(at)? },
            [PAST] => {
                let key = u64_of(at)?;
                let accepted = Amount { datagrams: u64_of(at)?, bytes: u64_of(at)? };
                let (host, listener) = (name_of(at)?, name_of(at)?);
                Record::Past(KeptPast { key, accepted, host, listener })
            }
            [SAID] => Record::Said { run: u32_of(at)?, unix_ns: u64_of(at)? },
            [ACCEPTED] => Record::Accepted {
                run: u32_of(at)?,
                floor: u64_of(at)?,
                last: u64_of(at)?,
                parts: u16::from_le_bytes(*take(at)?),
                bytes: u16::from_le_bytes(*take(at)?),
            },
            _ => return None,
        })
    }
}

/// Storage for a receiving end's records.
pub trait Memory: Send {
    /// Appends a record. Once this returns, the record outlives the process.
    fn note(&mut self, record: &[u8]);

    /// Whether [`begin_anew`](Self::begin_anew) should be called soon; there is still room for a few records.
    fn is_full(&self) -> bool;

    /// Replaces all records with these.
    fn begin_anew(&mut self, records: &[u8]);
}

fn encode_names(names: [&str; 2], out: &mut Vec<u8>) {
    for name in names {
        // As in a hello, whose length field is one byte.
        let name = &name[..name.floor_char_boundary(255)];
        out.push(name.len() as u8);
        out.extend(name.as_bytes());
    }
}

fn encode_slots(slots: &[u8], out: &mut Vec<u8>) {
    out.extend((slots.len() as u32).to_le_bytes());
    out.extend(slots);
}

fn slots_of<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u32_of(bytes)? as usize;
    bytes.split_off(..len)
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

fn u32_of(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes).map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_of(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(|bytes| u64::from_le_bytes(*bytes))
}

fn name_of<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let [len] = *take(bytes)?;
    std::str::from_utf8(bytes.split_off(..usize::from(len))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_read_as_it_was_written() {
        let one = |datagrams| Amount { datagrams, bytes: datagrams * 100 };
        let fates = Fates {
            taken: one(100),
            delivered: one(50),
            expired: one(4),
            lapped: one(3),
            ended: one(2),
            uncertain: one(1),
            lost_in_crash: one(5),
            ..Fates::default()
        };
        let kept = KeptSender { run: [7; 16], life: 8, next: 120, accepted: one(49), fates };
        assert_eq!(KeptSender::decode(&kept.encode()), Some(kept));
        assert_eq!(KeptSender::decode(&[0; KEPT_SENDER_BYTES]), None);
        assert_eq!(KeptSender::decode(&kept.encode()[1..]), None);
        let fates = Fates { delivered: one(90), ..fates };
        assert_eq!(KeptSender::decode(&KeptSender { fates, ..kept }.encode()), None);
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let run = KeptRun {
            number: 3,
            id: [9; 16],
            key: 1 << 40,
            said_unix_ns: 5,
            floor: 6,
            accepted: Amount { datagrams: 2, bytes: 20 },
            host: "web-1",
            listener: "",
            slots: &[1, 2, 3, 4],
        };
        let records = [
            Record::Life(77),
            Record::Run(run),
            Record::Slots { run: 3, first: 64, slots: &[1; 256] },
            Record::Forgotten { key: 1 << 40, unix_ns: 9 },
            Record::Past(KeptPast { key: 4, accepted: run.accepted, host: "é", listener: "in" }),
            Record::Said { run: 3, unix_ns: 8 },
            Record::Accepted { run: 3, floor: 6, last: 9, parts: 4, bytes: 3_000 },
        ];
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(&mut bytes));
        let mut at = &bytes[..];
        for record in records {
            assert_eq!(Record::decode(&mut at), Some(record));
        }
        assert!(at.is_empty());
        for cut in 0..bytes.len() {
            let mut at = &bytes[..cut];
            while Record::decode(&mut at).is_some() {}
        }
    }
}
