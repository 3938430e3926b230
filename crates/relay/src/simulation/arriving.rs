//! Arrivals: batches of datagrams of random sizes, copied into the ring or received straight into it, while a reader may hold its
//! claim.

use super::{History, payload, source_of};
use crate::pump::Targets;
use crate::ring::Claim;
use ledger::{Counters, Reason};
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use sys::Source;
use sys::clock::Now;
use sys::recv::{Payload, Received};

impl History {
    pub(super) fn receive(&mut self) {
        let batch_len = 1 + self.random.below(12);
        let same_len = self.random.one_in(2).then(|| self.random.below(120) as usize);
        let batch: Vec<_> = (0..batch_len)
            .map(|at| {
                let len = same_len.unwrap_or_else(|| self.random.below(300) as usize);
                let number = self.next_number + at;
                (number, payload(number, len), source_of(number))
            })
            .collect();
        self.next_number += batch_len;
        let truncated = self.random.one_in(10).then(|| self.random.below(batch_len));
        if self.random.one_in(2) {
            // With a guard that never catches up, the ring would never be empty.
            self.seen_of(&[], u64::MAX);
        }
        let lens: Vec<_> = batch.iter().map(|(_, bytes, _)| bytes.len()).collect();
        self.intake.writer.rewind_if_empty(lens.iter().sum());
        let stride = self.fill_room(&batch);
        let before = self.intake.writer.appended();
        let datagrams = || {
            batch.iter().zip(0..).map(|((_, bytes, source), at)| Received {
                payload: match stride {
                    Some(stride) => {
                        Payload::InRoom { offset: at as usize * stride, len: bytes.len() }
                    }
                    None => Payload::Bytes(bytes),
                },
                truncated: truncated == Some(at),
                source: Source::from(std::net::SocketAddr::from((*source, 514))),
                stamp_unix_ns: None,
                segment_bytes: 0,
            })
        };
        // Sometimes without the targets, as when another thread owns them: then the ring takes from them.
        let mut nobody = Targets::default();
        let targets = if self.random.one_in(2) { &mut self.targets } else { &mut nobody };
        // A claim held for a whole turn of the ring costs the newest datagrams.
        // Nothing may depend on the wall clock, which may say anything at any time.
        let now = Now {
            monotonic_ns: self.clock.load(Ordering::Relaxed),
            realtime_ns: self.next_number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        let holds = {
            let nobodys = Counters::default();
            let held = if self.random.one_in(4) { self.guard.claim(&nobodys) } else { None };
            self.intake.take_in(datagrams, now, targets);
            let commit = |mut claim: Claim<'_>| claim.advance(claim.len());
            held.map(commit).is_some()
        };
        // The counters tell which kinds of the batch got in; the order is the batch's.
        let entered = (self.intake.writer.appended().count - before.count) as usize;
        let is_denied = |source| source == Ipv4Addr::new(10, 0, 0, 3);
        let denies = !self.intake.meter.receive.dropped(Reason::SourceDenied).is_zero();
        let mut passed: Vec<_> = batch
            .iter()
            .zip(0..)
            .filter(|((_, _, source), at)| {
                truncated != Some(*at) && !(denies && is_denied(*source))
            })
            .map(|((number, bytes, _), _)| (*number, bytes.len()))
            .collect();
        let guarded = passed.len() - entered;
        assert!(guarded == 0 || holds, "no claim is held here, and every payload fits the ring");
        if guarded > 0 {
            self.seen.guarded += guarded as u64;
            passed = self.seen_of(&passed, before.count);
            assert!(passed.len() <= entered);
            // A reader that is far behind gives up its oldest datagrams, and which ones is then not known.
            self.is_order_known &= passed.len() == entered;
        }
        let counted = self.intake.meter.receive.dropped(Reason::RingGuard).count;
        assert_eq!(counted, self.seen.guarded);
        self.appended.append(&mut passed);
    }

    /// Writes the payloads straight into the ring, half of the times that it has room. Returns their spacing.
    fn fill_room(&mut self, batch: &[(u64, Vec<u8>, Ipv4Addr)]) -> Option<usize> {
        let stride = batch.iter().map(|(_, bytes, _)| bytes.len()).max().filter(|len| *len > 0)?;
        let is_wanted = self.random.one_in(2);
        let writer = &mut self.intake.writer;
        let room = is_wanted.then(|| writer.room(batch.len(), batch.len() * stride))??;
        for (slot, (_, bytes, _)) in room.chunks_exact_mut(stride).zip(batch) {
            slot[..bytes.len()].copy_from_slice(bytes);
        }
        Some(stride)
    }

    /// The datagrams of a batch that the guard sees in the ring from this number on. The guard held its claim, so it lost none.
    fn seen_of(&mut self, passed: &[(u64, usize)], from: u64) -> Vec<(u64, usize)> {
        let mut candidates = passed.iter();
        let mut seen = Vec::new();
        let nobodys = Counters::default();
        while let Some(mut claim) = self.guard.claim(&nobodys) {
            let new = (0..claim.len()).filter(|index| claim.first() + *index as u64 >= from);
            for index in new {
                let (_, bytes) = claim.get(index);
                let is_it = |&&(number, len): &&(u64, usize)| payload(number, len) == bytes;
                seen.push(*candidates.find(is_it).expect("of the batch, in its order"));
            }
            claim.advance(claim.len());
        }
        seen
    }
}
