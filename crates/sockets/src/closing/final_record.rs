//! The record of a close: what the event says, and what the polls knew.

use super::Closed;
use crate::delta::Delta;
use crate::describe::{Whose, describe};
use crate::ends::Role;
use crate::engine::Engine;
use crate::says::is_aborted;
use crate::table::Entry;
use record::{CloseReason, CountersFrom, RecordKind, SocketRecord, SocketState};
use wire::inet_diag::SocketMessage;

impl Engine<'_> {
    /// Makes the record and passes it to the output.
    pub(super) fn emit_close(
        &mut self,
        event: &SocketMessage<'_>,
        closed: &Closed,
        reason: CloseReason,
        role: Option<Role>,
    ) {
        let Closed { ref entry, place, nsid, unix_ns, boot_ns } = *closed;
        let entry = entry.as_ref();
        let cgroup = entry.and_then(|entry| self.cgroup_of(entry.cgroup_id));
        let namespace = place.and_then(|place| self.namespaces.get(place));
        let mut whose = Whose::of(namespace, cgroup.as_deref());
        // The event carries the namespace's id even if no poll has found the namespace yet.
        whose.process = entry
            .and_then(|entry| entry.holder)
            .and_then(|holder| self.attribution.holders.get(holder));
        whose.netns_id = whose.netns_id.or_else(|| u32::try_from(nsid?).ok());

        let mut record = self.emission.identity.record(RecordKind::CLOSE, unix_ns);
        describe(&mut record, event, &whose, &mut self.scratch);

        record.close_reason = Some(reason);
        record.role = role.map(Role::word);
        record.polls_seen = Some(0);
        record.counters_from = Some(match event.tcp_info {
            Some(_) if !is_aborted(event) => CountersFrom::EVENT,
            _ => CountersFrom::UNKNOWN,
        });

        if let Some(entry) = entry {
            record.uid = entry.uid;
            record.cgroup_id = Some(entry.cgroup_id).filter(|&id| id != 0);
            record.congestion_algorithm = self.congestions.name(entry.congestion);
            record.last_state = Some(SocketState(entry.state));
            record.first_seen_unix_ns = Some(entry.first_seen_unix_ns);
            record.last_seen_unix_ns = Some(entry.last_seen_unix_ns);
            record.seen_ns = Some(boot_ns.saturating_sub(entry.first_seen_boot_ns));
            record.polls_seen = Some(entry.polls_seen);
            if is_aborted(event) {
                restore(&mut record, event, entry);
            }
            delta_of(event, entry, boot_ns).fill(&mut record);
        }

        self.emission.emit(&mut record, self.moment.poll, self.moment.at);
    }
}

/// What was added since the last record. Unknown after an abort, which clears the counters.
fn delta_of(event: &SocketMessage<'_>, entry: &Entry, boot_ns: u64) -> Delta {
    match &event.tcp_info {
        Some(info) if !is_aborted(event) => Delta::of(entry, info, boot_ns),
        _ => Delta::default(),
    }
}

/// Fills in what an abort cleared before the kernel reported the close, from what the last poll saw.
fn restore(record: &mut SocketRecord<'_>, event: &SocketMessage<'_>, entry: &Entry) {
    // No poll has seen a peer.
    if entry.dport == 0 {
        return;
    }

    record.src_address = Some(entry.src);
    record.src_port = Some(entry.sport);
    record.dst_address = Some(entry.dst);
    record.dst_port = Some(entry.dport);

    // Fields beyond the end of this kernel's `tcp_info` are missing in the event too.
    let Some(info) = event.tcp_info.filter(|_| entry.has_counters) else { return };
    let last = &entry.last;

    record.counters_from = Some(CountersFrom::LAST_POLL);
    record.bytes_sent = info.bytes_sent().and(Some(last.bytes_sent));
    record.bytes_acked = info.bytes_acked().and(Some(last.bytes_acked));
    record.bytes_received = info.bytes_received().and(Some(last.bytes_received));
    record.bytes_retrans = info.bytes_retrans().and(Some(last.bytes_retrans));
    record.segs_out = info.segs_out().and(Some(last.segs_out));
    record.segs_in = info.segs_in().and(Some(last.segs_in));
    record.data_segs_out = info.data_segs_out().and(Some(last.data_segs_out));
    record.data_segs_in = info.data_segs_in().and(Some(last.data_segs_in));
    record.total_retrans_segments = info.total_retrans_segments().and(Some(last.total_retrans));
    record.rtt_us = info.rtt_us().and(Some(last.rtt_us));
    record.min_rtt_us = info.min_rtt_us().and(Some(last.min_rtt_us));
    record.unacked_segments = info.unacked_segments().and(Some(last.unacked_segments));
}
