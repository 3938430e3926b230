//! Detects targets that refuse everything, and tries them rarely: each try costs the other targets time.

use ledger::Reason;
use sys::Errno;

use crate::target::reason_of;

/// A target refuses once this many messages in a row came back from this host's own stack, with none getting through.
const REFUSED_MAX: u32 = 8;

/// A target refuses once this many send calls in a row failed. Each message is tried three times.
const FAILED_MAX: u32 = 24;

/// Time between two probes of a target that refuses, in nanoseconds. A receiver that comes back is found within it.
const PROBE_INTERVAL_NS: u64 = 10_000_000;

/// Whether a target refuses everything, and when it was last tried.
#[derive(Default)]
pub(super) struct Refusal {
    refused: u32,
    failed: u32,
    /// Why a call would be pointless. `None` when the target is not known to refuse.
    reason: Option<Reason>,
    probe_due_ns: u64,
}

impl Refusal {
    /// Why a call would be pointless now. `None` when it may get through or a probe is due.
    pub(super) fn reason(&self, now_ns: u64) -> Option<Reason> {
        self.reason.filter(|_| now_ns < self.probe_due_ns)
    }

    /// Whether to send one message at a time, to find out if the target still refuses.
    pub(super) fn is_probing(&self) -> bool {
        self.reason.is_some()
    }

    /// Records that `messages` were taken, of which only the last may still come back. Returns how many came back in a row before
    /// it.
    pub(super) fn note_taken(&mut self, messages: usize) -> u32 {
        if messages > 1 || self.refused == 0 {
            *self = Refusal::default();
        }
        self.failed = 0;
        self.refused
    }

    /// Records that the error queue was read after the last message; `refused_before` messages in a row had come back before
    /// that.
    pub(super) fn note_collected(&mut self, refused_before: u32) {
        if self.refused == refused_before {
            *self = Refusal::default();
        }
    }

    /// Records that the last message came back from this host's own stack.
    pub(super) fn note_refused(&mut self, reason: Reason, now_ns: u64) {
        self.refused = self.refused.saturating_add(1);
        if self.refused >= REFUSED_MAX {
            self.refuse(reason, now_ns);
        }
    }

    /// Records a failed call.
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

/// Whether the next message would meet the same error. False for errors that pass by themselves, that depend on one message's
/// length or form, or that may report on earlier messages.
fn speaks_for_the_next_message(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::ACCES | Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends messages that all come back.
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
