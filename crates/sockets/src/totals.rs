//! The totals of one poll, on their way to a totals record.

use ledger::Reason;
use record::PollTotals;

/// Counts since the last totals record.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sums {
    pub(crate) namespaces_visited: u64,
    pub(crate) namespaces_failed: u64,
    pub(crate) namespaces_vanished: u64,
    pub(crate) namespaces_new: u64,
    pub(crate) namespaces_left_out: u64,
    pub(crate) namespaces_put_off: u64,
    pub(crate) connections_unheard: u64,
    pub(crate) visited: u64,
    pub(crate) emitted: u64,
    pub(crate) unchanged: u64,
    pub(crate) filtered: u64,
    pub(crate) sampled: u64,
    pub(crate) malformed: u64,
    pub(crate) duplicate: u64,
    pub(crate) dropped_other: u64,
    pub(crate) closes_observed: u64,
    pub(crate) closes_emitted: u64,
    pub(crate) closes_filtered: u64,
    pub(crate) closes_undecided: u64,
    pub(crate) closes_never_connected: u64,
    pub(crate) closes_elsewhere: u64,
    pub(crate) closes_sampled: u64,
    pub(crate) closes_lost: u64,
    pub(crate) closes_malformed: u64,
    pub(crate) closes_duplicate: u64,
    pub(crate) closes_dropped_other: u64,
    pub(crate) closes_unobserved: u64,
    pub(crate) evicted: u64,
    pub(crate) poll_ns: u64,
    pub(crate) discovery_ns: u64,
    pub(crate) walk_ns: u64,
    pub(crate) records_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) walks: u64,
    pub(crate) bytes_read: u64,
}

impl Sums {
    /// Counts a socket that the kernel listed but that got no record.
    pub(crate) fn left_out(&mut self, reason: Reason) {
        match reason {
            Reason::Unchanged => self.unchanged += 1,
            Reason::Filtered => self.filtered += 1,
            Reason::Sampled => self.sampled += 1,
            Reason::Duplicate => self.duplicate += 1,
            Reason::Malformed => self.malformed += 1,
            _ => self.dropped_other += 1,
        }
    }

    /// Counts a close event that got no record.
    pub(crate) fn close_left_out(&mut self, reason: Reason) {
        match reason {
            Reason::Sampled => self.closes_sampled += 1,
            Reason::Malformed => self.closes_malformed += 1,
            Reason::Duplicate => self.closes_duplicate += 1,
            Reason::Filtered => self.closes_filtered += 1,
            Reason::Undecided => self.closes_undecided += 1,
            Reason::NeverConnected => self.closes_never_connected += 1,
            Reason::Elsewhere => self.closes_elsewhere += 1,
            _ => self.closes_dropped_other += 1,
        }
    }

    pub(crate) fn fill(&self, totals: &mut PollTotals<'_>) {
        totals.namespaces_visited = Some(self.namespaces_visited);
        totals.namespaces_failed = Some(self.namespaces_failed);
        totals.namespaces_vanished = Some(self.namespaces_vanished);
        totals.namespaces_new = Some(self.namespaces_new);
        totals.namespaces_left_out = Some(self.namespaces_left_out);
        totals.namespaces_put_off = Some(self.namespaces_put_off);
        totals.connections_unheard = Some(self.connections_unheard);
        totals.sockets_visited = Some(self.visited);
        totals.sockets_emitted = Some(self.emitted);
        totals.sockets_unchanged = Some(self.unchanged);
        totals.sockets_filtered = Some(self.filtered);
        totals.sockets_sampled = Some(self.sampled);
        totals.sockets_dropped_decode_failed = Some(self.malformed);
        totals.sockets_dropped_duplicate = Some(self.duplicate);
        totals.sockets_dropped_other = Some(self.dropped_other);
        totals.closes_observed = Some(self.closes_observed + self.closes_lost);
        totals.closes_emitted = Some(self.closes_emitted);
        totals.closes_filtered = Some(self.closes_filtered);
        totals.closes_undecided = Some(self.closes_undecided);
        totals.closes_never_connected = Some(self.closes_never_connected);
        totals.closes_elsewhere = Some(self.closes_elsewhere);
        totals.closes_sampled = Some(self.closes_sampled);
        totals.closes_dropped_event_buffer = Some(self.closes_lost);
        totals.closes_dropped_decode_failed = Some(self.closes_malformed);
        totals.closes_dropped_duplicate = Some(self.closes_duplicate);
        totals.closes_dropped_other = Some(self.closes_dropped_other);
        totals.closes_unobserved = Some(self.closes_unobserved);
        totals.table_evicted = Some(self.evicted);
        totals.poll_ns = Some(self.poll_ns);
        totals.discovery_ns = Some(self.discovery_ns);
        totals.walk_ns = Some(self.walk_ns);
        totals.decode_ns = Some(self.records_ns);
        totals.cpu_ns = Some(self.cpu_ns);
        totals.walks = Some(self.walks);
        totals.bytes_read = Some(self.bytes_read);
    }
}
