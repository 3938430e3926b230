//! A listener that other Weirs send to: packets in, datagrams to the ring, reports back.

use super::kept::ReceiverFile;
use super::target::source_of;
use super::{LinkListenOptions, STATE_PATIENCE, STATE_PAUSE};
use crate::intake::Intake;
use crate::meter::{IN_HAND_MAX, LinkPeer, PeerKind};
use crate::pump::Targets;
use crate::ring::Times;
use crate::socket::ListenSocket;
use hop::{Accepted, Far, FarCounts, Heard, Moment, Peer};
use ledger::{Amount, Event, Gauge};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::clock::{Clock, Now, monotonic_ns};
use sys::recv::{Aggregates, Ask, BATCH, Payload, ReceiveBatch, Sources, Stamps, Wait};
use sys::send::send_to;
use sys::socket::{LocalAddress, leave_port, local_address};

/// Time between two updates of the link's figures, in nanoseconds.
const SHOW_NS: u64 = 100_000_000;

/// Every this many runs add one more such interval.
const RUNS_SHOWN: u64 = 1_000;

/// The socket of a link listener, and the state of its senders.
pub(crate) struct LinkInlet {
    pub(crate) socket: Arc<ListenSocket>,
    far: Far,
    /// State file that another process still holds, and how long to wait for it.
    awaited: Option<(PathBuf, u64)>,
    is_kept: Arc<AtomicBool>,
    batch: ReceiveBatch,
    clock: Clock,
    is_v6: bool,
    aggregates: Aggregates,
    packet: Vec<u8>,
    answer: Vec<u8>,
    shown_ns: u64,
    shown: FarCounts,
}

impl LinkInlet {
    pub(crate) fn new(socket: Arc<ListenSocket>, options: LinkListenOptions) -> LinkInlet {
        let mut clock = Clock::default();
        let now = clock.now();
        let local = local_address(socket.as_fd());
        let is_v6 = matches!(local, Some(LocalAddress::Inet(SocketAddr::V6(_))));
        // Packet numbers reveal what the kernel drops here, so nothing depends on the kernel's drop count.
        let aggregates = match sys::gro::aggregate(socket.as_fd()) {
            Ok(()) => Aggregates::Some,
            Err(_) => Aggregates::Never,
        };
        LinkInlet {
            socket,
            far: Far::new(options.keys, options.receiver, moment(now)),
            awaited: options
                .state
                .map(|path| (path, now.monotonic_ns + STATE_PATIENCE.as_nanos() as u64)),
            is_kept: Arc::default(),
            batch: ReceiveBatch::default(),
            clock,
            is_v6,
            aggregates,
            packet: Vec::new(),
            answer: Vec::new(),
            shown_ns: 0,
            shown: FarCounts::default(),
        }
    }

    /// Takes one batch from the socket into the ring and answers it. Returns whether there was one, and the time.
    pub(crate) fn receive(&mut self, intake: &mut Intake, targets: &mut Targets) -> (bool, Now) {
        if self.awaited.is_some() && !self.open_state() {
            // Read nothing until the memory of earlier runs is there. What waits in the socket is not lost.
            std::thread::sleep(STATE_PAUSE);
            return (false, self.clock.now());
        }
        let ask = Ask {
            count_max: BATCH,
            sources: Sources::Wanted,
            stamps: Stamps::Unwanted,
            aggregates: self.aggregates,
            room: None,
        };
        let received = self.batch.receive_into(self.socket.as_fd(), Wait::No, ask);
        let now = self.clock.now();
        if received.is_ok() {
            intake.meter.batches.add(1);
            self.take_in(now, intake, targets);
        }
        self.release(now.monotonic_ns, now.monotonic_ns, intake, targets);
        self.report(now.monotonic_ns);
        self.show(intake, now.monotonic_ns);
        (received.is_ok(), now)
    }

    /// Takes over the memory of an earlier process if it is available. Returns whether waiting is over.
    fn open_state(&mut self) -> bool {
        let Some((path, until_ns)) = &self.awaited else { return true };
        let now_ns = monotonic_ns();
        match ReceiverFile::open(path, Arc::clone(&self.is_kept)) {
            Ok((file, noted)) => {
                self.far.remember(now_ns, &noted, Box::new(file));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && now_ns < *until_ns => {
                return false;
            }
            // The figures show the failure. It is no reason to stop receiving.
            Err(_) => {}
        }
        self.awaited = None;
        true
    }

    fn take_in(&mut self, now: Now, intake: &mut Intake, targets: &mut Targets) {
        let LinkInlet { socket, far, batch, is_v6, packet, answer, .. } = self;
        let mut accepted = Amount::default();
        let mut hand_on = |_: &Peer, one: Accepted<'_>| {
            hand_on(one, now.monotonic_ns, intake, &mut accepted, targets)
        };
        for received in batch.segments() {
            let (Payload::Bytes(bytes), Some(from)) = (received.payload, received.source.address())
            else {
                continue;
            };
            packet.clear();
            packet.extend_from_slice(bytes);
            answer.clear();
            let heard = far.on_packet(moment(now), from, packet, &mut hand_on, answer);
            if heard == Heard::Answer {
                // An answer that cannot be sent is like a lost one: the sender asks again.
                let _ = send_to(socket.as_fd(), answer, to(*is_v6, from));
            }
        }
        intake.show(&mut accepted);
    }

    /// Passes on datagrams that have waited for others until `until_ns` or longer.
    fn release(&mut self, until_ns: u64, now_ns: u64, intake: &mut Intake, targets: &mut Targets) {
        let mut accepted = Amount::default();
        self.far
            .release(until_ns, &mut |_, one| hand_on(one, now_ns, intake, &mut accepted, targets));
        if !accepted.is_zero() {
            intake.show(&mut accepted);
        }
    }

    /// Sends the reports that are due.
    fn report(&mut self, now_ns: u64) {
        loop {
            self.answer.clear();
            let Some(address) = self.far.next_report(now_ns, &mut self.answer) else { return };
            // A report that cannot be sent is like a lost one.
            let _ = send_to(self.socket.as_fd(), &self.answer, to(self.is_v6, address));
        }
    }

    /// When the next report or the next update of figures is due, on the monotonic clock.
    pub(crate) fn due_ns(&mut self) -> u64 {
        let has_news = self.far.counts() != self.shown;
        let show_due_ns = if has_news { self.show_due_ns() } else { u64::MAX };
        self.far.due_ns().unwrap_or(u64::MAX).min(show_due_ns)
    }

    fn show(&mut self, intake: &Intake, now_ns: u64) {
        let counts = self.far.counts();
        if now_ns < self.show_due_ns() || counts == self.shown {
            return;
        }
        self.shown_ns = now_ns;
        let events = [
            (Event::Packets, counts.packets),
            (Event::Reports, counts.reports),
            (Event::Sessions, counts.sessions),
            (Event::ForgedPackets, counts.forged + counts.malformed),
            (Event::ReplayedPackets, counts.replayed),
            (Event::StrangePackets, counts.unknown_session),
            (Event::RepeatedDatagrams, counts.duplicate),
            (Event::LateDatagrams, counts.late),
            (Event::PacketsWithoutRoom, counts.no_room),
            (Event::HellosRefused, counts.hellos_refused),
            (Event::HelloCookies, counts.hello_cookies),
        ];
        let gauges = [
            (Gauge::SessionsOpen, self.far.session_count() as u64),
            (Gauge::StateKept, self.is_kept.load(Ordering::Relaxed).into()),
        ];
        intake.meter.link.show(&events, &gauges);
        let life = self.far.life();
        let peers = self.far.runs().map(|(run, peer, accepted)| {
            let accepted = Amount { count: accepted.datagrams, bytes: accepted.bytes };
            let kind = PeerKind::Sender { peer: Arc::clone(peer), accepted };
            LinkPeer { run, life, kind }
        });
        if intake.meter.link.show_peers(peers) {
            self.shown = counts;
        }
    }

    /// When the figures may be updated again: less often with many senders, so that it costs little.
    fn show_due_ns(&self) -> u64 {
        let pause_ns = SHOW_NS * (1 + self.far.run_count() as u64 / RUNS_SHOWN);
        self.shown_ns.saturating_add(pause_ns)
    }

    /// Reads what waits in the socket for the last time, and reports what arrived.
    pub(crate) fn finish(
        &mut self,
        intake: &mut Intake,
        targets: &mut Targets,
        is_late: &dyn Fn() -> bool,
    ) {
        let is_refusing = self.socket.refuse_new_datagrams().is_ok();
        while self.receive(intake, targets).0 {
            if is_late() && !is_refusing {
                break;
            }
        }
        self.release(u64::MAX, monotonic_ns(), intake, targets);
        self.report(u64::MAX / 2);
        self.show(intake, u64::MAX);
        leave_port(self.socket.as_fd());
    }
}

impl AsFd for LinkInlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn moment(now: Now) -> Moment {
    Moment { now_ns: now.monotonic_ns, unix_ns: now.realtime_ns }
}

fn hand_on(
    one: Accepted<'_>,
    now_ns: u64,
    intake: &mut Intake,
    accepted: &mut Amount,
    targets: &mut Targets,
) {
    let source = source_of(one.origin.sender);
    // The origin's time is of another host's clock. The age of a datagram starts again here: how long it took to get here can be
    // measured by neither clock alone.
    let received_unix_ns = one.origin.received_unix_ns;
    let times = Times { received_unix_ns, arrived_ns: now_ns };
    intake.take_one(source, times, one.bytes, accepted, targets);
    // A packet may bring hundreds of small datagrams, and a batch of packets more than a snapshot takes for those in hand.
    if accepted.count >= IN_HAND_MAX - 1 {
        intake.show(accepted);
    }
}

/// The address in the form that a socket of this family uses.
fn to(is_v6: bool, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) if is_v6 => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}
