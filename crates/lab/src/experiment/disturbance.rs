//! What disturbs a measurement and is no transport's doing, in the words of the notes.

use std::time::Duration;
use text::percent;

/// What the scheduler of an idle host stays far below.
const LATE: Duration = Duration::from_millis(5);

/// What happened at one loss that no transport is to blame for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disturbance {
    /// Configured, 0 to 1.
    pub(super) loss: f64,
    /// One wake-up in a hundred was this late, or later.
    pub(super) late: Duration,
    /// Packets that did not fit the queue of the narrow way.
    pub(super) queue_drops: u64,
}

/// One sentence for each kind of disturbance, whatever the number of losses at which there was one.
pub(super) fn disturbed(disturbances: &[Disturbance]) -> Vec<String> {
    let mut notes = Vec::new();

    let late: Vec<_> = disturbances.iter().filter(|one| one.late > LATE).collect();
    let times_ms = || late.iter().map(|one| one.late.as_millis());
    if let (Some(least), Some(most)) = (times_ms().min(), times_ms().max()) {
        let times = if least < most { format!("{least} to {most}") } else { most.to_string() };
        notes.push(format!(
            "The host was busy at {} loss: one wake-up in a hundred came {times} ms late or later, and so did messages, \
             whatever carried them.",
            losses(&late)
        ));
    }

    let dropping: Vec<_> = disturbances.iter().filter(|one| one.queue_drops > 0).collect();
    if !dropping.is_empty() {
        let drops = text::grouped(dropping.iter().map(|one| one.queue_drops).sum());
        notes.push(format!(
            "The narrow way's queue dropped {drops} packets at {} loss, in addition to the loss.",
            losses(&dropping)
        ));
    }

    notes
}

/// `5 %`, `5 % and 10 %`, `0 %, 5 % and 10 %`.
fn losses(of: &[&Disturbance]) -> String {
    let all: Vec<String> = of.iter().map(|one| percent(one.loss)).collect();
    match all.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => all.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disturbance(loss: f64, late_ms: u64, queue_drops: u64) -> Disturbance {
        Disturbance { loss, late: Duration::from_millis(late_ms), queue_drops }
    }

    #[test]
    fn what_happened_at_several_losses_is_one_note() {
        assert_eq!(disturbed(&[disturbance(0.0, 5, 0)]), [""; 0]);
        let all = [disturbance(0.0, 6, 1_000), disturbance(0.05, 12, 0), disturbance(0.2, 7, 234)];
        assert_eq!(
            disturbed(&all),
            [
                "The host was busy at 0 %, 5 % and 20 % loss: one wake-up in a hundred came 6 to 12 ms late or later, and \
                 so did messages, whatever carried them.",
                "The narrow way's queue dropped 1,234 packets at 0 % and 20 % loss, in addition to the loss.",
            ]
        );
        assert!(
            disturbed(&all[1..2])[0]
                .contains("busy at 5 % loss: one wake-up in a hundred came 12 ms")
        );
    }
}
