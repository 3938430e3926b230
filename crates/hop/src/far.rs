//! The receiving end: sessions of many senders, and what each has sent.

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

/// Lower bits of a session's index: its place in the table. The others are random, so that a stranger's packet is refused before
/// anything is computed.
const PLACE_BITS: u32 = 16;

/// Most sessions.
const SESSIONS_MAX: usize = 1 << PLACE_BITS;

/// What arrived and was not accepted, by why.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FarCounts {
    /// Authentic packets.
    pub packets: u64,
    pub reports: u64,
    /// Sessions that began.
    pub sessions: u64,
    /// Packets of no session, or no packets.
    pub unknown_session: u64,
    /// Packets that were not made with the key.
    pub forged: u64,
    /// Packets that had come before.
    pub replayed: u64,
    /// Datagrams that were there already.
    pub duplicate: u64,
    /// Datagrams that their sender had given up.
    pub late: u64,
    /// Packets for which there was no room: they are sent again.
    pub no_room: u64,
    /// Authentic packets that cannot be read.
    pub malformed: u64,
    /// Hellos that came faster than they are looked at or answered.
    pub hellos_refused: u64,
    /// Hellos that are to come again with a cookie.
    pub hello_cookies: u64,
}

/// Who sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The name of its key.
    pub name: String,
    /// What it calls its host, and the listener there.
    pub host: String,
    pub listener: String,
}

struct Session {
    /// What packets to it say.
    index: u32,
    /// What packets of it to the other end say.
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
    /// It has had a packet: only then it takes the place of the one before it.
    is_used: bool,
    /// Its entry among those that are due.
    due_ns: Option<u64>,
}

struct Run {
    /// What records call it.
    number: u32,
    peer: Arc<Peer>,
    key: KeyId,
    receiver: Receiver,
    /// Its entry among the runs of which something stops to wait.
    hold_due_ns: Option<u64>,
    /// When its newest hello was said, by its own clock.
    said_unix_ns: u64,
    session: Option<u32>,
    heard_ns: u64,
}

/// What a packet led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Nothing that the sender is told now.
    Nothing,
    /// `out` has an answer to where the packet came from.
    Answer,
}

/// The receiving end of a listener.
pub struct Far {
    keys: Keys,
    options: ReceiverOptions,
    epoch: u64,
    sessions: Vec<Option<Box<Session>>>,
    /// Places in the table that are free.
    free: Vec<u32>,
    runs: HashMap<[u8; 16], Run>,
    /// When sessions have something to report, the first one on top. An entry counts if its session is due then.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    bitmap: Vec<u8>,
    /// As `due`, of the runs of which datagrams wait for others.
    holds: BinaryHeap<Reverse<(u64, [u8; 16])>>,
    next_run: u32,
    /// What outlives the process.
    memory: Option<Box<dyn Memory>>,
    record: Vec<u8>,
    counts: FarCounts,
    hellos: Hellos,
    swept_ns: u64,
}

/// What accepted datagrams are handed to, with who sent them.
pub type PeerIntake<'a> = dyn FnMut(&Peer, Accepted<'_>) + 'a;

impl Far {
    /// A receiving end that knows nobody yet.
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

    /// Goes on with what a former process has noted, and notes what happens from here on. Runs whose key is not known any more are
    /// forgotten. Returns false if nothing could be read: a new life begins.
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

    /// Writes everything that is known in the place of what was noted.
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

    /// Sessions that there are.
    pub fn session_count(&self) -> usize {
        self.sessions.iter().flatten().count()
    }

    /// Everything that was accepted, of all.
    pub fn accepted(&self) -> Amount {
        let mut all = Amount::default();
        self.runs.values().for_each(|run| all += run.receiver.accepted());
        all
    }

    /// Runs that are known.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Every run that is known, who sends it, and what was accepted of it in this life.
    pub fn runs(&self) -> impl Iterator<Item = ([u8; 16], &Arc<Peer>, Amount)> {
        self.runs.iter().map(|(id, run)| (*id, &run.peer, run.receiver.accepted()))
    }

    /// The random number of this life.
    pub fn life(&self) -> u64 {
        self.epoch
    }

    /// Takes a packet, which is opened in place. `unix_ns`: the time since 1970.
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
            // The first packet says how long the way is: it answers the welcome.
            let interval_ns = now_ns.saturating_sub(session.welcomed_ns) / 8;
            session.arrivals = Arrivals::new(interval_ns, now_ns);
        }
        session.arrivals.note(header.number, bytes, asks, now_ns);
        // Where the newest authentic packet came from is where reports go.
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

    /// Hands on what has waited for others for as long as it may.
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

    /// Appends a report that is due to `out` and returns where it goes; `None`: there is none.
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

    /// When the next report is due or something is to be [released](Self::release), or may be; `None`: there is neither.
    pub fn due_ns(&self) -> Option<u64> {
        let report = self.due.peek().map(|Reverse((due_ns, _))| *due_ns);
        let hold = self.holds.peek().map(|Reverse((due_ns, _))| *due_ns);
        report.into_iter().chain(hold).min()
    }
}

impl Session {
    /// Notes when it has something to report, if that is sooner than was noted.
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
    /// Notes when something of it stops to wait, if that is sooner than was noted.
    fn fall_due(&mut self, id: [u8; 16], holds: &mut BinaryHeap<Reverse<(u64, [u8; 16])>>) {
        if let Some(due_ns) = self.receiver.hold_due_ns()
            && self.hold_due_ns.is_none_or(|noted| due_ns < noted)
        {
            self.hold_due_ns = Some(due_ns);
            holds.push(Reverse((due_ns, id)));
        }
    }

    /// Appends a record of all that is known of it to `out`.
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

/// Takes what an authentic packet says. Whether it asks for a report at once; `None`: it counts as not arrived.
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
            // Before it is handed on: after a crash it may be missing, but it does not come twice.
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
            // It is sent again under another number.
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
