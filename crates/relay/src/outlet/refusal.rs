//! Targets that take nothing: each try costs the other targets time, so there are few.

use ledger::Reason;
use sys::Errno;

use crate::target::reason_of;

/// Messages in a row that came back from this host's own stack, with none that got through, after which a target refuses.
const REFUSED_MAX: u32 = 8;

/// Send calls in a row that failed after which a target refuses: each message is tried three times.
const FAILED_MAX: u32 = 24;

/// Time between two tries at a target that refuses, in nanoseconds. A receiver that comes back is found within it.
const PROBE_INTERVAL_NS: u64 = 10_000_000;

/// Whether a target refuses everything, and since when it was not tried.
#[derive(Default)]
pub(super) struct Refusal {
    refused: u32,
    failed: u32,
    /// Why nothing is worth a call; `None`: the target is not known to refuse.
    reason: Option<Reason>,
    probe_due_ns: u64,
}

impl Refusal {
    /// Why a call would be wasted now; `None` where it may get through or a try is due.
    pub(super) fn reason(&self, now_ns: u64) -> Option<Reason> {
        self.reason.filter(|_| now_ns < self.probe_due_ns)
    }

    /// One message at a time, to see whether the target still refuses.
    pub(super) fn is_probing(&self) -> bool {
        self.reason.is_some()
    }

    /// `messages` were taken, of which only the last may still come back. Returns how many came back in a row
    /// before it.
    pub(super) fn note_taken(&mut self, messages: usize) -> u32 {
        if messages > 1 || self.refused == 0 {
            *self = Refusal::default();
        }
        self.failed = 0;
        self.refused
    }

    /// The error queue was read after the last message, before which `refused_before` in a row had come back.
    pub(super) fn note_collected(&mut self, refused_before: u32) {
        if self.refused == refused_before {
            *self = Refusal::default();
        }
    }

    /// The last message came back from this host's own stack.
    pub(super) fn note_refused(&mut self, reason: Reason, now_ns: u64) {
        self.refused = self.refused.saturating_add(1);
        if self.refused >= REFUSED_MAX {
            self.refuse(reason, now_ns);
        }
    }

    /// A call failed.
    pub(super) fn note_failed(&mut self, errno: Errno, now_ns: u64) {
        if !speaks_for_the_next_message(errno) {
            return;
        }
        self.failed = self.failed.saturating_add(1);
        if self.failed >= FAILED_MAX {
            self.refuse(reason_of(errno), now_ns);
        }
    }

    fn refuse(&mut self, reason: Reason, now_ns: u64) {
        self.reason = Some(reason);
        self.probe_due_ns = now_ns + PROBE_INTERVAL_NS;
    }
}

/// Errors that the next message would meet too. Not those that pass by themselves, that are about one message's length or
/// form, or that may be reports of earlier messages.
fn speaks_for_the_next_message(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::ACCES | Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends messages of which each comes back.
    fn refused(refusal: &mut Refusal, messages: u32, now_ns: u64) {
        for _ in 0..messages {
            let before = refusal.note_taken(1);
            refusal.note_refused(Reason::Refused, now_ns);
            refusal.note_collected(before);
        }
    }

    #[test]
    fn eight_refusals_in_a_row_are_believed_until_one_message_gets_through() {
        let mut refusal = Refusal::default();
        refused(&mut refusal, REFUSED_MAX - 1, 0);
        assert_eq!(refusal.reason(0), None);
        refused(&mut refusal, 1, 5);
        assert_eq!(refusal.reason(5), Some(Reason::Refused));
        assert_eq!(refusal.reason(5 + PROBE_INTERVAL_NS), None, "a try is due");
        refused(&mut refusal, 1, 5 + PROBE_INTERVAL_NS);
        assert_eq!(refusal.reason(6 + PROBE_INTERVAL_NS), Some(Reason::Refused));
        let before = refusal.note_taken(1);
        refusal.note_collected(before);
        assert!(!refusal.is_probing());
    }

    #[test]
    fn a_message_that_gets_through_in_between_ends_the_row() {
        let mut refusal = Refusal::default();
        for _ in 0..100 {
            refused(&mut refusal, REFUSED_MAX - 1, 0);
            let before = refusal.note_taken(2);
            refusal.note_refused(Reason::Refused, 0);
            refusal.note_collected(before);
            assert_eq!(refusal.reason(0), None);
        }
    }

    #[test]
    fn errors_that_pass_by_themselves_are_none_of_the_targets() {
        let mut refusal = Refusal::default();
        for errno in [Errno::AGAIN, Errno::NOBUFS, Errno::MSGSIZE, Errno::INVAL, Errno::CONNREFUSED]
        {
            (0..FAILED_MAX).for_each(|_| refusal.note_failed(errno, 0));
        }
        assert_eq!(refusal.reason(0), None);
        (0..FAILED_MAX).for_each(|_| refusal.note_failed(Errno::PERM, 0));
        assert_eq!(refusal.reason(0), Some(Reason::Firewall));
        refusal.note_taken(1);
        assert_eq!(refusal.reason(0), None);
    }
}
