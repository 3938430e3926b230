use super::unsettled::{Before, Unsettled};
use crate::Gso;
use crate::meter::TargetMeter;
use ledger::{Amount, Reason};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::errqueue::{self, Returned};
use sys::route::{Egress, neighbour_has_failed};
use sys::send::{Message, send_messages};
use sys::socket::{LocalAddress, local_address, outstanding_bytes, path_mtu_bytes, remote_address};
use sys::{Errno, Source};

/// After the network gave a datagram back, single datagrams for so long: each ICMP message is then about one of them.
const RUNS_PAUSE_NS: u64 = 1_000_000_000;

/// A path or device that refused runs is tried again after so long: paths recover.
const UNLIMIT_INTERVAL_NS: u64 = 60_000_000_000;

/// Time between two questions to the kernel about a neighbour: they wait for the kernel's tables, with everybody behind.
const ASK_INTERVAL_NS: u64 = 1_000_000_000;

/// Entries of the error queue that are taken at once, so that a flood of ICMP cannot hold the thread.
const RETURNED_MAX: usize = 256;

/// A connected UDP socket.
///
/// # What comes back
/// `send` says that the kernel took a datagram, not that it left. Two things give it back later, through the error queue:
///
/// - "Port unreachable". On this host it comes before `send` returns, one for each message, so that it is about the message
///   that was sent last. From elsewhere it comes for some datagrams only: hosts limit how many they send.
/// - "Host unreachable" from our own stack: the neighbour did not answer for three seconds, and everything that waited
///   for it is gone. The reports are limited to 50 at once (`net.ipv4.icmp_msgs_burst`), and the neighbour's queue
///   drops its oldest without any (`net/core/neighbour.c`, `__neigh_event_send`); so everything is counted that was
///   handed over since the socket last had nothing outstanding ([`Unsettled`]). Measured on 6.18: of 6,846 datagrams
///   sent towards a dead neighbour 129 were reported, and of those to two that failed at the same moment all reports
///   were about one. So where datagrams were kept for long and are gone, the neighbour's state is asked for. And nothing
///   is handed over while it is being looked for: between the moment when all is given up and the moment when that is
///   seen, more would begin to wait for its next chance.
pub(crate) struct UdpOutlet {
    socket: OwnedFd,
    is_local: bool,
    own_address: Option<Source>,
    header_bytes: usize,
    /// Largest datagram that may be part of a run; 0: none.
    run_datagram_bytes_max: usize,
    runs_paused_until_ns: u64,
    handed: Amount,
    given_back: Amount,
    unsettled: Unsettled,
    /// When the neighbour's state may be asked for again.
    ask_neighbour_ns: u64,
    /// The neighbour does not answer: nothing is sent until nothing is outstanding.
    is_held: bool,
    check_held_ns: u64,
    /// When to look again whether longer runs may pass; `None`: they are not limited.
    unlimit_runs_ns: Option<u64>,
    last_message: Amount,
    /// What came back and has not been counted yet.
    returned: Vec<Lost>,
}

/// What one entry of the error queue says.
struct Lost {
    reason: Reason,
    amount: Amount,
    /// Type and code; `None`: the kernel said it in another way.
    icmp: Option<(u8, u8)>,
}

impl UdpOutlet {
    pub(crate) fn new(socket: OwnedFd, gso: Gso, egress: &Egress) -> UdpOutlet {
        let own_address = match local_address(socket.as_fd()) {
            Some(LocalAddress::Inet(addr)) => Some(addr),
            _ => None,
        };
        let is_v6 = own_address.is_some_and(|addr| addr.is_ipv6());
        // IPv4 header without options, or IPv6 header, and the UDP header.
        let header_bytes = if is_v6 { 48 } else { 28 };
        let mut outlet = UdpOutlet {
            socket,
            is_local: egress.is_local,
            own_address: own_address.map(Source::from),
            header_bytes,
            run_datagram_bytes_max: 0,
            runs_paused_until_ns: 0,
            handed: Amount::default(),
            given_back: Amount::default(),
            unsettled: Unsettled::default(),
            ask_neighbour_ns: 0,
            is_held: false,
            check_held_ns: 0,
            unlimit_runs_ns: None,
            last_message: Amount::default(),
            returned: Vec::with_capacity(RETURNED_MAX),
        };
        if gso == Gso::Auto && !egress.may_drop_within_messages() {
            outlet.run_datagram_bytes_max = outlet.datagram_bytes_max();
        }
        outlet
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What says that more can be sent; `None` while that says nothing.
    pub(crate) fn writable_socket(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_held).then(|| self.socket.as_fd())
    }

    pub(crate) fn reports_all(&self) -> bool {
        self.is_local
    }

    /// Largest datagram that leaves as one packet: a run must not hold larger ones (`udp_send_skb`, net/ipv4/udp.c).
    fn datagram_bytes_max(&self) -> usize {
        path_mtu_bytes(self.socket())
            .map_or(0, |mtu| (mtu as usize).saturating_sub(self.header_bytes))
    }

    fn has_nothing_outstanding(&self) -> bool {
        outstanding_bytes(self.socket()) == Ok(0)
    }

    /// Notes that nothing is outstanding, and finds out whether that is because all was given up.
    fn note_idle(&mut self) {
        let now_ns = sys::clock::monotonic_ns();
        let was_held = std::mem::take(&mut self.is_held);
        let may_ask = was_held || now_ns >= self.ask_neighbour_ns;
        if self.unsettled.note_idle(now_ns) == Before::LongBusy && may_ask {
            self.ask_neighbour_ns = now_ns + ASK_INTERVAL_NS;
            if self.has_dead_neighbour() {
                self.give_back_unsettled(now_ns);
            }
        }
    }

    /// Whether what is outstanding waits for a neighbour that does not answer. Asked only where it has waited for long.
    fn check_held(&mut self) -> bool {
        let now_ns = sys::clock::monotonic_ns();
        if !self.is_held && now_ns >= self.check_held_ns && self.unsettled.is_long_busy(now_ns) {
            self.check_held_ns = now_ns + ASK_INTERVAL_NS;
            self.is_held = self.has_dead_neighbour();
        }
        self.is_held
    }

    fn has_dead_neighbour(&self) -> bool {
        remote_address(self.socket())
            .is_some_and(|remote| neighbour_has_failed(remote.ip()).unwrap_or(false))
    }

    fn give_back_unsettled(&mut self, now_ns: u64) {
        let amount = self.unsettled.take(now_ns);
        self.give_back(Reason::HostUnreachable, amount, None);
    }

    /// Notes a loss after the send, of no more than was sent: anybody may forge an ICMP message, and a firewall of this
    /// host answers datagrams that it did not let out.
    fn give_back(&mut self, reason: Reason, amount: Amount, icmp: Option<(u8, u8)>) {
        let rest = self.handed.saturating_sub(self.given_back);
        let amount =
            Amount { count: amount.count.min(rest.count), bytes: amount.bytes.min(rest.bytes) };
        self.given_back += amount;
        self.returned.push(Lost { reason, amount, icmp });
    }

    /// What still waits for a neighbour that has not answered so far is counted as lost; what waits for a slow device is
    /// not.
    pub(crate) fn give_up_outstanding(&mut self) {
        if self.has_outstanding() && self.has_dead_neighbour() {
            self.give_back_unsettled(sys::clock::monotonic_ns());
        }
    }

    /// Takes what came back off the error queue, while it is known which message was the last.
    fn collect_returned(&mut self) {
        while self.returned.len() < RETURNED_MAX {
            let Some(returned) = errqueue::take(self.socket()) else { return };
            if let Some((reason, amount)) = self.meaning_of(&returned) {
                self.give_back(reason, amount, Some((returned.icmp_type, returned.icmp_code)));
            }
        }
    }

    /// What an entry of the error queue says about what was handed over.
    fn meaning_of(&mut self, returned: &Returned) -> Option<(Reason, Amount)> {
        match returned.errno {
            // One answer to one message: what comes beyond that is about something that never left.
            Errno::CONNREFUSED if self.is_local => {
                Some((Reason::Refused, std::mem::take(&mut self.last_message)))
            }
            Errno::CONNREFUSED => Some((Reason::Refused, ONE)),
            Errno::HOSTUNREACH if self.is_own(returned) => {
                let lost = self.unsettled.take(sys::clock::monotonic_ns());
                Some((Reason::HostUnreachable, lost))
            }
            Errno::HOSTUNREACH => Some((Reason::HostUnreachable, ONE)),
            Errno::NETUNREACH => Some((Reason::NetworkUnreachable, ONE)),
            // "Fragmentation needed" from a router: that datagram is lost, the kernel lowers the path's MTU.
            Errno::MSGSIZE if !returned.is_local => Some((Reason::TooBig, ONE)),
            // Reports about calls that failed: those were counted when they did.
            _ if returned.is_local => None,
            // "Prohibited", which is EACCES over IPv6 and EHOSTUNREACH over IPv4, and what else ICMP may say.
            _ => Some((Reason::HostUnreachable, ONE)),
        }
    }

    fn is_own(&self, returned: &Returned) -> bool {
        let own = self.own_address.as_ref().and_then(Source::ip_bytes);
        own.is_some() && returned.offender.ip_bytes() == own
    }
}

/// A datagram of which an ICMP message does not say how long it was.
const ONE: Amount = Amount { count: 1, bytes: 0 };

impl UdpOutlet {
    pub(crate) fn send(&mut self, messages: &[Message<'_>]) -> Result<usize, Errno> {
        if !self.is_local {
            if self.has_nothing_outstanding() {
                self.note_idle();
            } else if self.check_held() {
                return Err(Errno::AGAIN);
            }
        }
        let taken = send_messages(self.socket(), messages)?;
        let mut total = Amount::default();
        for message in &messages[..taken] {
            self.last_message =
                Amount { count: u64::from(message.datagrams), bytes: message.bytes.len() as u64 };
            self.handed += self.last_message;
            total += self.last_message;
        }
        if !self.is_local && taken > 0 {
            self.unsettled.hand_over(total, sys::clock::monotonic_ns());
        }
        if taken < messages.len() {
            // The next message met an error, which may be the answer to the last one taken: the kernel keeps the answer
            // in the queue but has forgotten the error.
            self.collect_returned();
        }
        Ok(taken)
    }

    pub(crate) fn run_datagram_bytes_max(&self, now_ns: u64) -> usize {
        if now_ns < self.runs_paused_until_ns { 0 } else { self.run_datagram_bytes_max }
    }

    pub(crate) fn limit_runs(&mut self, datagram_bytes: usize) {
        let by_path = self.datagram_bytes_max();
        // If the path takes datagrams of this length, it is the device that takes no runs.
        self.run_datagram_bytes_max = if by_path < datagram_bytes { by_path } else { 0 };
        self.unlimit_runs_ns = Some(sys::clock::monotonic_ns() + UNLIMIT_INTERVAL_NS);
    }

    pub(crate) fn take_returned(&mut self, meter: &TargetMeter, now_ns: u64) {
        self.collect_returned();
        if self.unlimit_runs_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.unlimit_runs_ns = None;
            self.run_datagram_bytes_max = self.datagram_bytes_max();
        }
        if !self.is_local && self.has_nothing_outstanding() {
            self.note_idle();
        }
        if !self.is_local && !self.returned.is_empty() {
            self.runs_paused_until_ns = now_ns + RUNS_PAUSE_NS;
        }
        for returned in self.returned.drain(..) {
            if let Some((icmp_type, icmp_code)) = returned.icmp {
                meter.count_icmp(icmp_type, icmp_code);
            }
            meter.egress.drop(returned.reason, returned.amount);
        }
    }

    pub(crate) fn has_outstanding(&mut self) -> bool {
        if self.is_local {
            return false;
        }
        if !self.has_nothing_outstanding() {
            return true;
        }
        self.note_idle();
        false
    }
}
