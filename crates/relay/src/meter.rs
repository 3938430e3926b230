//! The counters of the data plane, and how they become hops of the ledger.

mod link;
mod members;
mod receiver;
mod standing;

pub(crate) use members::MemberMeter;

use crate::TargetKind;
use crate::ring::{Oldest, Reader, Writer};
use crate::socket::{CountedDrops, ListenSocket};
use ledger::{
    Accounting, Amount, Counters, DelayHistogram, Event, EventCounter, Gauge, HopBuilder, HopKind,
    HopSnapshot, IcmpError, Meter, Reason, SendError, Tally,
};
use link::LinkFigures;
pub(crate) use link::{LinkPeer, PeerKind};
use members::{Calls, Kernel, Members};
use receiver::ReceiverCount;
use standing::{Fate, Standing};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use sys::Errno;
use sys::clock::monotonic_ns;
use sys::socket::{MemInfo, mem_info};

/// Maximum number of datagrams that a thread may hold between two counters.
pub(crate) const IN_HAND_MAX: u64 = 64;

/// The same for a thread that reads aggregates.
const IN_HAND_MAX_AGGREGATES: u64 = IN_HAND_MAX * sys::gro::SEGMENTS_MAX as u64;

/// Counters of one listener. The receiving thread writes all but the socket's.
#[derive(Debug)]
pub(crate) struct ListenerMeter {
    pub(crate) name: String,
    /// Everything read from the socket.
    pub(crate) read: Tally,
    /// Delivered: everything that entered the ring. Dropped: everything before that.
    pub(crate) receive: Counters,
    pub(crate) batches: EventCounter,
    pub(crate) empty_datagrams: EventCounter,
    pub(crate) receive_errors: EventCounter,
    /// Times that the socket joined its group anew or took the place of another one. Written by the thread that controls the listener.
    pub(crate) socket_renewals: EventCounter,
    /// What was taken from the members' rings, if there are several sockets.
    pub(crate) merged: Tally,
    /// Datagrams that left after a younger one.
    pub(crate) overtaken: EventCounter,
    /// Figures about links from other Weirs.
    pub(crate) link: LinkFigures,
    members: Mutex<Members>,
    /// Difference between what was read, what was taken in and what the ring holds, at the last check.
    mismatch: AtomicI64,
    /// Datagrams that the rings of members gave which have ended.
    pub(crate) given: EventCounter,
    /// Difference between what the members' rings gave and what was merged, at the last check.
    merge_mismatch: AtomicI64,
    /// Moments at which a law did not hold that only the receiving thread sees.
    pub(crate) violations: EventCounter,
    /// These and the ring's, at the last check.
    violations_seen: EventCounter,
    /// Maximum number of datagrams that the receiving thread may hold.
    in_hand_max: u64,
    socket: Mutex<SocketCount>,
}

#[derive(Debug)]
struct SocketCount {
    /// `None` once the listener has stopped.
    socket: Option<Arc<ListenSocket>>,
    last: MemInfo,
    /// The counts at which this meter started.
    before: CountedDrops,
    /// According to the kernel's count.
    dropped: u64,
    /// Behind the first segment of aggregates, since the socket was opened.
    dropped_behind: u64,
    refused_behind: u64,
    is_at_least: bool,
    /// The kernel's count when the socket began to refuse datagrams because of a stop.
    dropped_before_stop: Option<u64>,
    /// The socket refuses everything and has been read until it was empty.
    is_emptied: bool,
}

impl SocketCount {
    fn update(&mut self) {
        let Some(socket) = &self.socket else { return };
        // The call fails only for a bad descriptor, and then the last numbers stay valid.
        if let Ok(now) = mem_info(socket.as_fd()) {
            let more = now.dropped_datagrams.wrapping_sub(self.last.dropped_datagrams);
            self.dropped += u64::from(more);
            self.last = now;
        }

        if let Some(aggregates) = socket.aggregates() {
            self.dropped_behind = match self.is_emptied {
                true => aggregates.dropped_in_all(),
                false => aggregates.dropped(socket.as_fd()),
            };
            self.refused_behind = aggregates.refused();
            self.is_at_least = !aggregates.is_exact();
        }
    }

    fn counted(&self) -> CountedDrops {
        CountedDrops { kernel: self.last.dropped_datagrams, behind: self.dropped_behind }
    }
}

impl ListenerMeter {
    /// A meter that counts the kernel's drops at the socket from `before` on. Earlier drops are counted elsewhere, or not at all.
    ///
    /// Without a socket, the socket hop shows only what was read.
    pub(crate) fn new(
        name: String,
        socket: Option<Arc<ListenSocket>>,
        before: CountedDrops,
    ) -> ListenerMeter {
        let has_aggregates = socket.as_ref().is_some_and(|one| one.aggregates().is_some());
        let socket = SocketCount {
            socket,
            last: MemInfo { dropped_datagrams: before.kernel, ..MemInfo::default() },
            before,
            dropped: 0,
            dropped_behind: before.behind,
            refused_behind: 0,
            is_at_least: false,
            dropped_before_stop: None,
            is_emptied: false,
        };

        ListenerMeter {
            name,
            read: Tally::default(),
            receive: Counters::default(),
            batches: EventCounter::default(),
            empty_datagrams: EventCounter::default(),
            receive_errors: EventCounter::default(),
            socket_renewals: EventCounter::default(),
            merged: Tally::default(),
            overtaken: EventCounter::default(),
            link: LinkFigures::default(),
            members: Mutex::default(),
            mismatch: AtomicI64::new(0),
            given: EventCounter::default(),
            merge_mismatch: AtomicI64::new(0),
            violations: EventCounter::default(),
            violations_seen: EventCounter::default(),
            in_hand_max: if has_aggregates { IN_HAND_MAX_AGGREGATES } else { IN_HAND_MAX },
            socket: Mutex::new(socket),
        }
    }

    /// Compares the counts with what the ring took. Called by the receiving thread between two batches.
    pub(crate) fn check_law(&self, ring: &Writer) {
        let appended = ring.appended();
        let dropped: Amount = self.receive.drops().map(|(_, amount)| amount).sum();
        let taken_in = self.receive.delivered.load();
        let not_counted = appended.count.wrapping_sub(taken_in.count) as i64;
        let came = self.read.load().count + self.merged.load().count;
        let inside = came.wrapping_sub(taken_in.count + dropped.count) as i64;
        self.mismatch.store(not_counted + inside, Ordering::Relaxed);
        self.violations_seen.set(self.violations.load() + ring.violations());
    }

    /// Compares what the rings of the members there are and of those before them have given with what was merged.
    pub(crate) fn check_merge(&self, given: u64) {
        let given = self.given.load() + given;
        let merged = self.merged.load().count;
        self.merge_mismatch.store(given.wrapping_sub(merged) as i64, Ordering::Relaxed);
    }

    /// From here on, what the kernel drops at the socket is dropped because of the stop.
    pub(crate) fn begin_stop(&self) {
        let mut socket = self.socket();
        socket.update();
        socket.dropped_before_stop = Some(socket.dropped);
    }

    /// The socket refuses everything and is empty.
    pub(crate) fn end_stop(&self) {
        self.socket().is_emptied = true;
    }

    /// Reads the socket's counters for the last time, because another meter continues from there. Returns the counts.
    pub(crate) fn hand_over(&self) -> CountedDrops {
        self.finish_stop();
        self.socket().counted()
    }

    /// The counts when the socket was last read.
    pub(crate) fn counted_drops(&self) -> CountedDrops {
        self.socket().counted()
    }

    /// Continues where [`hand_over`](Self::hand_over) left off, because no other meter counts, or because one that had counted
    /// this far has ended.
    pub(crate) fn take_back(&self, socket: Arc<ListenSocket>, before: CountedDrops) {
        let mut count = self.socket();
        count.last.dropped_datagrams = before.kernel;
        // What others have counted since belongs to them.
        count.before.behind += before.behind - count.dropped_behind;
        count.dropped_behind = before.behind;
        count.socket = Some(socket);
    }

    /// Reads the socket's counters for the last time and releases the socket.
    pub(crate) fn finish_stop(&self) {
        let mut socket = self.socket();
        socket.update();
        socket.last.receive_queued_bytes = 0;
        socket.socket = None;
    }

    fn socket(&self) -> MutexGuard<'_, SocketCount> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the kernel has done at the socket so far.
    fn kernel(&self) -> Kernel {
        let mut socket = self.socket();
        socket.update();
        let before_stop = socket.dropped_before_stop.unwrap_or(socket.dropped);
        Kernel {
            dropped: before_stop + (socket.dropped_behind - socket.before.behind),
            dropped_at_stop: (socket.dropped - before_stop) + socket.refused_behind,
            dropped_before: u64::from(socket.before.kernel),
            is_at_least: socket.is_at_least,
            receive_buffer_bytes: u64::from(socket.last.receive_buffer_bytes),
            receive_queued_bytes: u64::from(socket.last.receive_queued_bytes),
        }
    }

    fn socket_hop(&self, members: &Members) -> HopSnapshot {
        let own = self.kernel();
        let own = if members.is_empty() { own } else { own.counts() };
        let kernel = own + members.kernel();
        let read = self.read.load() + members.read();
        kernel
            .add_to(HopBuilder::new(HopKind::Socket, &self.name, None, Amount::default()))
            .delivered(read)
            .finish(read + kernel.lost())
    }

    fn receive_hop(&self, members: &Members) -> HopSnapshot {
        let read = || self.read.load() + members.read();
        let mismatch = self.mismatch.load(Ordering::Relaxed);
        let mismatch = mismatch + self.merge_mismatch.load(Ordering::Relaxed);
        let mut hop = HopBuilder::new(HopKind::Receive, &self.name, None, read())
            .left(&self.receive)
            .capacity(self.in_hand_max + members.capacity())
            .mismatch(mismatch)
            .violations(self.violations_seen.load())
            .event(Event::Overtaken, self.overtaken.load());
        for (reason, amount) in members.drops() {
            hop = hop.dropped(reason, amount);
        }

        let calls = Calls::of(self) + members.calls();
        self.link
            .add_to(hop)
            .event(Event::Batches, calls.batches)
            .event(Event::EmptyDatagrams, calls.empty_datagrams)
            .event(Event::ReceiveErrors, calls.receive_errors)
            .event(Event::SocketRenewals, self.socket_renewals.load())
            .finish(read())
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Includes what this socket's meter counts from here on.
    pub(crate) fn add_member(&self, member: Arc<MemberMeter>) {
        self.members().add(member);
    }

    /// Keeps the member's counts, which no longer change.
    pub(crate) fn fold_member(&self, member: &Arc<MemberMeter>) {
        self.members().fold(member);
    }

    /// As [`fold_member`](Self::fold_member), for all members.
    pub(crate) fn fold_members(&self) {
        self.members().fold_all();
    }
}

impl Meter for ListenerMeter {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        let members = self.members();
        // Read first, though listed later: each is downstream of what is read after it.
        let receive = self.receive_hop(&members);
        let shown = members.hops(&self.name);
        hops.push(self.socket_hop(&members));
        hops.push(receive);
        hops.extend(shown);
    }
}

/// Error numbers counted by name; the rest share one counter.
const NAMED_ERRNOS: [(Errno, SendError); 13] = [
    (Errno::CONNREFUSED, SendError::ConnRefused),
    (Errno::HOSTUNREACH, SendError::HostUnreach),
    (Errno::NETUNREACH, SendError::NetUnreach),
    (Errno::NETDOWN, SendError::NetDown),
    (Errno::NOBUFS, SendError::NoBufs),
    (Errno::PERM, SendError::Perm),
    (Errno::ACCES, SendError::Acces),
    (Errno::MSGSIZE, SendError::MsgSize),
    (Errno::INVAL, SendError::Inval),
    (Errno::IO, SendError::Io),
    (Errno::DESTADDRREQ, SendError::Unresolved),
    (Errno::NOENT, SendError::NoEnt),
    (Errno::NOSPC, SendError::NoSpc),
];

/// ICMP messages counted by type and code (RFC 792, RFC 4443); the rest share one counter.
const NAMED_ICMP: [((u8, u8), IcmpError); 11] = [
    ((3, 0), IcmpError::V4Net),
    ((3, 1), IcmpError::V4Host),
    ((3, 2), IcmpError::V4Protocol),
    ((3, 3), IcmpError::V4Port),
    ((3, 4), IcmpError::V4TooBig),
    ((3, 13), IcmpError::V4Prohibited),
    ((1, 0), IcmpError::V6NoRoute),
    ((1, 1), IcmpError::V6Prohibited),
    ((1, 3), IcmpError::V6Address),
    ((1, 4), IcmpError::V6Port),
    ((2, 0), IcmpError::V6TooBig),
];

/// Counters of one target.
pub(crate) struct TargetMeter {
    pub(crate) name: String,
    listener: Arc<ListenerMeter>,
    /// What had entered the ring when the target joined.
    joined: Amount,
    /// What had entered the ring when the target left.
    left: OnceLock<Amount>,
    capacity: u64,
    /// Its thread is stuck in a system call and was abandoned.
    is_abandoned: AtomicBool,
    /// Written by the thread that owns the target: sent, and dropped by the target.
    pub(crate) sender: Counters,
    /// Written by the receiving thread: what it took from the target because the ring was full.
    pub(crate) lost: Arc<Tally>,
    /// Written by the thread that owns the target: what came back from the network.
    pub(crate) egress: Counters,
    /// Written by the thread that owns the target: what was sent, with an arrival that can never be known.
    pub(crate) uncertain: Tally,
    /// Figures of a link to another Weir.
    pub(crate) link: LinkFigures,
    /// For a link, what the ring takes back is not lost: the link decides what becomes of it.
    is_link: AtomicBool,
    pub(crate) delay: DelayHistogram,
    pub(crate) send_calls: EventCounter,
    /// Datagrams whose source address should have been kept but was not.
    pub(crate) without_source: EventCounter,
    /// Datagrams whose source port should have been kept but was not.
    pub(crate) without_port: EventCounter,
    /// Sockets of senders that were closed to make room for others.
    pub(crate) sender_turnover: EventCounter,
    /// Open sockets that were replaced by new ones.
    pub(crate) socket_renewals: EventCounter,
    pub(crate) retries: EventCounter,
    oldest_age_ms: EventCounter,
    ring_held_ppm: EventCounter,
    /// By how much the cursor and what was counted differed at the last look; positive: something was not counted.
    mismatch: AtomicI64,
    /// Files that ended in a partial record, which was cut off, or in a line without a line feed, which was added.
    pub(crate) tails_mended: EventCounter,
    /// Files that could not be continued and were renamed.
    pub(crate) files_set_aside: EventCounter,
    /// 1 while runs leave as one message.
    pub(crate) gso: EventCounter,
    standing: Standing,
    receiver: ReceiverCount,
    /// 1 when the network reports every datagram that it returns, because the target is on this host.
    pub(crate) reports_all: EventCounter,
    errors: [EventCounter; SendError::ALL.len()],
    icmp: [EventCounter; IcmpError::ALL.len()],
}

impl TargetMeter {
    /// `joined` is what had entered the ring, and `capacity` the maximum that the ring and the target can hold together.
    pub(crate) fn new(
        name: String,
        listener: Arc<ListenerMeter>,
        joined: Amount,
        capacity: u64,
        lost: Arc<Tally>,
    ) -> TargetMeter {
        TargetMeter {
            name,
            listener,
            joined,
            left: OnceLock::new(),
            // The writer may reuse what a reader dropped, at most a quarter, before it has counted taking it.
            capacity: capacity + capacity / 4 + 2 * IN_HAND_MAX,
            is_abandoned: AtomicBool::new(false),
            sender: Counters::default(),
            lost,
            egress: Counters::default(),
            uncertain: Tally::default(),
            link: LinkFigures::default(),
            is_link: AtomicBool::new(false),
            delay: DelayHistogram::default(),
            send_calls: EventCounter::default(),
            without_source: EventCounter::default(),
            without_port: EventCounter::default(),
            sender_turnover: EventCounter::default(),
            socket_renewals: EventCounter::default(),
            retries: EventCounter::default(),
            oldest_age_ms: EventCounter::default(),
            ring_held_ppm: EventCounter::default(),
            mismatch: AtomicI64::new(0),
            tails_mended: EventCounter::default(),
            files_set_aside: EventCounter::default(),
            gso: EventCounter::default(),
            standing: Standing::default(),
            receiver: ReceiverCount::default(),
            reports_all: EventCounter::default(),
            errors: Default::default(),
            icmp: Default::default(),
        }
    }

    pub(crate) fn count_error(&self, errno: Errno) {
        let named = NAMED_ERRNOS.iter().find(|(known, _)| *known == errno);
        let error = named.map_or(SendError::Other, |(_, error)| *error);
        self.errors[error as usize].add(1);
    }

    pub(crate) fn count_icmp(&self, kind: u8, code: u8) {
        let named = NAMED_ICMP.iter().find(|(known, _)| *known == (kind, code));
        let error = named.map_or(IcmpError::Other, |(_, error)| *error);
        self.icmp[error as usize].add(1);
    }

    /// Notes how long the oldest datagram has waited, and how much of the ring is held from it on.
    pub(crate) fn note_oldest(&self, oldest: Option<Oldest>, now_ns: u64) {
        let age_ns = oldest.map_or(0, |oldest| now_ns.saturating_sub(oldest.arrived_ns));
        self.oldest_age_ms.set(age_ns / 1_000_000);
        self.ring_held_ppm.set(oldest.map_or(0, |oldest| oldest.held_ppm));
    }

    /// Compares the counts with the ring's own number: everything below the cursor was offered to the target and has left. Called
    /// by the thread that owns the target when it holds nothing.
    pub(crate) fn check_law(&self, reader: &Reader) {
        let Some((cursor, lost)) = reader.account(|| self.lost.load()) else { return };
        let dropped: Amount = self.sender.drops().map(|(_, amount)| amount).sum();
        let counted = self.joined + self.sender.delivered.load() + dropped + lost;
        self.mismatch.store(cursor.wrapping_sub(counted.count) as i64, Ordering::Relaxed);
    }

    /// Marks the target as a link: what the ring takes from it is in flight until the other end has reported its outcome.
    pub(crate) fn begin_link(&self) {
        self.is_link.store(true, Ordering::Release);
    }

    /// As [`check_law`](Self::check_law), for a link: everything that was `offered` has left or is `open`.
    pub(crate) fn check_link(&self, offered: Amount, open: u64) {
        let dropped: Amount = self.sender.drops().map(|(_, amount)| amount).sum();
        let left = self.sender.delivered.load() + dropped + self.uncertain.load();
        let counted = left.count + open;
        let offered = offered.count.wrapping_sub(self.joined.count);
        self.mismatch.store(offered.wrapping_sub(counted) as i64, Ordering::Relaxed);
    }

    /// What the ring's writer took from the target and counts as lost.
    fn taken_back(&self) -> Amount {
        if self.is_link.load(Ordering::Acquire) { Amount::default() } else { self.lost.load() }
    }

    /// Decides whether the target accepts what it is sent. Only the thread that owns the target may call this.
    pub(crate) fn note_state(&self, now_ns: u64) {
        let dropped = |reason| self.sender.dropped(reason).count;
        let reasons = [
            Reason::NetworkUnreachable,
            Reason::Firewall,
            Reason::TargetUnresolved,
            Reason::WriteError,
            Reason::Refused,
            Reason::SinkPanicked,
        ];

        let fate = Fate {
            sent: self.sender.delivered.load().count,
            returned: self.egress.drops().map(|(_, amount)| amount.count).sum(),
            failed: self.errors.iter().map(EventCounter::load).sum::<u64>()
                + reasons.map(dropped).iter().sum::<u64>(),
            refused: dropped(Reason::Refused) + self.egress.dropped(Reason::Refused).count,
        };

        self.standing.note(fate, now_ns);
    }

    /// Records that the next hop towards the target does not answer.
    pub(crate) fn note_unanswered(&self) {
        self.standing.note_unanswered();
    }

    /// What was sent or dropped by the target, not counting what the ring took from it.
    fn let_go(&self) -> u64 {
        let dropped: u64 = self
            .sender
            .drops()
            .filter(|(reason, _)| *reason != Reason::QueueFull)
            .map(|(_, amount)| amount.count)
            .sum();
        self.sender.delivered.load().count + dropped
    }

    /// Records the target's new destination: a receiver on this host has its own drop count.
    pub(crate) fn follow(&self, destination: &TargetKind) {
        let path = match destination {
            TargetKind::Udp { path, .. } => Some(path.clone()),
            _ => None,
        };
        self.receiver.follow(path);
    }

    /// Ends the count of what is offered to the target at `seen`, the amount appended below its cursor.
    pub(crate) fn leave(&self, seen: Amount) {
        // A target leaves once; a second call would set the same amount.
        let _ = self.left.set(seen);
    }

    /// Counts what is still inside as dropped by the stop, because the thread that should have handled it is stuck in a system
    /// call. What the thread held may arrive anyway.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    fn offered(&self) -> Amount {
        let appended = match self.left.get() {
            Some(left) => *left,
            None => self.listener.receive.delivered.load(),
        };
        appended.saturating_sub(self.joined)
    }

    fn target_hop(&self, offered_before: Amount) -> HopSnapshot {
        let let_go = self.let_go();

        let mut hop =
            HopBuilder::new(HopKind::Target, &self.listener.name, Some(&self.name), offered_before)
                .left(&self.sender)
                .dropped(Reason::QueueFull, self.taken_back())
                .uncertain(self.uncertain.load())
                .capacity(self.capacity)
                .mismatch(self.mismatch.load(Ordering::Relaxed))
                .delay(&self.delay)
                .event(Event::SendCalls, self.send_calls.load())
                .event(Event::WithoutSource, self.without_source.load())
                .event(Event::WithoutPort, self.without_port.load())
                .event(Event::SenderTurnover, self.sender_turnover.load())
                .event(Event::SocketRenewals, self.socket_renewals.load())
                .event(Event::Retries, self.retries.load())
                .event(Event::FileTailsMended, self.tails_mended.load())
                .event(Event::FilesSetAside, self.files_set_aside.load())
                .gauge(Gauge::OldestAgeMs, self.oldest_age_ms.load())
                .gauge(Gauge::RingHeldPpm, self.ring_held_ppm.load())
                .gauge(Gauge::Gso, self.gso.load());
        hop = self.link.add_to(hop);
        let inside = offered_before.saturating_sub(hop.left_so_far()).count;
        hop = hop.gauge(Gauge::Up, self.standing.up(let_go, inside, monotonic_ns()));
        for (error, count) in SendError::ALL.iter().zip(&self.errors) {
            hop = hop.event(Event::SendErrors(*error), count.load());
        }
        if self.is_abandoned.load(Ordering::Acquire) {
            let left = hop.left_so_far();
            hop = hop.dropped(Reason::Shutdown, self.offered().saturating_sub(left));
        }

        hop.finish(self.offered())
    }

    /// The amount that came back, with its bytes: another host's report is about one datagram and does not say how long that was, so it
    /// counts as long as those are on average of which nothing came back.
    pub(crate) fn with_bytes(&self, came_back: Amount) -> Amount {
        let returned: Amount = self.egress.drops().map(|(_, amount)| amount).sum();
        let out = self.sender.delivered.load().saturating_sub(returned);
        let bytes = out.bytes.saturating_mul(came_back.count) / out.count.max(1);
        Amount { bytes: bytes.min(out.bytes), ..came_back }
    }

    /// What the kernel took and did not give back has left: the hop keeps nothing.
    fn egress_hop(&self) -> HopSnapshot {
        let returned: Vec<_> = self.egress.drops().collect();
        let total: Amount = returned.iter().map(|(_, amount)| *amount).sum();
        let handed = self.sender.delivered.load();

        let accounting = match self.reports_all.load() {
            0 => Accounting::AtLeast,
            _ => Accounting::Exact,
        };

        let mut hop = HopBuilder::new(
            HopKind::Egress,
            &self.listener.name,
            Some(&self.name),
            Amount::default(),
        )
        .delivered(handed.saturating_sub(total))
        .accounting(accounting);
        for (reason, amount) in returned {
            hop = hop.dropped(reason, amount);
        }
        for (error, count) in IcmpError::ALL.iter().zip(&self.icmp) {
            hop = hop.event(Event::IcmpErrors(*error), count.load());
        }
        hop.finish(handed)
    }
}

impl Meter for TargetMeter {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        // Entries are read before and after exits, and the egress before the target, so a downstream count never exceeds an
        // upstream one.
        let offered_before = self.offered();
        let egress = self.egress_hop();
        hops.push(self.target_hop(offered_before));
        let receiver = self.receiver.hop(&self.listener.name, &self.name, egress.delivered);
        hops.push(egress);
        hops.extend(receiver);
    }
}
