//! What the collector does with each socket that the kernel lists: filter, join with what is known, make a record.

use crate::assemble;
use crate::attribution::{Cgroup, Cgroups, Host};
use crate::closing::Events;
use crate::ends::{self, Counters};
use crate::filter::{Expr, Facts, Needs};
use crate::fingerprint::fingerprint;
use crate::held::Held;
use crate::look::Looker;
use crate::meter::{Counts, STATES, family_row};
use crate::namespaces::{Known, Namespaces};
use crate::options::Options;
use crate::output::{Output, Problem};
use crate::poll::missing_kept_polls;
use crate::table::{Entry, LastCounters, Life, Place, Table, mix};
use crate::totals::Sums;
use crate::turns::Turns;
use ledger::{Amount, Reason};
use record::{RecordKind, SocketRecord, Tags};
use std::sync::Arc;
use std::time::Instant;
use wire::DecodeError;
use wire::inet_diag::{SocketMessage, State, States, TcpInfo};
use wire::netlink::HEADER_BYTES;

/// What is the same on all records of a collector.
#[derive(Clone, Copy)]
pub(crate) struct Identity<'h> {
    pub(crate) host: &'h Host,
    pub(crate) tags: &'h [(&'h str, &'h str)],
}

impl<'h> Identity<'h> {
    /// A record that says which host and boot it is from.
    pub(crate) fn record(&self, kind: RecordKind, time_unix_ns: u64) -> SocketRecord<'h> {
        SocketRecord {
            record_kind: Some(kind),
            time_unix_ns: Some(time_unix_ns),
            host: self.host.name(),
            boot_id: self.host.boot_id(),
            tags: (!self.tags.is_empty()).then(|| Tags::new(self.tags)),
            ..SocketRecord::default()
        }
    }
}

/// The poll under way, or the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Number of the poll, from 1.
    pub(crate) poll: u32,
    /// When the walk of this namespace began.
    pub(crate) unix_ns: u64,
    pub(crate) at: Instant,
    /// Place of the namespace that is being walked.
    pub(crate) place: u32,
}

/// Everything that the collector's thread knows, and where its records go.
pub(crate) struct Engine<'h> {
    pub(crate) options: &'h Options,
    pub(crate) identity: Identity<'h>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) output: Box<dyn Output>,
    pub(crate) table: Table,
    pub(crate) namespaces: Namespaces,
    pub(crate) moment: Moment,
    pub(crate) sums: Sums,
    /// Whether this poll makes records of unchanged sockets too.
    pub(crate) is_keyframe: bool,
    /// What the kernel leaves of the filter for us.
    pub(crate) rest: Option<Expr>,
    pub(crate) open: [[u64; STATES]; 2],
    pub(crate) events: Option<Events>,
    /// Close events that wait for a look into their namespace.
    pub(crate) held: Held,
    pub(crate) looker: Looker,
    turns: Turns,
    /// Cookies of sockets that no poll had seen when their close events were read last, in order. The kernel fills one
    /// datagram of a dump ahead, so that such a socket may still be listed in the next.
    pub(crate) just_closed: Vec<u64>,
    /// The same, of events that may be heard again because another socket took over, in order.
    pub(crate) heard_before: Vec<u64>,
    cgroups: Option<Cgroups>,
    needs: Needs,
    /// Since when records wait for the output's next flush.
    pub(crate) unflushed_since: Option<Instant>,
    sequence: u64,
    unknown: Vec<u8>,
    congestions: Vec<String>,
    told: Vec<&'static str>,
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
        let mut namespaces = Namespaces::new(missing_kept_polls(options.interval));
        namespaces.set_own(sys::namespace::own().ok());
        Engine {
            options,
            identity,
            counts,
            output,
            table,
            namespaces,
            moment: Moment { poll: 0, unix_ns: 0, at: Instant::now(), place: 0 },
            sums: Sums::default(),
            is_keyframe: true,
            rest: None,
            open: [[0; STATES]; 2],
            events: None,
            held: Held::default(),
            looker: Looker::default(),
            turns: Turns::default(),
            just_closed: Vec::new(),
            heard_before: Vec::new(),
            cgroups: Cgroups::open(Default::default()).ok(),
            needs: options.filter.as_ref().map_or(Needs::NONE, |filter| filter.needs()),
            unflushed_since: None,
            sequence: 0,
            unknown: Vec::new(),
            congestions: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Tells of something that does not work, the first time.
    pub(crate) fn problem(&mut self, cause: &'static str, text: impl FnOnce() -> String) {
        if !self.told.contains(&cause) {
            self.told.push(cause);
            self.output.problem(&Problem { cause, text: text() });
        }
    }

    /// Whether a connection is in the sample. By its cookie, so that it is in all polls or in none.
    pub(crate) fn is_sampled(&self, cookie: u64) -> bool {
        let one_in = u64::from(self.options.sample.get());
        one_in == 1 || mix(cookie).is_multiple_of(one_in)
    }

    pub(crate) fn cgroup_of(&mut self, id: u64) -> Option<Arc<Cgroup>> {
        self.cgroups.as_mut()?.lookup(id, self.moment.at).cloned()
    }

    /// Forgets how many sockets are in these states, which are counted anew.
    pub(crate) fn forget_open(&mut self, states: States) {
        for (number, count) in self.open.iter_mut().flat_map(|row| row.iter_mut().enumerate()) {
            if states.contains(State::from_number(number as u8)) {
                *count = 0;
            }
        }
    }

    /// For how long the polls have seen a socket.
    pub(crate) fn age_ns(&mut self, cookie: u64, unix_ns: u64) -> Option<u64> {
        self.table.get_mut(cookie).map(|entry| unix_ns.saturating_sub(entry.first_seen_unix_ns))
    }

    /// Whether a socket passes an expression of the collector's own filter.
    pub(crate) fn passes(
        &mut self,
        expression: &Expr,
        message: &SocketMessage<'_>,
        place: Option<u32>,
        age_ns: Option<u64>,
    ) -> bool {
        self.passes_any(expression, self.needs, message, place, age_ns)
    }

    /// Whether a socket passes an expression of a filter with these needs, given what is known of it beside the kernel's
    /// message.
    pub(crate) fn passes_any(
        &mut self,
        expression: &Expr,
        needs: Needs,
        message: &SocketMessage<'_>,
        place: Option<u32>,
        age_ns: Option<u64>,
    ) -> bool {
        let wants_cgroup = needs.contains(Needs::ATTRIBUTION);
        let cgroup = message.cgroup_id.filter(|_| wants_cgroup).and_then(|id| self.cgroup_of(id));
        let namespace = place.and_then(|place| self.namespaces.get(place));
        let facts = Facts {
            netns: namespace.and_then(|known| known.name.as_deref()),
            age: age_ns.map(std::time::Duration::from_nanos),
            ..facts_of(cgroup.as_deref())
        };
        expression.matches(message, &facts)
    }

    /// Gives the output a record: what every record has is added.
    pub(crate) fn emit(&mut self, record: &mut SocketRecord<'_>) {
        record.poll = Some(u64::from(self.moment.poll));
        record.sequence = Some(self.sequence);
        self.sequence += 1;
        self.unflushed_since.get_or_insert(self.moment.at);
        self.output.record(record);
    }

    /// Decides what becomes of a socket that the kernel listed.
    fn consider(&mut self, message: &SocketMessage<'_>, raw: &[u8]) -> Result<(), Reason> {
        let Moment { poll, unix_ns, place, .. } = self.moment;
        let cookie = message.id.cookie;
        let known = self.table.find(cookie);
        let before = known.map(|at| {
            let entry = self.table.at_mut(at);
            (entry.seen_poll, entry.first_seen_unix_ns, entry.fingerprint)
        });
        if before.is_some_and(|(seen_poll, ..)| seen_poll == poll) {
            return Err(Reason::Duplicate);
        }
        if let Some(rest) = self.rest.take() {
            let age_ns = before.map(|(_, first_seen, _)| unix_ns.saturating_sub(first_seen));
            let passes = self.passes(&rest, message, Some(place), age_ns);
            self.rest = Some(rest);
            if !passes {
                // It is there all the same: its absence from the records is no absence.
                if let Some(at) = known {
                    self.table.at_mut(at).seen_poll = poll;
                }
                return Err(Reason::Filtered);
            }
        }
        let row = &mut self.open[family_row(message.family)];
        if let Some(count) = row.get_mut(usize::from(message.state.number())) {
            *count += 1;
        }
        if !self.is_sampled(cookie) {
            return Err(Reason::Sampled);
        }
        let fingerprint = match self.options.keyframe_every {
            Some(_) => fingerprint(raw.get(HEADER_BYTES..).unwrap_or_default()),
            None => 0,
        };
        self.note(message, known, fingerprint);
        let is_changed = before.is_none_or(|(.., before)| before != fingerprint);
        if !is_changed && !self.is_keyframe {
            return Err(Reason::Unchanged);
        }
        self.emit_polled(message);
        Ok(())
    }

    /// Brings the table up to date with a socket of this poll, which it has at a place or not at all.
    fn note(&mut self, message: &SocketMessage<'_>, known: Option<Place>, fingerprint: u64) {
        let Moment { poll, unix_ns, place, .. } = self.moment;
        let congestion = self.congestion_place(message.congestion);
        let cookie = message.id.cookie;
        let entry = match known {
            Some(at) => self.table.at_mut(at),
            None => {
                let entry = self.table.insert(new_entry(message, unix_ns));
                if self.just_closed.binary_search(&cookie).is_ok() {
                    entry.life = Life::Closed;
                }
                entry
            }
        };
        entry.fingerprint = fingerprint;
        entry.last_seen_unix_ns = unix_ns;
        entry.seen_poll = poll;
        entry.polls_seen += 1;
        entry.namespace = place;
        entry.state = message.state.number();
        if entry.life == Life::Missing {
            entry.life = Life::Open;
        }
        if is_remnant(message) {
            // What is left of a connection for the kernel to answer late segments.
            if entry.life != Life::Closed {
                entry.life = Life::Remnant;
                entry.was_remnant = true;
            }
            return;
        }
        entry.was_socket = true;
        entry.uid = message.uid;
        entry.cgroup_id = message.cgroup_id.unwrap_or(entry.cgroup_id);
        entry.congestion = congestion;
        // An accepted or connecting socket learns its addresses after the kernel listed it first.
        (entry.src, entry.sport) = (message.id.src.ip(), message.id.src.port());
        (entry.dst, entry.dport) = (message.id.dst.ip(), message.id.dst.port());
        if let Some(info) = &message.tcp_info {
            note_counters(entry, message, info);
        }
    }

    /// Place of a name in the list of congestion controls, which are few; 0 is none, and what no longer fits.
    fn congestion_place(&mut self, name: Option<&str>) -> u8 {
        let Some(name) = name else { return 0 };
        let known = self.congestions.iter().position(|known| known == name);
        let place = known.unwrap_or(self.congestions.len());
        if known.is_none() && place < usize::from(u8::MAX) {
            self.congestions.push(name.to_owned());
        }
        u8::try_from(place + 1).unwrap_or(0)
    }

    /// The congestion control that an entry names.
    pub(crate) fn congestion_name(&self, place: u8) -> Option<&str> {
        let place = usize::from(place).checked_sub(1)?;
        self.congestions.get(place).map(String::as_str)
    }

    fn emit_polled(&mut self, message: &SocketMessage<'_>) {
        let cgroup = message.cgroup_id.and_then(|id| self.cgroup_of(id));
        let namespace = self.namespaces.get(self.moment.place).cloned();
        let mut record = self.identity.record(RecordKind::POLL, self.moment.unix_ns);
        assemble::fill(&mut record, message, assemble::own_accecn_layout());
        fill_attribution(&mut record, namespace.as_ref(), cgroup.as_deref());
        let mut unknown = std::mem::take(&mut self.unknown);
        unknown.clear();
        assemble::unknown_attributes(message, &mut unknown);
        if !unknown.is_empty() {
            self.counts.unknown_attributes.add(message.unknown_attributes().count() as u64);
            record.unknown_attributes = Some(&unknown);
        }
        self.emit(&mut record);
        self.unknown = unknown;
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
        if self.turns.is_due(self.counts.events.load().count) {
            self.take_closes();
        }
        self.counts.heartbeat.add(1);
    }
}

/// Whether the message is about a minisock: what the kernel keeps of a connection after, or before, its socket.
pub(crate) fn is_remnant(message: &SocketMessage<'_>) -> bool {
    match message.state {
        State::TimeWait => true,
        // The kernel shows an orphan in FIN-WAIT-2 under its state, but without an inode and with the timer of TIME-WAIT
        // (net/ipv4/inet_diag.c, inet_twsk_diag_fill).
        State::FinWait2 => message.inode == 0 && message.timer == wire::inet_diag::Timer::TimeWait,
        _ => false,
    }
}

pub(crate) fn facts_of(cgroup: Option<&Cgroup>) -> Facts<'_> {
    Facts {
        cgroup_path: cgroup.map(Cgroup::path),
        pod: cgroup.and_then(Cgroup::pod_uid),
        container: cgroup.and_then(Cgroup::container_id),
        unit: cgroup.and_then(Cgroup::systemd_unit),
        ..Facts::default()
    }
}

/// Says whose socket it is.
pub(crate) fn fill_attribution<'a>(
    record: &mut SocketRecord<'a>,
    namespace: Option<&'a Known>,
    cgroup: Option<&'a Cgroup>,
) {
    if let Some(known) = namespace {
        record.netns_inode = Some(known.id.inode);
        record.netns_name = known.name.as_deref();
        record.netns_id = known.nsid.and_then(|nsid| u32::try_from(nsid).ok());
    }
    if let Some(cgroup) = cgroup {
        record.cgroup_path = Some(cgroup.path());
        record.pod_uid = cgroup.pod_uid();
        record.container_id = cgroup.container_id();
        record.systemd_unit = cgroup.systemd_unit();
    }
}

/// Keeps what a closing record falls back to, and what the end is told from.
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
    if entry.role.is_none() && info.bytes_sent().is_some() {
        let notsent = info.notsent_bytes().unwrap_or_default();
        let counters = Counters::of(&last);
        entry.role = ends::role_of_row(message.state, &counters, message.send_queue, notsent);
    }
}

fn new_entry(message: &SocketMessage<'_>, unix_ns: u64) -> Entry {
    Entry {
        cookie: message.id.cookie,
        fingerprint: 0,
        first_seen_unix_ns: unix_ns,
        last_seen_unix_ns: unix_ns,
        seen_poll: 0,
        polls_seen: 0,
        namespace: 0,
        cgroup_id: 0,
        uid: 0,
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
        congestion: 0,
        last: LastCounters::default(),
    }
}
