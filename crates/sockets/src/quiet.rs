//! Namespaces without any TCP activity since they were walked: their sockets are still the same ones, and can be found without a
//! walk.
//!
//! A walk reads the hash table that all namespaces share, 190 µs for 262,144 buckets, to find the three sockets of a container.
//! Reading the counts of a namespace takes a tenth of that, and shows that no socket can be missing:
//! - Every socket in the kernel's tables of listeners and connections counts as in use (`sock_prot_inuse_add`) or as in TIME-WAIT
//!   (`tw_refcount`) from its insertion on. Only namespaces without the latter qualify.
//! - A handshake that waits for its last segment counts nowhere, but it came with a segment, which does.
//! - The counts are sums over processors, read one after another, so a rise on one during a fall on another may be missed. The
//!   counts of segments only rise: if their sum is the same as before the last walk, each of them is.
//!
//! So a namespace is quiet if its counts equal those from before the last walk, if every connection found by that walk is still
//! there, by cookie, and if these and the listeners together are as many as are in use. The existing sockets are then queried one
//! by one, with the attributes of a walk, so the records are the same.

mod counts;

pub use counts::TcpCounts;

use crate::access::Access;
use crate::engine::Engine;
use crate::walk::{Ask, Visitor, WalkError, Walked, Walker};
use std::collections::HashMap;
use sys::clock::monotonic_ns;
use sys::netlink::Socket;
use wire::DecodeError;
use wire::inet_diag::{SocketId, SocketMessage, State, States, decode};
use wire::netlink::Messages;

/// Maximum number of connections in a quiet namespace: a query takes 3 µs, and a walk as long as about 60 queries.
const CONNECTIONS_MAX: usize = 16;
/// Upper bound for the first measurement of the time to read counts, in nanoseconds: 100 µs.
const FIRST_COUNTS_NS: u64 = 100_000;
/// Maximum number of polls for which a namespace that was not quiet is left alone.
const REST_POLLS_MAX: u32 = 32;

/// What is known about namespaces, by cookie: the kernel never reuses one.
#[derive(Default)]
pub(crate) struct Quiet {
    known: HashMap<u64, Memory>,
    /// How long the last reading of counts took, in nanoseconds.
    counts_ns: u64,
}

/// The last walk of a namespace.
#[derive(Default)]
struct Memory {
    poll: u32,
    /// Its counts before that walk, if they were read.
    before: Option<TcpCounts>,
    /// The sockets it found, except for listeners.
    connections: Vec<SocketId>,
    walk_ns: u64,
    /// Polls until its counts are read again.
    rest: u32,
    /// The next value of `rest` if the next two polls find it changed.
    next_rest: u32,
}

/// A namespace to read, and how.
pub(crate) struct Visit<'a> {
    /// Its index in the last discovery.
    pub(crate) at: usize,
    /// The kernel's cookie for it.
    pub(crate) cookie: Option<u64>,
    /// A socket in it.
    pub(crate) socket: &'a Socket,
    pub(crate) ask: Ask<'a>,
}

impl Quiet {
    /// Makes the engine visit every socket of a namespace.
    ///
    /// # Errors
    /// As [`Walker::walk`].
    pub(crate) fn read(
        &mut self,
        visit: &Visit<'_>,
        access: &mut dyn Access,
        walker: &mut Walker,
        engine: &mut Engine<'_>,
    ) -> Result<Walked, WalkError> {
        let poll = engine.moment.poll;
        let others = States::CONNECTED | States::LISTENING;

        // Sockets without a connection are in a table that has no counts.
        let Some(cookie) = visit.cookie.filter(|_| (visit.ask.states - others).is_empty()) else {
            return walker.walk(visit.socket, &visit.ask, engine);
        };

        let memory = self.known.entry(cookie).or_default();
        let (mut counts, mut took_ns) = (None, 0);
        if memory.is_candidate(self.counts_ns) {
            let began_ns = monotonic_ns();
            counts = access.tcp_counts(visit.at).ok();
            took_ns = monotonic_ns().saturating_sub(began_ns);

            // The thread may have waited for a processor meanwhile.
            self.counts_ns = took_ns.min(self.counts_ns.saturating_mul(2).max(FIRST_COUNTS_NS));
        }

        memory.poll = poll;
        let mut ask = visit.ask;
        if let Some(counts) = counts.as_ref().filter(|counts| memory.is_same(counts, &ask)) {
            let walked = memory.read_quiet(counts, visit, walker, engine)?;
            if let Some(mut walked) = walked {
                walked.kernel_ns += took_ns;
                memory.next_rest = 1;
                engine.counts.quiet_namespaces.add(1);
                return Ok(walked);
            }
            if counts.in_use > memory.connections.len() as u64 {
                // Its listeners have already been visited.
                ask.states = ask.states - States::LISTENING;
            }
        }

        let mut found = Finds { engine, connections: Vec::new(), is_too_much: false };
        let mut walked = walker.walk(visit.socket, &ask, &mut found)?;
        let Finds { connections, is_too_much, .. } = found;
        memory.learn(counts, connections, is_too_much, walked.kernel_ns);
        walked.kernel_ns += took_ns;
        Ok(walked)
    }

    /// Forgets namespaces that this poll has not read.
    pub(crate) fn forget_gone(&mut self, poll: u32) {
        // What was too slow is tried again after a while.
        self.counts_ns -= self.counts_ns / 16;
        self.known.retain(|_, memory| memory.poll == poll);
    }
}

impl Memory {
    /// Whether its counts are worth reading in this poll.
    fn is_candidate(&mut self, counts_ns: u64) -> bool {
        self.rest = self.rest.saturating_sub(1);
        // A walk may be cheaper: the namespace may have a table of its own (`tcp_child_ehash_entries`), and with many processors
        // the sums take long.
        self.rest == 0 && self.walk_ns > counts_ns
    }

    /// Whether nothing has happened since before the last walk, judging by the counts.
    fn is_same(&self, counts: &TcpCounts, ask: &Ask<'_>) -> bool {
        // What the kernel's filter left out of the last walk may pass now.
        let is_complete = ask.bytecode.is_empty() || counts.in_use == 0;
        is_complete && counts.time_wait == 0 && self.before.as_ref() == Some(counts)
    }

    /// Visits the listeners and the connections of the last walk. `None` when there are others too; then none of the connections
    /// was visited.
    fn read_quiet(
        &self,
        counts: &TcpCounts,
        visit: &Visit<'_>,
        walker: &mut Walker,
        engine: &mut Engine<'_>,
    ) -> Result<Option<Walked>, WalkError> {
        let mut walked = Walked::default();
        let mut listeners = 0;
        if counts.in_use > self.connections.len() as u64 {
            // What is in use besides the connections can only be listeners, which are cheap to list.
            let is_wanted = visit.ask.states.contains(State::Listen);
            let ask = Ask { states: States::LISTENING, ..visit.ask };
            let mut visitor = Listeners { engine, is_wanted, count: 0 };
            walked = walker.walk(visit.socket, &ask, &mut visitor)?;
            listeners = visitor.count;
        }

        let began_ns = monotonic_ns();
        let mut answers = Vec::new();
        let mut found = 0;
        for id in &self.connections {
            found += u64::from(walker.look_up(visit.socket, id, &visit.ask, &mut answers));
        }
        walked.kernel_ns += monotonic_ns().saturating_sub(began_ns);

        if found != self.connections.len() as u64 || found + listeners != counts.in_use {
            return Ok(None);
        }

        // Visited only now: if a walk were needed after all, it would visit them again.
        walked.bytes += answers.len() as u64;
        for message in Messages::new(&answers).flatten() {
            match decode(message.body) {
                Ok(socket) => engine.socket(&socket, message.raw),
                Err(error) => engine.malformed(error),
            }
        }
        Ok(Some(walked))
    }

    fn learn(
        &mut self,
        counts: Option<TcpCounts>,
        connections: Vec<SocketId>,
        is_too_much: bool,
        walk_ns: u64,
    ) {
        self.walk_ns = walk_ns;
        let had_counts = self.before.is_some();
        self.before = counts;
        self.connections = connections;

        if is_too_much || (had_counts && self.before.is_some()) {
            // It was not quiet between two polls, and may not be so between the next two.
            self.before = None;
            self.connections = Vec::new();
            self.next_rest = (self.next_rest * 2).clamp(1, REST_POLLS_MAX);
            self.rest = self.next_rest + 1;
        }
    }
}

/// Remembers connections on their way to the engine.
struct Finds<'a, 'h> {
    engine: &'a mut Engine<'h>,
    connections: Vec<SocketId>,
    /// More connections than may be remembered, or handshakes, which the counts do not show.
    is_too_much: bool,
}

impl Visitor for Finds<'_, '_> {
    fn socket(&mut self, message: &SocketMessage<'_>, raw: &[u8]) {
        match message.state {
            State::Listen => {}
            State::SynReceived | State::NewSynReceived => self.is_too_much = true,
            _ if self.connections.len() >= CONNECTIONS_MAX => self.is_too_much = true,
            _ => self.connections.push(message.id),
        }
        self.engine.socket(message, raw);
    }

    fn malformed(&mut self, error: DecodeError) {
        self.is_too_much = true;
        self.engine.malformed(error);
    }

    fn pause(&mut self) {
        self.engine.pause();
    }
}

/// Counts listeners, and passes them to the engine if they are wanted.
struct Listeners<'a, 'h> {
    engine: &'a mut Engine<'h>,
    is_wanted: bool,
    count: u64,
}

impl Visitor for Listeners<'_, '_> {
    fn socket(&mut self, message: &SocketMessage<'_>, raw: &[u8]) {
        self.count += 1;
        if self.is_wanted {
            self.engine.socket(message, raw);
        }
    }

    fn malformed(&mut self, error: DecodeError) {
        if self.is_wanted {
            self.engine.malformed(error);
        }
    }

    fn pause(&mut self) {
        self.engine.pause();
    }
}
