//! The receiving end: the sessions of many senders, and what each has sent.

#[cfg(test)]
mod crowd;
mod hellos;
mod memory;
mod runs;
mod shares;

use crate::kept::{Memory, Record};
use crate::key::{KeyId, Keys};
use crate::packet::{BITMAP_BYTES_MAX, DataHead, Floor, Header, Kind, Report};
use crate::receiver::{Accepted, Arrivals, Outcome, Receiver, ReceiverOptions, Room};
use crate::seal::{Opener, Sealer};
use crate::{Amount, random_bytes};
use hellos::{Hellos, KeyHellos};
use runs::Standing;
pub use runs::{kept_bytes_max, tables_bytes_max};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

/// Low bits of a session's index: its place in the table. The other bits are random, so that a stranger's packet is rejected
/// before anything is computed.
const PLACE_BITS: u32 = 16;

/// Number of places in the table of sessions.
const PLACES: usize = 1 << PLACE_BITS;

/// The time of a packet: on the monotonic clock, and since 1970. Both in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    pub now_ns: u64,
    pub unix_ns: u64,
}

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
    /// Packets that had already arrived, and hellos that had.
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
    /// Hellos that were asked to come back with a cookie: they came too fast, or may be recordings.
    pub hello_cookies: u64,
}

/// The sender of a run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
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
    key: KeyId,
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
    /// The greatest time of its hellos, by the sender's clock. Never goes back.
    said_unix_ns: u64,
    /// The time of the last cookie that was taken; 0 when none was.
    cookie_time: u64,
    /// Whether the same sender began a newer run.
    is_superseded: bool,
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
    /// What is remembered of each sender besides its runs.
    peers: HashMap<Arc<Peer>, Standing>,
    /// Number of senders in `peers` that have no run.
    past_count: usize,
    room: Room,
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
    /// What hellos of each key must be newer than.
    of_keys: HashMap<KeyId, KeyHellos>,
    /// The same for keys that were not heard yet.
    since_unix_ns: u64,
    swept_ns: u64,
}

/// Callback that receives accepted datagrams along with their sender.
pub type PeerIntake<'a> = dyn FnMut(&Peer, Accepted<'_>) + 'a;

impl Far {
    /// A receiving end that knows no sender yet.
    pub fn new(keys: Keys, options: ReceiverOptions, moment: Moment) -> Far {
        let Moment { now_ns, unix_ns } = moment;
        Far {
            keys,
            options,
            epoch: u64::from_le_bytes(random_bytes()),
            sessions: Vec::new(),
            free: Vec::new(),
            runs: HashMap::new(),
            peers: HashMap::new(),
            past_count: 0,
            room: Room::new(options.room_bytes),
            due: BinaryHeap::new(),
            bitmap: Vec::with_capacity(BITMAP_BYTES_MAX),
            holds: BinaryHeap::new(),
            next_run: 0,
            memory: None,
            record: Vec::new(),
            counts: FarCounts::default(),
            hellos: Hellos::new(now_ns),
            of_keys: HashMap::new(),
            since_unix_ns: hellos::since(unix_ns),
            swept_ns: now_ns,
        }
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
        self.runs().for_each(|(_, _, accepted)| all += accepted);
        all
    }

    /// Number of known runs.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Bytes of memory for sequence numbers, incomplete datagrams and those that wait.
    pub fn room_used(&self) -> usize {
        self.room.used()
    }

    /// Every known run with its sender and with what was accepted from it in this life. Then, as run 0, the sum of each sender's
    /// forgotten runs; one without host and listener is of all other senders that have the key.
    pub fn runs(&self) -> impl Iterator<Item = ([u8; 16], &Arc<Peer>, Amount)> {
        let runs = self.runs.iter().map(|(id, run)| (*id, &run.peer, run.receiver.accepted()));
        let past = self.peers.iter().filter(|(_, standing)| standing.past != Amount::default());
        runs.chain(past.map(|(peer, standing)| ([0; 16], peer, standing.past)))
    }

    /// The random number of this life.
    pub fn life(&self) -> u64 {
        self.epoch
    }

    /// Processes a packet, opening it in place.
    pub fn on_packet(
        &mut self,
        moment: Moment,
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
                return self.on_hello(moment, from, (&header, packet), intake, out);
            }
            Ok(header) if matches!(header.kind, Kind::Data | Kind::Floor) => {
                self.on_sealed(moment.now_ns, from, &header, packet, intake);
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
        let Far { sessions, free, runs, room, counts, due, holds, memory, record, .. } = self;
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
        let run = runs.get_mut(&session.run).filter(|run| run.key == session.key);
        let Some(run) = run else {
            counts.unknown_session += 1;
            return;
        };
        counts.packets += 1;

        let notes = (memory, record);
        let taken = take_in(now_ns, (header.kind, opened), (run, room), notes, counts, intake);
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

    /// Passes on datagrams that have waited for others as long as they may, and forgets what was silent for too long.
    pub fn release(&mut self, now_ns: u64, intake: &mut PeerIntake<'_>) {
        self.sweep(now_ns, intake);
        while let Some(&Reverse((due_ns, id))) = self.holds.peek()
            && due_ns <= now_ns
        {
            self.holds.pop();
            let run = self.runs.get_mut(&id).filter(|run| run.hold_due_ns == Some(due_ns));
            if let Some(run) = run {
                run.hold_due_ns = None;
                let Run { peer, receiver, .. } = run;
                receiver.release(now_ns, &mut self.room, &mut |accepted| intake(peer, accepted));
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

    /// Seals any content as a report of a session with this address, for fuzzing. False when there is none.
    #[cfg(fuzzing)]
    pub fn hostile(&mut self, to: SocketAddr, inside: &[u8], out: &mut Vec<u8>) -> bool {
        let mut sessions = self.sessions.iter_mut().flatten();
        let Some(session) = sessions.find(|session| session.address == to) else { return false };
        let number = session.next_packet;
        session.next_packet += 1;
        let (begin, epoch) = (out.len(), session.sealer.epoch(number));
        let header = Header { kind: Kind::Report, epoch, session: session.far_index, number };
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(inside);
        session.sealer.seal(out, begin, number);
        true
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
}

/// Processes the content of an authentic packet. Returns whether it asks for a report at once; `None` when it counts as not
/// arrived.
fn take_in(
    now_ns: u64,
    (kind, opened): (Kind, &[u8]),
    (run, room): (&mut Run, &mut Room),
    (memory, record): (&mut Option<Box<dyn Memory>>, &mut Vec<u8>),
    counts: &mut FarCounts,
    intake: &mut PeerIntake<'_>,
) -> Option<bool> {
    if kind == Kind::Floor {
        let floor = Floor::decode(opened).ok();
        counts.malformed += u64::from(floor.is_none());
        run.receiver.adopt(floor?.floor, room);
        let Run { peer, receiver, .. } = run;
        receiver.release(now_ns, room, &mut |accepted| intake(peer, accepted));
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
    let data = (&head, datagram);
    let outcome = run.receiver.on_data(now_ns, data, room, &mut noted, &mut |accepted| {
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
