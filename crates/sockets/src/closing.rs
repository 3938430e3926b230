//! Closing records: the kernel's close events, joined with what the polls saw of the same sockets.

use crate::access::{Access, Hears, Scope};
use crate::assemble;
use crate::ends::{self, End};
use crate::engine::{Engine, fill_attribution};
use crate::table::{Entry, Life};
use ledger::{Amount, Reason};
use record::{CloseReason, RecordKind, SocketRecord, SocketState};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use sys::Errno;
use sys::clock::realtime_ns;
use sys::netlink::{EventBatch, Received, Socket};
use sys::socket::{mem_info, receive_buffer};
use wire::inet_diag::request::SOCK_DIAG_BY_FAMILY;
use wire::inet_diag::{SocketMessage, decode};
use wire::netlink::Messages;

/// The socket that hears close events.
pub(crate) struct Events {
    socket: Socket,
    batch: EventBatch,
    hears: Hears,
    /// The kernel's count of lost events, as far as it is counted already.
    lost_seen: u32,
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Events that are taken with one call, and the bytes of each: 380 on Linux 6.18.
const BATCH_EVENTS: usize = 64;
const EVENT_BYTES: usize = 1_024;

impl Engine<'_> {
    /// Begins to hear close events, those of other namespaces too if that is wanted and allowed.
    pub(crate) fn closes_start(&mut self, access: &mut dyn Access) {
        let wants_all = self.options.scope != Scope::Own;
        let buffer_bytes = self.options.event_buffer_bytes;
        let opened = if wants_all {
            match access.events(Hears::All, buffer_bytes) {
                Ok(socket) => Ok((socket, Hears::All)),
                Err(errno) => {
                    self.problem("events_of_others", || {
                        format!(
                            "close events of other network namespaces cannot be heard ({errno}): this takes \
                             CAP_NET_BROADCAST; connections there that close between two polls are missing"
                        )
                    });
                    access.events(Hears::Own, buffer_bytes).map(|socket| (socket, Hears::Own))
                }
            }
        } else {
            access.events(Hears::Own, buffer_bytes).map(|socket| (socket, Hears::Own))
        };
        match opened {
            Ok((socket, hears)) => self.events = Some(self.events_from(socket, hears)),
            Err(errno) => self.problem("events", || {
                format!("close events cannot be heard ({errno}): connections that close between two polls are missing")
            }),
        }
    }

    fn events_from(&self, socket: Socket, hears: Hears) -> Events {
        let granted = receive_buffer(socket.as_fd()).unwrap_or_default();
        self.counts.event_buffer_bytes.set(granted as u64);
        let lost_seen = mem_info(socket.as_fd()).map_or(0, |info| info.dropped_datagrams);
        Events { socket, batch: EventBatch::new(BATCH_EVENTS, EVENT_BYTES), hears, lost_seen }
    }

    /// Makes sure that close events of a namespace are heard: those without an id stay silent.
    pub(crate) fn learn_nsid(&mut self, access: &mut dyn Access, at: usize, place: u32) {
        let hears_all = self.events.as_ref().is_some_and(|events| events.hears == Hears::All);
        let known = self.namespaces.get(place);
        if !hears_all || known.is_none_or(|known| known.nsid.is_some() || known.is_own) {
            return;
        }
        match access.nsid(at) {
            Ok(nsid) => self.namespaces.set_nsid(place, nsid),
            Err(Errno::NOENT) => {}
            Err(errno) => self.problem("nsid", || {
                format!(
                    "a network namespace cannot be given an id ({errno}): this takes CAP_NET_ADMIN; its connections \
                     that close between two polls are missing"
                )
            }),
        }
    }

    /// Makes records of the close events that have come, and counts those that were lost.
    pub(crate) fn take_closes(&mut self) {
        let Some(mut events) = self.events.take() else { return };
        loop {
            match events.batch.receive(&events.socket) {
                Ok(count) => {
                    let now_ns = realtime_ns();
                    for received in events.batch.datagrams() {
                        self.take_datagram(&received, now_ns);
                    }
                    if count < BATCH_EVENTS {
                        break;
                    }
                }
                Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    self.problem("events_read", || format!("close events cannot be read: {errno}"));
                    break;
                }
            }
        }
        self.count_lost(&mut events);
        self.events = Some(events);
    }

    fn count_lost(&mut self, events: &mut Events) {
        let Ok(info) = mem_info(events.as_fd()) else { return };
        let lost = info.dropped_datagrams.wrapping_sub(events.lost_seen);
        events.lost_seen = info.dropped_datagrams;
        self.counts.events_lost.add(lost.into());
        self.sums.closes_lost += u64::from(lost);
    }

    fn take_datagram(&mut self, received: &Received<'_>, now_ns: u64) {
        if received.sender_port_id != 0 {
            // Another process may send to our port; the kernel's port is 0.
            return;
        }
        for message in Messages::new(received.bytes) {
            let amount = Amount::one(message.map_or(0, |message| message.raw.len()));
            self.counts.events.add(amount);
            self.sums.closes_observed += 1;
            let outcome = match message.map(|message| (message.kind, decode(message.body))) {
                Ok((SOCK_DIAG_BY_FAMILY, Ok(event))) => self.close(&event, received.nsid, now_ns),
                _ => Err(Reason::Malformed),
            };
            match outcome {
                Ok(()) => {
                    self.counts.closed.delivered.add(amount);
                    self.sums.closes_emitted += 1;
                }
                Err(reason) => {
                    self.counts.closed.drop(reason, amount);
                    self.sums.close_left_out(reason);
                }
            }
        }
    }

    /// Makes a closing record, or says why not.
    fn close(
        &mut self,
        event: &SocketMessage<'_>,
        nsid: Option<i32>,
        now_ns: u64,
    ) -> Result<(), Reason> {
        let cookie = event.id.cookie;
        let entry = self.table.get_mut(cookie).map(|entry| {
            let before = *entry;
            entry.life = Life::Closed;
            before
        });
        let place = match nsid {
            Some(nsid) => self.namespaces.by_nsid(nsid),
            None => self.namespaces.own(),
        };
        let place = entry.map(|entry| entry.namespace).or(place);
        if entry.is_some_and(|entry| entry.life == Life::Closed) {
            return Err(Reason::Duplicate);
        }
        let reason = match ends::end_of(event, entry.as_ref()) {
            End::Connection(reason) => reason,
            End::NoConnection => {
                self.counts.never_connected.add(1);
                return Err(Reason::Filtered);
            }
        };
        if entry.is_none() {
            // What a poll saw has passed the filter before. The namespace may be one that was not chosen.
            let is_elsewhere = place.is_none() && self.options.scope != Scope::All;
            let options = self.options;
            let expression = options.filter.as_ref().and_then(|filter| filter.expression());
            let passes = expression.is_none_or(|wanted| self.passes(wanted, event, place, None));
            if is_elsewhere || !passes {
                return Err(Reason::Filtered);
            }
        }
        if !self.is_sampled(cookie) {
            return Err(Reason::Sampled);
        }
        if entry.is_none() {
            self.counts.unpolled.add(1);
        }
        if let Some(count) = self.counts.ended.get(usize::from(reason.0)) {
            count.add(1);
        }
        self.emit_close(event, entry.as_ref(), reason, (place, nsid), now_ns);
        Ok(())
    }

    fn emit_close(
        &mut self,
        event: &SocketMessage<'_>,
        entry: Option<&Entry>,
        reason: CloseReason,
        (place, nsid): (Option<u32>, Option<i32>),
        now_ns: u64,
    ) {
        let namespace = place.and_then(|place| self.namespaces.get(place)).cloned();
        let cgroup = entry.and_then(|entry| self.cgroup_of(entry.cgroup_id));
        let congestion =
            entry.and_then(|entry| self.congestion_name(entry.congestion)).map(str::to_owned);
        let mut record = self.identity.record(RecordKind::CLOSE, now_ns);
        assemble::fill(&mut record, event);
        // The event says nothing of these: zero would be a claim.
        (record.uid, record.inode) = (None, None);
        (record.timer, record.timer_retransmits, record.timer_expires_ms) = (None, None, None);
        record.netns_id = nsid.and_then(|nsid| u32::try_from(nsid).ok());
        fill_attribution(&mut record, namespace.as_ref(), cgroup.as_deref());
        record.close_reason = Some(reason);
        record.polls_seen = Some(0);
        if let Some(entry) = entry {
            record.uid = Some(entry.uid);
            record.cgroup_id = Some(entry.cgroup_id).filter(|&id| id != 0);
            record.congestion_algorithm = congestion.as_deref();
            record.last_state = Some(SocketState(entry.state));
            record.first_seen_unix_ns = Some(entry.first_seen_unix_ns);
            record.last_seen_unix_ns = Some(entry.last_seen_unix_ns);
            record.seen_ns = Some(now_ns.saturating_sub(entry.first_seen_unix_ns));
            record.polls_seen = Some(entry.polls_seen);
            restore(&mut record, event, entry);
        }
        self.emit(&mut record);
    }
}

/// Takes from the last poll what the kernel had cleared before it told of the close (`tcp_disconnect` in net/ipv4/tcp.c).
fn restore(record: &mut SocketRecord<'_>, event: &SocketMessage<'_>, entry: &Entry) {
    let nowhere = |addr: SocketAddr| addr.ip().is_unspecified();
    let lost_address = nowhere(event.id.dst) && !entry.dst.is_unspecified();
    if lost_address {
        record.src_address = Some(entry.src);
        record.src_port = Some(entry.sport);
        record.dst_address = Some(entry.dst);
        record.dst_port = Some(entry.dport);
    }
    let info = event.tcp_info.as_ref();
    let sent = info.and_then(|info| info.segs_out()).unwrap_or_default();
    let lost_counters =
        sent < entry.last.segs_out && info.and_then(|info| info.bytes_received()) == Some(0);
    if lost_counters {
        let last = &entry.last;
        record.bytes_sent = Some(last.bytes_sent);
        record.bytes_acked = Some(last.bytes_acked);
        record.bytes_received = Some(last.bytes_received);
        record.bytes_retrans = Some(last.bytes_retrans);
        record.segs_out = Some(last.segs_out);
        record.segs_in = Some(last.segs_in);
        record.total_retrans_segments = Some(last.total_retrans);
        record.rtt_us = Some(last.rtt_us);
        record.min_rtt_us = Some(last.min_rtt_us);
        record.unacked_segments = Some(last.unacked_segments);
    }
    record.is_from_last_poll = Some(lost_address || lost_counters);
}
