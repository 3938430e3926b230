//! When close events are read during a poll.

/// Pauses of a walk in one of which close events are looked for while none come. A pause is some 100 µs after the last, and 8 MiB of
/// event buffer hold 6,500 events; a look at nothing takes two system calls.
const PAUSES: u8 = 4;

/// Counts pauses.
#[derive(Default, Debug)]
pub(crate) struct Turns {
    pauses: u8,
    /// Events that had been read by the last pause.
    events: u64,
}

impl Turns {
    /// Whether events should be read in this pause: in each while they come, else in one of [`PAUSES`]. `events` is how many have
    /// been read since the start.
    pub(crate) fn is_due(&mut self, events: u64) -> bool {
        let they_come = self.events != events;
        self.events = events;
        self.pauses += 1;
        let is_due = they_come || self.pauses >= PAUSES;
        if is_due {
            self.pauses = 0;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pause_in_a_few_is_due_and_each_while_events_come() {
        let mut turns = Turns::default();
        let mut due = |events: &[u64]| -> Vec<bool> {
            events.iter().map(|&events| turns.is_due(events)).collect()
        };
        assert_eq!(due(&[0; 8]), [false, false, false, true, false, false, false, true]);
        assert_eq!(due(&[3, 9, 9, 9, 9, 9]), [true, true, false, false, false, true]);
    }
}
