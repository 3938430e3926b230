//! The sending end with its session: seals what leaves, and opens, checks and passes on what arrives.

use crate::handshake::{Hello, Initiator};
use crate::kept::KeptSender;
use crate::key::Key;
use crate::packet::{
    COOKIE_BYTES, DataHead, Floor, HEADER_BYTES, Header, Kind, Origin, PACKET_BYTES_MIN, Part,
    Report, TAG_BYTES,
};
use crate::replay::ReplayWindow;
use crate::seal::{Opener, Sealer};
use crate::sender::{Fates, Next, Sender, SenderOptions, Taken, Transmission, Way};
use crate::{Amount, random_bytes, random_u32};

/// Shortest and longest pause between two unanswered hellos, in nanoseconds. RFC 8085 section 3.1.1 allows the longest on a path
/// that nothing is known about.
const HELLO_PAUSE_MIN_NS: u64 = 250_000_000;
const HELLO_PAUSE_MAX_NS: u64 = 3_000_000_000;

/// Maximum lifetime of a key, in nanoseconds.
const REKEY_NS: u64 = 3_600_000_000_000;

/// Who sends, as the other end sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The name of this host.
    pub host: String,
    /// The listener whose datagrams are forwarded.
    pub listener: String,
}

/// State of an authenticated session.
struct Session {
    /// The session number in packet headers.
    index: u32,
    sealer: Sealer,
    opener: Opener,
    replay: ReplayWindow,
    /// When the next key is due.
    rekey_ns: u64,
}

/// Counts of handshake and report packets, and of packets that were rejected.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NearCounts {
    pub hellos: u64,
    pub sessions: u64,
    pub reports: u64,
    /// Packets that are not authentic or do not belong to this protocol.
    pub forged: u64,
    /// Packets that had already arrived.
    pub replayed: u64,
    /// Sessions with a receiver that had lost its memory.
    pub lost_memories: u64,
}

/// The sending end of one target.
pub struct Near {
    key: Key,
    identity: Identity,
    run: [u8; 16],
    sender: Sender,
    session: Option<Session>,
    /// The last hello sent, and when the next one is allowed.
    asked: Option<Initiator>,
    hello_due_ns: u64,
    hello_pause_ns: u64,
    /// The cookie for the next hello.
    cookie: Option<[u8; COOKIE_BYTES]>,
    /// The receiver's life, as of its last welcome.
    epoch: Option<u64>,
    is_ended: bool,
    counts: NearCounts,
}

impl Near {
    /// A sending end that has not sent a hello yet.
    pub fn new(key: Key, identity: Identity, options: SenderOptions, now_ns: u64) -> Near {
        Near {
            key,
            identity,
            run: random_bytes(),
            sender: Sender::new(options, 0, now_ns),
            session: None,
            asked: None,
            hello_due_ns: now_ns,
            hello_pause_ns: HELLO_PAUSE_MIN_NS,
            cookie: None,
            epoch: None,
            is_ended: false,
            counts: NearCounts::default(),
        }
    }

    /// A sending end that continues the run of an earlier process.
    pub fn resume(
        key: Key,
        identity: Identity,
        options: SenderOptions,
        kept: &KeptSender,
        now_ns: u64,
    ) -> Near {
        Near {
            run: kept.run,
            sender: Sender::resume(options, kept, now_ns),
            epoch: (kept.life != 0).then_some(kept.life),
            ..Near::new(key, identity, options, now_ns)
        }
    }

    /// The state to persist before anything more is sent.
    pub fn keep(&self) -> KeptSender {
        self.sender.keep(self.run, self.epoch.unwrap_or(0))
    }

    /// What became of all datagrams that earlier processes took in the same run, as far as it is known.
    pub fn earlier(&self) -> Fates {
        self.sender.earlier()
    }

    /// What became of all datagrams taken.
    pub fn fates(&self) -> Fates {
        self.sender.fates()
    }

    /// What the sender knows about its path.
    pub fn way(&self) -> Way {
        self.sender.way()
    }

    /// The run and the receiver's life. `None` when no receiver has answered, or after [`end`](Self::end).
    pub fn peer(&self) -> Option<([u8; 16], u64)> {
        Some((self.run, self.epoch.filter(|_| self.counts.sessions > 0 && !self.is_ended)?))
    }

    /// As [`Sender::delivered_before`].
    pub fn delivered_before(&self) -> Amount {
        self.sender.delivered_before()
    }

    /// As [`Sender::accepted_earlier`].
    pub fn accepted_earlier(&self) -> Amount {
        self.sender.accepted_earlier()
    }

    pub fn counts(&self) -> NearCounts {
        self.counts
    }

    /// Whether the other end answers: there is a session, and it is not silent.
    pub fn is_answered(&self, now_ns: u64) -> bool {
        self.session.is_some() && !self.sender.is_unanswered(now_ns)
    }

    /// As [`Sender::has_room`]; false without a session.
    pub fn has_room(&mut self, now_ns: u64, bytes: u16) -> bool {
        self.is_answered(now_ns) && self.sender.has_room(now_ns, bytes)
    }

    /// As [`Sender::take`].
    pub fn take(&mut self, now_ns: u64, taken: Taken) {
        self.sender.take(now_ns, taken);
    }

    /// As [`Sender::keeps_from`].
    pub fn keeps_from(&self) -> Option<u64> {
        self.sender.keeps_from()
    }

    /// As [`Sender::give_up_below`].
    pub fn give_up_below(&mut self, number: u64) {
        self.sender.give_up_below(number);
    }

    /// As [`Sender::open_below`], for all datagrams.
    pub fn open(&self) -> u64 {
        self.sender.open_below(u64::MAX)
    }

    /// As [`Sender::is_at_rest`].
    pub fn is_at_rest(&self) -> bool {
        self.sender.is_at_rest()
    }

    /// As [`Sender::begin_drain`].
    pub fn begin_drain(&mut self) {
        self.sender.begin_drain();
    }

    /// As [`Sender::end`].
    pub fn end(&mut self) {
        self.is_ended = true;
        self.sender.end();
    }

    /// What to do next. A hello that is due comes before everything else: see [`hello`](Self::hello).
    pub fn next(&mut self, now_ns: u64) -> Next {
        if self.is_answered(now_ns) {
            return self.sender.next(now_ns);
        }
        // Datagrams expire even when the other end does not answer.
        let until_ns = match self.sender.next(now_ns) {
            Next::Wait { until_ns } => until_ns,
            Next::Data(_) | Next::Floor { .. } => now_ns,
        };
        Next::Wait { until_ns: until_ns.min(self.hello_due_ns).max(now_ns + 1_000_000) }
    }

    /// Appends a hello to `out` if one is due. `unix_ns` is the time since 1970.
    pub fn hello(&mut self, now_ns: u64, unix_ns: u64, out: &mut Vec<u8>) -> bool {
        if self.is_answered(now_ns) || now_ns < self.hello_due_ns {
            return false;
        }
        self.hello_due_ns = now_ns + self.hello_pause_ns;
        self.hello_pause_ns = (self.hello_pause_ns * 2).min(HELLO_PAUSE_MAX_NS);
        if self.session.is_some() {
            // The receiver was heard before: a dead path gets no more than one packet every three seconds.
            self.hello_due_ns = now_ns + HELLO_PAUSE_MAX_NS;
        }

        let hello = Hello {
            run: self.run,
            unix_ns,
            session: random_u32(),
            // After a restart this is where the earlier process stopped: the receiver accepts nothing more of what that one sent.
            floor: self.sender.confirmed(),
            host: self.identity.host.clone(),
            listener: self.identity.listener.clone(),
        };
        self.counts.hellos += 1;
        self.asked = Initiator::begin(&self.key, &hello, self.cookie.as_ref(), out).ok();
        self.asked.is_some()
    }

    /// Processes a packet that arrived, opening it in place.
    pub fn on_packet(&mut self, now_ns: u64, packet: &mut [u8]) {
        let is_understood = match Header::decode(packet) {
            Ok(header) if header.kind == Kind::Welcome => self.on_welcome(now_ns, packet),
            Ok(header) if header.kind == Kind::Report => self.on_report(now_ns, &header, packet),
            Ok(header) if header.kind == Kind::Cookie => self.on_cookie(now_ns, packet),
            Ok(_) | Err(_) => None,
        };
        if is_understood.is_none() {
            self.counts.forged += 1;
        }
    }

    fn on_cookie(&mut self, now_ns: u64, packet: &[u8]) -> Option<()> {
        let asked = self.asked.as_ref()?;
        self.cookie = Some(asked.read_cookie(&self.key, packet).ok()?);
        if !asked.has_cookie {
            // At once. If the hello already carried a cookie, the next one waits as usual, so that two ends that disagree do not
            // loop.
            self.hello_due_ns = now_ns;
        }
        Some(())
    }

    fn on_welcome(&mut self, now_ns: u64, packet: &[u8]) -> Option<()> {
        let (welcome, secrets) = self.asked.as_mut()?.finish(packet).ok()?;
        (self.asked, self.cookie) = (None, None);
        self.hello_pause_ns = HELLO_PAUSE_MIN_NS;
        self.session = Some(Session {
            index: welcome.session,
            sealer: Sealer::new(secrets.send),
            opener: Opener::new(secrets.receive),
            replay: ReplayWindow::default(),
            rekey_ns: now_ns + REKEY_NS,
        });
        self.counts.sessions += 1;

        // A new life of the receiver knows only what an earlier hello of this session told it, whose answer was lost.
        let before = self.epoch.replace(welcome.epoch);
        let is_same_life = before.is_none_or(|before| before == welcome.epoch);
        let known = welcome.known.filter(|_| is_same_life);
        if known.is_none() && before.is_some() {
            self.counts.lost_memories += 1;
        }
        if known.is_some_and(|known| known.floor > self.sender.next_sequence()) {
            // The persisted state is older than what was sent. If this run continued, new datagrams would be taken for settled
            // ones.
            (self.run, self.session, self.hello_due_ns) = (random_bytes(), None, now_ns);
        }
        self.sender.begin_session(now_ns, known);
        Some(())
    }

    fn on_report(&mut self, now_ns: u64, header: &Header, packet: &mut [u8]) -> Option<()> {
        let session = self.session.as_mut()?;
        if !session.replay.is_new(header.number) {
            self.counts.replayed += 1;
            return Some(());
        }
        let opened = session.opener.open(header.epoch, header.number, packet).ok()?;
        session.replay.note(header.number);
        let report = Report::decode(opened).ok()?;
        self.counts.reports += 1;
        self.sender.on_report(now_ns, &report);
        Some(())
    }

    /// Appends the packet of a transmission to `out`. `part` holds the bytes that it names, of a datagram with this origin.
    pub fn seal_data(
        &mut self,
        now_ns: u64,
        one: &Transmission,
        origin: Origin,
        part: &[u8],
        out: &mut Vec<u8>,
    ) {
        let head = DataHead {
            sequence_low: one.sequence as u32,
            beyond_floor: u32::try_from(one.sequence - one.floor).unwrap_or(u32::MAX),
            part: one.part,
            asks: one.asks,
            may_be_second: one.may_be_second,
            origin: one.part.begins().then_some(origin),
        };
        let bytes_min = if one.part == Part::Only { PACKET_BYTES_MIN } else { 0 };
        self.seal(now_ns, (Kind::Data, bytes_min), one.packet, out, |out| {
            head.encode(out);
            out.extend_from_slice(part);
        });
    }

    /// Appends a packet that carries only the floor to `out`.
    pub fn seal_floor(&mut self, now_ns: u64, packet: u64, floor: u64, out: &mut Vec<u8>) {
        let kind = (Kind::Floor, PACKET_BYTES_MIN);
        self.seal(now_ns, kind, packet, out, |out| Floor { floor }.encode(out));
    }

    fn seal(
        &mut self,
        now_ns: u64,
        (kind, bytes_min): (Kind, usize),
        number: u64,
        out: &mut Vec<u8>,
        inside: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(session) = &mut self.session else { return };
        if now_ns >= session.rekey_ns {
            session.sealer.rekey(number);
            session.rekey_ns = now_ns + REKEY_NS;
        }
        let begin = out.len();
        let epoch = session.sealer.epoch(number);
        let header = Header { kind, epoch, session: session.index, number };
        out.reserve(HEADER_BYTES);
        out.extend_from_slice(&header.encode());
        inside(out);
        out.resize(out.len().max(begin + bytes_min - TAG_BYTES.min(bytes_min)), 0);
        session.sealer.seal(out, begin, number);
    }

    /// Seals any content as a packet of this session, for fuzzing.
    #[cfg(fuzzing)]
    pub fn hostile(&mut self, (kind, number): (Kind, u64), inside: &[u8], out: &mut Vec<u8>) {
        self.seal(0, (kind, 0), number, out, |out| out.extend_from_slice(inside));
    }
}
