//! The receiving end: the sessions of many senders, and what each has sent.

mod hellos;

use crate::kept::{KeptRun, Memory, Record};
use crate::key::{KeyId, Keys};
use crate::packet::{BITMAP_BYTES_MAX, DataHead, Floor, Header, Kind, Report};
use crate::random_bytes;
use crate::receiver::{Accepted, Arrivals, Outcome, Receiver, ReceiverOptions};
use crate::seal::{Opener, Sealer};
use crate::{Amount, Totals};
use hellos::Hellos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

/// Low bits of a session's index: its place in the table. The other bits are random, so that a stranger's packet is rejected
/// before anything is computed.
const PLACE_BITS: u32 = 16;

/// Maximum number of sessions.
const SESSIONS_MAX: usize = 1 << PLACE_BITS;

/// What arrived and was not accepted, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FarCounts {
    /// Authentic packets.
    pub packets: u64,
    pub reports: u64,
    /// Sessions that began.
    pub sessions: u64,
    /// Packets of no known session, and bytes that are not packets.
    pub unknown_session: u64,
    /// Packets that were not made with the key.
    pub forged: u64,
    /// Packets that had already arrived.
    pub replayed: u64,
    /// Datagrams that had already arrived.
    pub duplicate: u64,
    /// Datagrams that their sender had already given up.
    pub late: u64,
    /// Packets for which there was no room. The sender resends them.
    pub no_room: u64,
    /// Authentic packets that cannot be decoded.
    pub malformed: u64,
    /// Hellos beyond the rates at which they are read or answered.
    pub hellos_refused: u64,
    /// Hellos that were asked to come back with a cookie.
    pub hello_cookies: u64,
}

/// The sender of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The name of the sender's key.
    pub name: String,
    /// The sender's names for its host and for its listener.
    pub host: String,
    pub listener: String,
}

struct Session {
    /// The session number in packets that arrive.
    index: u32,
    /// The session number in packets to the other end.
    far_index: u32,
    run: [u8; 16],
    address: SocketAddr,
    sealer: Sealer,
    opener: Opener,
    arrivals: Arrivals,
    /// Number of the next packet to the sender.
    next_packet: u64,
    welcomed_ns: u64,
    heard_ns: u64,
    /// Whether a packet has arrived in this session. Only then does it replace the session before it.
    is_used: bool,
    /// When its entry in [`Far::due`] is due.
    due_ns: Option<u64>,
}

struct Run {
    /// The run's number in records.
    number: u32,
    peer: Arc<Peer>,
    key: KeyId,
    receiver: Receiver,
    /// When its entry in [`Far::holds`] is due.
    hold_due_ns: Option<u64>,
    /// When its newest hello was sent, by the sender's clock.
    said_unix_ns: u64,
    session: Option<u32>,
    heard_ns: u64,
}

/// Result of processing a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Nothing to send now.
    Nothing,
    /// `out` holds an answer for the address that the packet came from.
    Answer,
}

/// The receiving end of a listener.
pub struct Far {
    keys: Keys,
    options: ReceiverOptions,
    epoch: u64,
    sessions: Vec<Option<Box<Session>>>,
    /// Free places in the table.
    free: Vec<u32>,
    runs: HashMap<[u8; 16], Run>,
    /// When sessions have something to report, earliest on top. An entry counts only if its session is still due at that time.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    bitmap: Vec<u8>,
    /// The same for runs, when a datagram has waited long enough for others.
    holds: BinaryHeap<Reverse<(u64, [u8; 16])>>,
    next_run: u32,
    /// What outlives the process.
    memory: Option<Box<dyn Memory>>,
    record: Vec<u8>,
    counts: FarCounts,
    hellos: Hellos,
    swept_ns: u64,
}

/// Callback that receives accepted datagrams along with their sender.
pub type PeerIntake<'a> = dyn FnMut(&Peer, Accepted<'_>) + 'a;

impl Far {
    /// A receiving end that knows no sender yet.
    pub fn new(keys: Keys, options: ReceiverOptions, now_ns: u64) -> Far {
        Far {
            keys,
            options,
            epoch: u64::from_le_bytes(random_bytes()),
            sessions: Vec::new(),
            free: Vec::new(),
            runs: HashMap::new(),
            due: BinaryHeap::new(),
            bitmap: Vec::with_capacity(BITMAP_BYTES_MAX),
            holds: BinaryHeap::new(),
            next_run: 0,
            memory: None,
            record: Vec::new(),
            counts: FarCounts::default(),
            hellos: Hellos::new(),
            swept_ns: now_ns,
        }
    }

    /// Continues from what an earlier process recorded, and records what happens from here on. Forgets runs whose key is no
    /// longer known. Returns false if nothing could be read: a new life begins.
    pub fn remember(&mut self, now_ns: u64, noted: &[u8], memory: Box<dyn Memory>) -> bool {
        let is_remembered = self.recall(now_ns, noted).is_some();
        self.memory = Some(memory);
        self.note_all();
        is_remembered
    }

    fn recall(&mut self, now_ns: u64, mut noted: &[u8]) -> Option<()> {
        let Record::Life(life) = Record::decode(&mut noted)? else { return None };
        let mut runs: HashMap<u32, ([u8; 16], Run)> = HashMap::new();
        while let Some(record) = Record::decode(&mut noted) {
            match record {
                Record::Life(_) => return None,
                Record::Run(kept) => {
                    let Some(key) = self.keys.by_id(KeyId(kept.key)) else { continue };
                    let KeptRun { floor, accepted, slots, .. } = kept;
                    let (name, host) = (key.name.clone(), kept.host.to_owned());
                    let run = Run {
                        number: kept.number,
                        peer: Arc::new(Peer { name, host, listener: kept.listener.to_owned() }),
                        key: KeyId(kept.key),
                        receiver: Receiver::from_kept(self.options, floor, accepted, slots),
                        hold_due_ns: None,
                        said_unix_ns: kept.said_unix_ns,
                        session: None,
                        heard_ns: now_ns,
                    };
                    self.next_run = self.next_run.max(kept.number.saturating_add(1));
                    runs.insert(kept.number, (kept.id, run));
                }
                Record::Said { run, unix_ns } => {
                    if let Some((_, run)) = runs.get_mut(&run) {
                        run.said_unix_ns = unix_ns;
                    }
                }
                Record::Accepted { run, floor, last, parts, bytes } => {
                    if let Some((_, run)) = runs.get_mut(&run) {
                        run.receiver.accept_again(floor, last, parts, bytes);
                    }
                }
            }
        }
        self.epoch = life;
        self.runs = runs.into_values().collect();
        Some(())
    }

    /// Replaces everything recorded with the current state.
    fn note_all(&mut self) {
        let Some(memory) = &mut self.memory else { return };
        let mut records = Vec::new();
        Record::Life(self.epoch).encode(&mut records);
        for (id, run) in &self.runs {
            run.encode(*id, &mut records);
        }
        memory.begin_anew(&records);
    }

    pub fn counts(&self) -> FarCounts {
        self.counts
    }

    /// Number of sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.iter().flatten().count()
    }

    /// Everything accepted, over all runs.
    pub fn accepted(&self) -> Amount {
        let mut all = Amount::default();
        self.runs.values().for_each(|run| all += run.receiver.accepted());
        all
    }

    /// Number of known runs.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Every known run with its sender and with what was accepted from it in this life.
    pub fn runs(&self) -> impl Iterator<Item = ([u8; 16], &Arc<Peer>, Amount)> {
        self.runs.iter().map(|(id, run)| (*id, &run.peer, run.receiver.accepted()))
    }

    /// The random number of this life.
    pub fn life(&self) -> u64 {
        self.epoch
    }

    /// Processes a packet, opening it in place. `unix_ns` is the time since 1970.
    pub fn on_packet(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        packet: &mut [u8],
        intake: &mut PeerIntake<'_>,
        out: &mut Vec<u8>,
    ) -> Heard {
        if self.memory.as_ref().is_some_and(|memory| memory.is_full()) {
            self.note_all();
        }
        match Header::decode(packet) {
            Ok(header) if matches!(header.kind, Kind::Hello | Kind::HelloWithCookie) => {
                return self.on_hello(now_ns, from, &header, packet, out);
            }
            Ok(header) if matches!(header.kind, Kind::Data | Kind::Floor) => {
                self.on_sealed(now_ns, from, &header, packet, intake);
            }
            Ok(_) | Err(_) => self.counts.unknown_session += 1,
        }
        Heard::Nothing
    }

    fn on_sealed(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        header: &Header,
        packet: &mut [u8],
        intake: &mut PeerIntake<'_>,
    ) {
        let Far { sessions, free, runs, counts, due, holds, memory, record, .. } = self;
        let Some(session) = session_in(sessions, header.session) else {
            counts.unknown_session += 1;
            return;
        };
        if !session.arrivals.is_new(header.number) {
            counts.replayed += 1;
            return;
        }
        let bytes = packet.len();
        let Ok(opened) = session.opener.open(header.epoch, header.number, packet) else {
            counts.forged += 1;
            return;
        };
        let Some(run) = runs.get_mut(&session.run) else {
            counts.unknown_session += 1;
            return;
        };
        counts.packets += 1;

        let notes = (memory, record);
        let taken = take_in(now_ns, header.kind, opened, run, notes, counts, intake);
        run.fall_due(session.run, holds);
        let Some(asks) = taken else { return };

        if !session.is_used {
            // The first packet answers the welcome, so it shows the round-trip time.
            let interval_ns = now_ns.saturating_sub(session.welcomed_ns) / 8;
            session.arrivals = Arrivals::new(interval_ns, now_ns);
        }
        session.arrivals.note(header.number, bytes, asks, now_ns);
        // Reports go to the address that the newest authentic packet came from.
        (session.heard_ns, session.address, run.heard_ns) = (now_ns, from, now_ns);
        let index = session.index;
        session.fall_due(due);
        if !std::mem::replace(&mut session.is_used, true)
            && let Some(former) = run.session.replace(index).filter(|former| *former != index)
            && session_in(sessions, former).is_some()
        {
            sessions[place(former)] = None;
            free.push(place(former) as u32);
        }
    }

    /// Passes on datagrams that have waited for others as long as they may.
    pub fn release(&mut self, now_ns: u64, intake: &mut PeerIntake<'_>) {
        while let Some(&Reverse((due_ns, id))) = self.holds.peek()
            && due_ns <= now_ns
        {
            self.holds.pop();
            let run = self.runs.get_mut(&id).filter(|run| run.hold_due_ns == Some(due_ns));
            if let Some(run) = run {
                run.hold_due_ns = None;
                let Run { peer, receiver, .. } = run;
                receiver.release(now_ns, &mut |accepted| intake(peer, accepted));
                run.fall_due(id, &mut self.holds);
            }
        }
    }

    /// Appends a report that is due to `out` and returns its destination. `None` when none is due.
    pub fn next_report(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Option<SocketAddr> {
        let Far { sessions, runs, counts, due, bitmap, .. } = self;
        while let Some(&Reverse((due_ns, index))) = due.peek()
            && due_ns <= now_ns
        {
            due.pop();
            let session = session_in(sessions, index).filter(|of| of.due_ns == Some(due_ns));
            let Some(session) = session else { continue };
            session.due_ns = None;
            let run = runs.get(&session.run);
            let report = run.and_then(|run| session.arrivals.report(now_ns, &run.receiver, bitmap));
            if let Some(report) = &report {
                counts.reports += 1;
                let number = session.next_packet;
                session.next_packet += 1;
                seal(&mut session.sealer, session.far_index, number, report, out);
            }
            session.fall_due(due);
            if report.is_some() {
                return Some(session.address);
            }
        }
        None
    }

    /// Earliest time at which a report may be due or something may have to be [released](Self::release). `None` when there is
    /// neither.
    pub fn due_ns(&self) -> Option<u64> {
        let report = self.due.peek().map(|Reverse((due_ns, _))| *due_ns);
        let hold = self.holds.peek().map(|Reverse((due_ns, _))| *due_ns);
        report.into_iter().chain(hold).min()
    }
}

impl Session {
    /// Schedules the session's next report if it is due earlier than the one already scheduled.
    fn fall_due(&mut self, due: &mut BinaryHeap<Reverse<(u64, u32)>>) {
        if let Some(due_ns) = self.arrivals.due_ns()
            && self.due_ns.is_none_or(|noted| due_ns < noted)
        {
            self.due_ns = Some(due_ns);
            due.push(Reverse((due_ns, self.index)));
        }
    }
}

impl Run {
    /// Schedules the run's next release if it is due earlier than the one already scheduled.
    fn fall_due(&mut self, id: [u8; 16], holds: &mut BinaryHeap<Reverse<(u64, [u8; 16])>>) {
        if let Some(due_ns) = self.receiver.hold_due_ns()
            && self.hold_due_ns.is_none_or(|noted| due_ns < noted)
        {
            self.hold_due_ns = Some(due_ns);
            holds.push(Reverse((due_ns, id)));
        }
    }

    /// Appends a record of the run's whole state to `out`.
    fn encode(&self, id: [u8; 16], out: &mut Vec<u8>) {
        let Totals { floor, accepted } = self.receiver.totals();
        let kept = KeptRun {
            number: self.number,
            id,
            key: self.key.0,
            said_unix_ns: self.said_unix_ns,
            floor,
            accepted,
            host: &self.peer.host,
            listener: &self.peer.listener,
            slots: &self.receiver.kept_slots(),
        };
        Record::Run(kept).encode(out);
    }
}

/// Processes the content of an authentic packet. Returns whether it asks for a report at once; `None` when it counts as not
/// arrived.
fn take_in(
    now_ns: u64,
    kind: Kind,
    opened: &[u8],
    run: &mut Run,
    (memory, record): (&mut Option<Box<dyn Memory>>, &mut Vec<u8>),
    counts: &mut FarCounts,
    intake: &mut PeerIntake<'_>,
) -> Option<bool> {
    if kind == Kind::Floor {
        let floor = Floor::decode(opened).ok();
        counts.malformed += u64::from(floor.is_none());
        run.receiver.adopt(floor?.floor);
        let Run { peer, receiver, .. } = run;
        receiver.release(now_ns, &mut |accepted| intake(peer, accepted));
        return Some(true);
    }
    let Ok((head, datagram)) = DataHead::decode(opened) else {
        counts.malformed += 1;
        return None;
    };
    let (number, peer) = (run.number, &run.peer);
    let mut noted = |accepted: Accepted<'_>| {
        if let Some(memory) = memory {
            // Recorded before the datagram is passed on: a crash may lose it, but never duplicates it.
            let Accepted { sequence: last, parts, floor, bytes, .. } = accepted;
            let bytes = bytes.len() as u16;
            let one = Record::Accepted { run: number, floor, last, parts, bytes };
            note(memory.as_mut(), record, &one);
        }
    };
    let outcome = run.receiver.on_data(now_ns, &head, datagram, &mut noted, &mut |accepted| {
        intake(peer, accepted);
    });
    match outcome {
        Outcome::New => {}
        Outcome::Duplicate => counts.duplicate += 1,
        Outcome::Late => counts.late += 1,
        Outcome::NoRoom => {
            // The sender resends it under another packet number.
            counts.no_room += 1;
            return None;
        }
    }
    Some(head.asks)
}

fn note(memory: &mut dyn Memory, buffer: &mut Vec<u8>, record: &Record<'_>) {
    buffer.clear();
    record.encode(buffer);
    memory.note(buffer);
}

fn place(index: u32) -> usize {
    (index & ((1 << PLACE_BITS) - 1)) as usize
}

fn session_in(sessions: &mut [Option<Box<Session>>], index: u32) -> Option<&mut Session> {
    let session = sessions.get_mut(place(index))?.as_deref_mut()?;
    (session.index == index).then_some(session)
}

fn seal(sealer: &mut Sealer, session: u32, number: u64, report: &Report<'_>, out: &mut Vec<u8>) {
    let begin = out.len();
    let epoch = sealer.epoch(number);
    out.extend_from_slice(&Header { kind: Kind::Report, epoch, session, number }.encode());
    report.encode(out);
    sealer.seal(out, begin, number);
}
