//! A batch on its way into a byte stream, and how far it is.

use crate::batch::{Attempt, Fate, Outcome, Parts};

/// A batch being sent.
pub(crate) struct Held {
    pub(crate) attempt: Attempt,
    /// The bytes of its parts, concatenated, if the attempt does not cover the whole batch.
    some: Option<Vec<u8>>,
    /// How many of its bytes the link has accepted.
    pub(crate) taken: usize,
    /// Offset of its first byte in the connection.
    pub(super) start: u64,
}

impl Held {
    pub(crate) fn new(attempt: Attempt) -> Held {
        let some = match &attempt.parts {
            Parts::All => None,
            Parts::Some(places) => {
                let parts = places.iter().map(|&place| attempt.batch.part(place as usize));
                Some(parts.collect::<Vec<_>>().concat())
            }
        };
        Held { attempt, some, taken: 0, start: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.some.as_deref().unwrap_or(&self.attempt.batch.encoded.bytes)
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.taken == self.bytes().len()
    }

    pub(super) fn is_confirmed(&self, confirmed: u64) -> bool {
        self.is_taken() && self.start + self.taken as u64 <= confirmed
    }

    pub(crate) fn outcome(&self, parts: Parts, fate: Fate) -> Outcome {
        Outcome { batch: self.attempt.batch.id, parts, fate }
    }

    /// Sorts its parts when the connection has ended: those that the other end has, those of which a byte may have arrived, and
    /// those of which no byte was sent.
    pub(crate) fn divide(&self, confirmed: u64) -> [Vec<u32>; 3] {
        let batch = &self.attempt.batch;
        let confirmed = confirmed.saturating_sub(self.start);
        let mut divided = [const { Vec::new() }; 3];
        let mut end = 0;
        for place in self.attempt.parts.places(batch.encoded.parts.len()) {
            let start = end;
            end += batch.part(place).len();
            let which = match () {
                () if end as u64 <= confirmed && end <= self.taken => 0,
                () if start < self.taken => 1,
                () => 2,
            };
            divided[which].push(place as u32);
        }
        divided
    }

    /// The bytes to the end of the part that is taken in part.
    pub(crate) fn rest_of_part(&self) -> &[u8] {
        let batch = &self.attempt.batch;
        let mut end = 0;
        for place in self.attempt.parts.places(batch.encoded.parts.len()) {
            if end >= self.taken {
                break;
            }
            end += batch.part(place).len();
        }
        self.bytes().get(self.taken..end).unwrap_or_default()
    }

    /// The same with the part alone that is taken in part: the others have their fate.
    pub(crate) fn only_part(self, torn: Vec<u32>) -> Held {
        let left = self.rest_of_part().len();
        let parts = Parts::Some(torn);
        let held = Held::new(Attempt { batch: self.attempt.batch, parts });
        let taken = held.bytes().len() - left;
        Held { taken, ..held }
    }
}
