//! The tables of runs, senders and sessions: what is remembered for how long, and who gives way when a table is full.

use super::shares::{Claim, surplus};
use super::{Far, Peer, PeerIntake, Run, Session, hellos, place};
use crate::Amount;
use crate::kept::FILE_ROOM_BYTES;
use crate::key::KeyId;
use crate::receiver::{FREE_BYTES_MAX, ReceiverOptions};
use std::sync::Arc;

/// How long a session without packets is kept, in nanoseconds. After that time of silence, totals are all that is remembered of a
/// run.
const SESSION_IDLE_NS: u64 = 180_000_000_000;

/// How long a session that has not had its first packet is kept, in nanoseconds.
const SESSION_UNUSED_NS: u64 = 10_000_000_000;

/// How long a run without a session is remembered, in nanoseconds.
const RUN_IDLE_NS: u64 = 86_400_000_000_000;

/// The same for a run whose sender began a newer one. Two processes with the same names supersede each other, and a path may be
/// dead for minutes.
const RUN_SUPERSEDED_NS: u64 = 600_000_000_000;

/// How long a run from which only hellos have come is remembered, in nanoseconds.
pub(super) const RUN_UNUSED_NS: u64 = 60_000_000_000;

/// Time between two looks for what was silent for too long, in nanoseconds.
const SWEEP_NS: u64 = 1_000_000_000;

/// A full table is relieved of this share of its entries at once, because choosing them means looking at all.
const SURPLUS_PART: usize = 16;

/// Length of all names of a sender: its key's, its host's and its listener's.
const NAMES_BYTES_MAX: usize = 64 + 2 * 255;

/// What is remembered of a sender.
pub(super) struct Standing {
    pub(super) key: KeyId,
    /// Number of its runs that are known, and the newest of them.
    runs: usize,
    newest: [u8; 16],
    /// What was accepted of its other runs.
    pub(super) past: Amount,
}

impl Standing {
    /// Whether only a sum is left of the sender.
    pub(super) fn is_past(&self) -> bool {
        self.runs == 0 && self.past != Amount::default()
    }
}

/// Maximum memory of a receiving end, in bytes: for its tables, and for what is shared by all runs.
pub fn tables_bytes_max(options: ReceiverOptions) -> usize {
    // A hash table doubles when it is full, and holds the old half while it moves.
    const TABLE: usize = 3;
    // The keys of both directions, the one before, and what an allocator adds.
    let session = size_of::<Option<Box<Session>>>() * 2 + size_of::<Session>() + 1_024;
    let names = size_of::<Peer>() + NAMES_BYTES_MAX + 64;
    let standing = TABLE * size_of::<(Arc<Peer>, Standing)>() + names;
    // A run's entry, its entries in the queues, and what figures show of it.
    let run = TABLE * size_of::<([u8; 16], Run)>() + 2 * (32 + 64);
    let claims = size_of::<Claim<[u8; 16]>>() * 3;
    sessions_max(options) * session
        + runs_max(options) * (run + standing + claims)
        + past_max(options) * standing
        + options.room_bytes
        + 2 * FREE_BYTES_MAX
}

/// Maximum size of what a receiving end [remembers](Far::remember) when it begins anew, in bytes.
fn records_bytes_max(options: ReceiverOptions) -> usize {
    let names = 2 * 256;
    let run = 61 + names;
    let past = 25 + names;
    // A block is kept in fewer bytes than it takes in memory.
    runs_max(options) * run + past_max(options) * past + options.room_bytes
}

/// Maximum memory of a receiving end's state, in bytes: the records to begin anew with, and files with room for as much again,
/// of which there are two for a moment.
pub fn kept_bytes_max(options: ReceiverOptions) -> usize {
    5 * records_bytes_max(options) + 2 * FILE_ROOM_BYTES
}

fn sessions_max(options: ReceiverOptions) -> usize {
    (options.senders_max as usize * 2).clamp(2, super::PLACES)
}

pub(super) fn runs_max(options: ReceiverOptions) -> usize {
    (options.senders_max as usize * 4).max(4)
}

/// Maximum number of senders remembered without a run.
fn past_max(options: ReceiverOptions) -> usize {
    (options.senders_max as usize).max(1)
}

impl Far {
    pub(super) fn runs_max(&self) -> usize {
        runs_max(self.options)
    }

    /// Notes that a run of a sender begins, which supersedes those before it, and returns the sender.
    pub(super) fn begin_run(&mut self, key: KeyId, peer: Peer, id: [u8; 16]) -> Arc<Peer> {
        let (peer, standing) = self.standing(key, peer);
        let was_past = standing.is_past();
        standing.runs += 1;
        let before = std::mem::replace(&mut standing.newest, id);
        let is_first = standing.runs == 1;
        self.past_count -= usize::from(was_past);
        if !is_first && let Some(run) = self.runs.get_mut(&before) {
            run.is_superseded = true;
        }
        peer
    }

    fn standing(&mut self, key: KeyId, peer: Peer) -> (Arc<Peer>, &mut Standing) {
        let known = self.peers.get_key_value(&peer).map(|(peer, _)| Arc::clone(peer));
        let peer = known.unwrap_or_else(|| Arc::new(peer));
        let unknown = Standing { key, runs: 0, newest: [0; 16], past: Amount::default() };
        let standing = self.peers.entry(Arc::clone(&peer)).or_insert(unknown);
        (peer, standing)
    }

    /// Adds to the sum of a sender's forgotten runs.
    pub(super) fn add_past(&mut self, key: KeyId, peer: Peer, accepted: Amount) {
        let (peer, standing) = self.standing(key, peer);
        let is_new = standing.runs == 0 && standing.past == Amount::default();
        standing.past += accepted;
        if standing.runs == 0 && standing.past == Amount::default() {
            self.peers.remove(&peer);
            return;
        }
        self.past_count += usize::from(is_new);
        if self.past_count > past_max(self.options) {
            self.fold_past();
        }
    }

    /// Adds up senders without a run, of the keys that have most of them: the sum of a key has neither host nor listener.
    fn fold_past(&mut self) {
        let is_sum = |peer: &Peer| peer.host.is_empty() && peer.listener.is_empty();
        let past = self.peers.iter().filter(|(peer, of)| of.is_past() && !is_sum(peer));
        let claims = past.map(|(peer, standing)| {
            let (key, of) = (standing.key, Arc::clone(peer));
            Claim { key, peer: Arc::clone(peer), class: 0, heard_ns: 0, of }
        });
        let count = (past_max(self.options) / SURPLUS_PART).max(1);
        for peer in surplus(claims.collect(), count) {
            if let Some(standing) = self.peers.remove(&peer) {
                self.past_count -= 1;
                let (name, host) = (peer.name.clone(), String::new());
                let all = Peer { name, host, listener: String::new() };
                let (_, sum) = self.standing(standing.key, all);
                let is_new = sum.runs == 0 && sum.past == Amount::default();
                sum.past += standing.past;
                self.past_count += usize::from(is_new);
            }
        }
    }

    /// Forgets a run but for its totals, which its sender's sum keeps. What waits is passed on.
    pub(crate) fn forget(&mut self, id: &[u8; 16], intake: &mut PeerIntake<'_>) {
        let Some(run) = self.runs.remove(id) else { return };
        let Run { peer, key, receiver, session, said_unix_ns, cookie_time, .. } = run;
        if let Some(index) = session {
            self.end_session(place(index));
        }
        let accepted = receiver.finish(&mut self.room, &mut |one| intake(&peer, one));
        let of_key = hellos::of_key(&mut self.of_keys, key, self.since_unix_ns);
        of_key.since_unix_ns = of_key.since_unix_ns.max(said_unix_ns);
        of_key.cookie_time = of_key.cookie_time.max(cookie_time);

        if let Some(standing) = self.peers.get_mut(&peer) {
            standing.runs -= 1;
            self.past_count += usize::from(standing.is_past());
        }
        self.add_past(key, Arc::unwrap_or_clone(peer), accepted);
    }

    /// Makes room in the table of runs if it is full.
    pub(super) fn make_room_for_runs(&mut self, intake: &mut PeerIntake<'_>) {
        let max = self.runs_max();
        if self.runs.len() < max {
            return;
        }
        let claims = self.runs.iter().map(|(id, run)| {
            let class = match run.session {
                Some(_) => 2,
                None => u8::from(!run.is_superseded),
            };
            let (key, peer, heard_ns) = (run.key, Arc::clone(&run.peer), run.heard_ns);
            Claim { key, peer, class, heard_ns, of: *id }
        });
        let count = self.runs.len() + 1 - max + max / SURPLUS_PART;
        for id in surplus(claims.collect(), count) {
            self.forget(&id, intake);
        }
        self.holds.retain(|std::cmp::Reverse((_, id))| self.runs.contains_key(id));
    }

    /// A free place in the table of sessions.
    pub(super) fn free_place(&mut self) -> Option<usize> {
        let max = sessions_max(self.options);
        if self.free.is_empty() && self.sessions.len() >= max {
            self.make_room_for_sessions(max.div_ceil(SURPLUS_PART));
        }
        if let Some(place) = self.free.pop() {
            return Some(place as usize);
        }
        if self.sessions.len() >= max {
            return None;
        }
        self.sessions.push(None);
        Some(self.sessions.len() - 1)
    }

    fn make_room_for_sessions(&mut self, count: usize) {
        let (mut claims, mut over) = (Vec::new(), Vec::new());
        for session in self.sessions.iter().flatten() {
            let (class, heard_ns) = (u8::from(session.is_used), session.heard_ns);
            match self.runs.get(&session.run) {
                Some(run) => {
                    let peer = Arc::clone(&run.peer);
                    claims.push(Claim {
                        key: session.key,
                        peer,
                        class,
                        heard_ns,
                        of: session.index,
                    });
                }
                None => over.push(session.index),
            }
        }
        over.extend(surplus(claims, count));
        for index in over {
            self.end_session(place(index));
        }
    }

    fn end_session(&mut self, at: usize) {
        let Some(session) = self.sessions.get_mut(at).and_then(Option::take) else { return };
        self.free.push(at as u32);
        let run = self.runs.get_mut(&session.run);
        if let Some(run) = run.filter(|run| run.session == Some(session.index)) {
            run.session = None;
        }
    }

    /// Forgets sessions and runs that have been silent for too long.
    pub(super) fn sweep(&mut self, now_ns: u64, intake: &mut PeerIntake<'_>) {
        if now_ns < self.swept_ns.saturating_add(SWEEP_NS) || now_ns == u64::MAX {
            return;
        }
        self.swept_ns = now_ns;
        for at in 0..self.sessions.len() {
            let is_over = self.sessions[at].as_ref().is_some_and(|session| {
                let kept_ns = if session.is_used { SESSION_IDLE_NS } else { SESSION_UNUSED_NS };
                now_ns > session.heard_ns + kept_ns
            });
            if is_over {
                self.end_session(at);
            }
        }

        let mut over = Vec::new();
        for (id, run) in &mut self.runs {
            if run.session.is_some() {
                continue;
            }
            let is_unused = run.receiver.accepted() == Amount::default();
            let kept_ns = match (is_unused, run.is_superseded) {
                (true, _) => RUN_UNUSED_NS,
                (false, true) => RUN_SUPERSEDED_NS,
                (false, false) => RUN_IDLE_NS,
            };
            if now_ns > run.heard_ns + kept_ns {
                over.push(*id);
            } else if now_ns > run.heard_ns + SESSION_IDLE_NS {
                run.receiver.settle(&mut self.room);
            }
        }
        for id in over {
            self.forget(&id, intake);
        }
    }
}
