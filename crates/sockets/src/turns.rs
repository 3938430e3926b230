//! When close events are read during a poll.

/// While no close events come, they are checked for in one of this many pauses of a walk. A pause comes about 100 µs after the
/// last, and 8 MiB of event buffer hold 6,500 events; checking in vain takes two system calls.
const PAUSES: u8 = 4;

/// Decides in which pauses to read events.
#[derive(Default, Debug)]
pub(crate) struct Turns {
    pauses: u8,
    /// Events that had been read at the last pause.
    events: u64,
}

impl Turns {
    /// Whether to read events in this pause: in every pause while events come, otherwise in one of [`PAUSES`]. `events` is the
    /// number read since the start.
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
