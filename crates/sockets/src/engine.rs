//! What the collector does with each socket that the kernel lists: filter it, join it with what is known, make a record.

use crate::attribution::{Attribution, Cgroup};
use crate::closing::Hearing;
use crate::congestions::Congestions;
use crate::delta::{Delta, Recorded};
use crate::describe::{Whose, describe};
use crate::emission::Emission;
use crate::ends::{self, Role};
use crate::filter::Verdict;
use crate::fingerprint::fingerprint;
use crate::identity::Identity;
use crate::judge::Judge;
use crate::meter::{Counts, STATES, family_row};
use crate::namespaces::Namespaces;
use crate::options::Options;
use crate::output::Output;
use crate::poll::missing_kept_polls;
use crate::says::{self, is_remnant};
use crate::scout::Scout;
use crate::table::{Entry, LastCounters, Life, Place, Table, mix};
use crate::totals::Sums;
use ledger::{Amount, Reason};
use record::RecordKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use sys::clock::{boottime_ns, realtime_ns};
use wire::DecodeError;
use wire::inet_diag::{SocketMessage, State, States, TcpInfo};
use wire::netlink::HEADER_BYTES;

/// The current poll, or the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Number of the poll, from 1.
    pub(crate) poll: u32,
    /// When the kernel was asked for the current listing.
    pub(crate) unix_ns: u64,
    /// The same in nanoseconds since the host booted, for durations.
    pub(crate) boot_ns: u64,
    pub(crate) at: Instant,
    /// Place of the namespace being walked.
    pub(crate) place: u32,
}

/// Everything that the collector's thread knows, and where its records go.
pub(crate) struct Engine<'h> {
    pub(crate) options: &'h Options,
    pub(crate) counts: Arc<Counts>,
    pub(crate) emission: Emission<'h>,
    pub(crate) filter: Judge,
    pub(crate) hearing: Hearing,
    pub(crate) attribution: Attribution,
    pub(crate) table: Table,
    pub(crate) congestions: Congestions,
    pub(crate) namespaces: Namespaces,
    pub(crate) moment: Moment,
    pub(crate) sums: Sums,
    /// Whether this poll also makes records of unchanged sockets.
    pub(crate) is_keyframe: bool,
    pub(crate) open: [[u64; STATES]; 2],
    /// Attributes of the current record that have no name here.
    pub(crate) scratch: Vec<u8>,
    /// Searches for namespaces between polls. `None` when only the own one is collected, or closes are not.
    pub(crate) scout: Option<Scout>,
    /// At which addresses this process served when the poll began.
    pub(crate) served: Vec<SocketAddr>,
}

impl<'h> Engine<'h> {
    pub(crate) fn new(
        options: &'h Options,
        identity: Identity<'h>,
        counts: Arc<Counts>,
        output: Box<dyn Output>,
    ) -> Engine<'h> {
        let table = Table::new(options.table_entries_max);
        counts.table_capacity.set(table.capacity() as u64);

        // Table entries refer to a namespace as long as they are kept after it is gone.
        let mut namespaces =
            Namespaces::new(missing_kept_polls(options.interval), options.namespaces_max);
        namespaces.set_own(sys::namespace::own().ok());

        Engine {
            options,
            counts,
            emission: Emission::new(identity, output),
            filter: Judge::new(options),
            hearing: Hearing::default(),
            attribution: Attribution::open(),
            table,
            congestions: Congestions::default(),
            namespaces,
            moment: Moment { poll: 0, unix_ns: 0, boot_ns: 0, at: Instant::now(), place: 0 },
            sums: Sums::default(),
            is_keyframe: true,
            open: [[0; STATES]; 2],
            scratch: Vec::new(),
            scout: None,
            served: Vec::new(),
        }
    }

    /// Reports something that does not work, once per cause.
    pub(crate) fn problem(&mut self, cause: &'static str, text: impl FnOnce() -> String) {
        self.emission.problem(cause, text);
    }

    /// Whether a connection is in the sample. Decided by its cookie, so that it is in all polls or in none.
    pub(crate) fn is_sampled(&self, cookie: u64) -> bool {
        let one_in = u64::from(self.options.sample.get());
        one_in == 1 || mix(cookie).is_multiple_of(one_in)
    }

    pub(crate) fn cgroup_of(&mut self, id: u64) -> Option<Arc<Cgroup>> {
        self.attribution.cgroups.as_mut()?.lookup(id, self.moment.at).cloned()
    }

    /// Sets the time for the sockets that are listed next.
    pub(crate) fn stamp(&mut self) {
        self.moment.unix_ns = realtime_ns();
        self.moment.boot_ns = boottime_ns();
    }

    /// Resets the counts of sockets in these states, which are about to be counted again.
    pub(crate) fn forget_open(&mut self, states: States) {
        for (number, count) in self.open.iter_mut().flat_map(|row| row.iter_mut().enumerate()) {
            if states.contains(State::from_number(number as u8)) {
                *count = 0;
            }
        }
    }

    /// How long the polls have seen a socket.
    pub(crate) fn age_ns(&mut self, cookie: u64, boot_ns: u64) -> Option<u64> {
        self.table.get_mut(cookie).map(|entry| boot_ns.saturating_sub(entry.first_seen_boot_ns))
    }

    /// Decides what becomes of a socket that the kernel listed.
    fn consider(&mut self, message: &SocketMessage<'_>, raw: &[u8]) -> Result<(), Reason> {
        let cookie = message.id.cookie;
        let known = self.table.find(cookie).map(|at| InTable::of(at, self.table.at_mut(at)));
        // A dump is not a snapshot: a socket that moves within the kernel's table meanwhile is listed twice.
        if known.is_some_and(|known| known.seen_poll == self.moment.poll) {
            return Err(Reason::Duplicate);
        }

        let verdict = match self.is_served(message, Some(self.moment.place)) {
            true => Verdict::False,
            false => self.judge(message, known),
        };
        if !verdict.passes() {
            self.leave_out(message, known, verdict);
            return Err(Reason::Filtered);
        }

        // Before sampling: these counts are of sockets, not of records.
        let row = &mut self.open[family_row(message.family)];
        if let Some(count) = row.get_mut(usize::from(message.state.number())) {
            *count += 1;
        }

        if !self.is_sampled(cookie) {
            return Err(Reason::Sampled);
        }

        // Without keyframes every poll records every socket, and there is nothing to compare.
        let fingerprint = match self.options.keyframe_every {
            Some(_) => fingerprint(raw.get(HEADER_BYTES..).unwrap_or_default()),
            None => 0,
        };

        // A socket that did not pass before has no record yet.
        let before = known.filter(|known| known.verdict.passes());
        let is_changed = before.is_none_or(|before| before.fingerprint != fingerprint);
        let fate = if is_changed || self.is_keyframe { Fate::Recorded } else { Fate::LeftOut };
        let noted = self.note(message, known, (fingerprint, Verdict::True), fate);

        if fate == Fate::LeftOut {
            return Err(Reason::Unchanged);
        }

        self.emit_polled(message, &noted);
        Ok(())
    }

    /// Updates the table with a socket of this poll. Returns what its record takes from there.
    pub(crate) fn note(
        &mut self,
        message: &SocketMessage<'_>,
        known: Option<InTable>,
        (fingerprint, verdict): (u64, Verdict),
        fate: Fate,
    ) -> Noted {
        let Moment { poll, unix_ns, boot_ns, place, .. } = self.moment;
        let congestion = self.congestions.number(message.congestion);
        let holder = self.attribution.holder(message.inode);

        let entry = match known {
            Some(known) => self.table.at_mut(known.at),
            None => self.insert(message),
        };
        entry.fingerprint = fingerprint;
        entry.verdict = verdict;
        entry.last_seen_unix_ns = unix_ns;
        entry.seen_poll = poll;
        entry.polls_seen += 1;
        entry.namespace = place;
        entry.state = message.state.number();

        if entry.life == Life::Missing {
            entry.life = Life::Open;
        }

        if is_remnant(message) {
            // The remnant of a connection, with which the kernel answers late segments.
            if entry.life != Life::Closed {
                entry.life = Life::Remnant;
                entry.was_remnant = true;
            }
            return Noted::of(entry, Delta::default());
        }

        entry.was_socket = true;
        // The kernel reports no owner once the program has closed the socket: keep the last known one.
        entry.uid = says::uid(message).or(entry.uid);
        entry.holder = holder.or(entry.holder);
        entry.cgroup_id = message.cgroup_id.unwrap_or(entry.cgroup_id);
        entry.congestion = congestion;

        // An accepted or connecting socket gets its addresses after the kernel first listed it.
        (entry.src, entry.sport) = (message.id.src.ip(), message.id.src.port());
        (entry.dst, entry.dport) = (message.id.dst.ip(), message.id.dst.port());

        let mut delta = Delta::default();
        if let Some(info) = &message.tcp_info {
            // Before `note_counters` overwrites what is compared here. A listener's fields have other meanings.
            if message.state != State::Listen {
                delta = Delta::of(entry, info, boot_ns);
            }
            note_counters(entry, message, info);
            if fate == Fate::Recorded {
                entry.recorded = Recorded::now(info, boot_ns);
            }
        }

        Noted::of(entry, delta)
    }

    /// Puts a new socket into the table.
    fn insert(&mut self, message: &SocketMessage<'_>) -> &mut Entry {
        let cookie = message.id.cookie;
        // It may have been rejected until now: a socket that passes is only in the table.
        if !self.filter.rejected.is_empty() {
            self.filter.rejected.take(cookie);
        }

        let Moment { unix_ns, boot_ns, .. } = self.moment;
        let entry = self.table.insert(new_entry(message, unix_ns, boot_ns));
        // The kernel had filled this datagram before the socket closed.
        if self.hearing.just_closed.binary_search(&cookie).is_ok() {
            entry.life = Life::Closed;
        }
        entry
    }

    fn emit_polled(&mut self, message: &SocketMessage<'_>, noted: &Noted) {
        let cgroup = message.cgroup_id.and_then(|id| self.cgroup_of(id));
        let Moment { poll, unix_ns, at, place, .. } = self.moment;
        let inode = Some(message.inode).filter(|&inode| inode != 0).map(u64::from);
        let process = inode.and_then(|inode| self.attribution.processes.as_ref()?.owner(inode));
        let whose = Whose { process, ..Whose::of(self.namespaces.get(place), cgroup.as_deref()) };

        let mut record = self.emission.identity.record(RecordKind::POLL, unix_ns);
        describe(&mut record, message, &whose, &mut self.scratch);
        if record.unknown_attributes.is_some() {
            self.counts.unknown_attributes.add(message.unknown_attributes().count() as u64);
        }

        // A role found by an earlier poll is kept, even if the counters no longer show it.
        record.role = noted.role.map(Role::word).or(record.role);
        record.first_seen_unix_ns = Some(noted.first_seen_unix_ns);
        noted.delta.fill(&mut record);
        self.emission.emit(&mut record, poll, at);
    }
}

/// What the table had about a socket before the current poll found it.
#[derive(Clone, Copy)]
pub(crate) struct InTable {
    pub(crate) at: Place,
    pub(crate) seen_poll: u32,
    pub(crate) first_seen_boot_ns: u64,
    pub(crate) fingerprint: u64,
    pub(crate) verdict: Verdict,
}

impl InTable {
    fn of(at: Place, entry: &Entry) -> InTable {
        let Entry { seen_poll, first_seen_boot_ns, fingerprint, verdict, .. } = *entry;
        InTable { at, seen_poll, first_seen_boot_ns, fingerprint, verdict }
    }
}

/// Whether a socket found by a poll gets a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Recorded,
    LeftOut,
}

/// What the table adds to the record of a socket found by a poll.
pub(crate) struct Noted {
    role: Option<Role>,
    first_seen_unix_ns: u64,
    delta: Delta,
}

impl Noted {
    fn of(entry: &Entry, delta: Delta) -> Noted {
        Noted { role: entry.role, first_seen_unix_ns: entry.first_seen_unix_ns, delta }
    }
}

impl crate::walk::Visitor for Engine<'_> {
    fn socket(&mut self, message: &SocketMessage<'_>, raw: &[u8]) {
        let amount = Amount::one(raw.len());
        self.counts.visited.add(amount);
        self.sums.visited += 1;

        match self.consider(message, raw) {
            Ok(()) => {
                self.counts.polled.delivered.add(amount);
                self.sums.emitted += 1;
            }
            Err(reason) => {
                self.counts.polled.drop(reason, amount);
                self.sums.left_out(reason);
            }
        }
    }

    fn malformed(&mut self, error: DecodeError) {
        let amount = Amount { count: 1, bytes: 0 };
        self.counts.visited.add(amount);
        self.counts.polled.drop(Reason::Malformed, amount);
        self.sums.visited += 1;
        self.sums.left_out(Reason::Malformed);
        self.problem("malformed", || {
            format!("the kernel's message about a socket cannot be decoded: {error}; such sockets are missing")
        });
    }

    fn pause(&mut self) {
        // The next datagram describes the sockets as of now. A walk of a million sockets takes two seconds.
        self.stamp();
        if self.hearing.turns.is_due(self.counts.events.load().count) {
            self.take_closes();
            self.look_out();
        }
        self.counts.heartbeat.add(1);
    }
}

/// Keeps the counters that a closing record falls back on and that the end is judged by.
fn note_counters(entry: &mut Entry, message: &SocketMessage<'_>, info: &TcpInfo) {
    let last = LastCounters {
        bytes_sent: info.bytes_sent().unwrap_or_default(),
        bytes_acked: info.bytes_acked().unwrap_or_default(),
        bytes_received: info.bytes_received().unwrap_or_default(),
        bytes_retrans: info.bytes_retrans().unwrap_or_default(),
        segs_out: info.segs_out().unwrap_or_default(),
        segs_in: info.segs_in().unwrap_or_default(),
        total_retrans: info.total_retrans_segments().unwrap_or_default(),
        rtt_us: info.rtt_us().unwrap_or_default(),
        min_rtt_us: info.min_rtt_us().unwrap_or_default(),
        unacked_segments: info.unacked_segments().unwrap_or_default(),
        data_segs_in: info.data_segs_in().unwrap_or_default(),
        data_segs_out: info.data_segs_out().unwrap_or_default(),
    };

    entry.last = last;
    entry.has_counters = true;
    entry.is_all_acked = message.send_queue == 0;
    if entry.role.is_none() {
        entry.role = ends::role_of_listed(message);
    }
}

fn new_entry(message: &SocketMessage<'_>, unix_ns: u64, boot_ns: u64) -> Entry {
    Entry {
        cookie: message.id.cookie,
        fingerprint: 0,
        first_seen_unix_ns: unix_ns,
        last_seen_unix_ns: unix_ns,
        first_seen_boot_ns: boot_ns,
        seen_poll: 0,
        polls_seen: 0,
        namespace: 0,
        cgroup_id: 0,
        uid: None,
        holder: None,
        src: message.id.src.ip(),
        dst: message.id.dst.ip(),
        sport: message.id.src.port(),
        dport: message.id.dst.port(),
        state: message.state.number(),
        life: Life::Open,
        role: None,
        has_counters: false,
        is_all_acked: false,
        was_socket: false,
        was_remnant: false,
        verdict: Verdict::Unknown,
        congestion: 0,
        last: LastCounters::default(),
        recorded: Recorded::default(),
    }
}
