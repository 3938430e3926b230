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
///   were about one. So where datagrams were kept for long and are gone, the neighbour's state is asked for.
pub(crate) struct UdpOutlet {
    socket: OwnedFd,
    is_local: bool,
    own_address: Option<Source>,
    header_bytes: usize,
    /// Largest datagram that may be part of a run; 0: none.
    run_datagram_bytes_max: usize,
    runs_paused_until_ns: u64,
    unsettled: Unsettled,
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
            unsettled: Unsettled::default(),
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
        if self.unsettled.note_idle(now_ns) == Before::LongBusy && self.has_dead_neighbour() {
            self.give_back_unsettled(now_ns);
        }
    }

    fn has_dead_neighbour(&self) -> bool {
        remote_address(self.socket())
            .is_some_and(|remote| neighbour_has_failed(remote.ip()).unwrap_or(false))
    }

    fn give_back_unsettled(&mut self, now_ns: u64) {
        let amount = self.unsettled.take(now_ns);
        self.returned.push(Lost { reason: Reason::HostUnreachable, amount, icmp: None });
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
                let icmp = Some((returned.icmp_type, returned.icmp_code));
                self.returned.push(Lost { reason, amount, icmp });
            }
        }
    }

    /// What an entry of the error queue says about what was handed over.
    fn meaning_of(&mut self, returned: &Returned) -> Option<(Reason, Amount)> {
        match returned.errno {
            Errno::CONNREFUSED if self.is_local => Some((Reason::Refused, self.last_message)),
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

/// How long after the device let go of a datagram a report about it may still be on its way. The kernel frees what waited
/// for a dead neighbour first, and delivers its own ICMP message about it through the loopback device afterwards; that
/// takes microseconds where the processor has nothing else to do. A neighbour takes three seconds to fail again.
const REPORT_DELAY_MAX_NS: u64 = 200_000_000;

/// What was handed over and may still be given back, because the neighbour does not answer.
#[derive(Default)]
struct Unsettled {
    /// Everything that was handed over.
    handed: Amount,
    /// How much of it will not be given back, or was already.
    settled: Amount,
    /// A moment when nothing was outstanding.
    idle: Option<Idle>,
    /// The latest such moment after it.
    idle_again: Option<Idle>,
    /// Reports until then are about what was taken already: one failure has many.
    taken_until_ns: u64,
    idle_last_ns: u64,
}

/// What was before a moment when nothing was outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    /// Datagrams may have been kept for so long that they were given up instead of sent.
    LongBusy,
    Other,
}

/// What had been handed over at a moment when nothing was outstanding.
#[derive(Clone, Copy)]
struct Idle {
    handed: Amount,
    at_ns: u64,
}

impl Unsettled {
    /// Nothing is outstanding now. To be called often enough that silence is not taken for a wait.
    fn note_idle(&mut self, now_ns: u64) -> Before {
        let was_long = now_ns - self.idle_last_ns > REPORT_DELAY_MAX_NS;
        let before = if was_long && !self.is_empty() { Before::LongBusy } else { Before::Other };
        self.idle_last_ns = now_ns;
        self.settle(now_ns);
        let idle = Some(Idle { handed: self.handed, at_ns: now_ns });
        if self.idle.is_none() {
            self.idle = idle;
        } else {
            self.idle_again = idle;
        }
        before
    }

    /// Settles what no report came about in time.
    fn settle(&mut self, now_ns: u64) {
        while let Some(idle) = self.idle
            && idle.at_ns + REPORT_DELAY_MAX_NS <= now_ns
        {
            self.settled = idle.handed;
            self.idle = self.idle_again.take();
        }
    }

    /// A report has come: settles everything, and returns what was not settled before.
    fn take(&mut self, now_ns: u64) -> Amount {
        if now_ns < self.taken_until_ns {
            return Amount::default();
        }
        self.taken_until_ns = now_ns + REPORT_DELAY_MAX_NS;
        self.settle(now_ns);
        let rest = self.handed.saturating_sub(self.settled);
        (self.settled, self.idle, self.idle_again) = (self.handed, None, None);
        rest
    }

    fn is_empty(&self) -> bool {
        self.handed == self.settled
    }
}

/// A datagram of which an ICMP message does not say how long it was.
const ONE: Amount = Amount { count: 1, bytes: 0 };

impl UdpOutlet {
    pub(crate) fn send(&mut self, messages: &[Message<'_>]) -> Result<usize, Errno> {
        if !self.is_local && self.has_nothing_outstanding() {
            self.note_idle();
        }
        let taken = send_messages(self.socket(), messages)?;
        for message in &messages[..taken] {
            self.last_message =
                Amount { count: u64::from(message.datagrams), bytes: message.bytes.len() as u64 };
            self.unsettled.handed += self.last_message;
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
    }

    pub(crate) fn take_returned(&mut self, meter: &TargetMeter, now_ns: u64) {
        self.collect_returned();
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

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: u64 = REPORT_DELAY_MAX_NS;

    fn handed(unsettled: &mut Unsettled, count: u64) {
        unsettled.handed += Amount { count, bytes: count * 10 };
    }

    #[test]
    fn a_report_that_comes_after_the_queue_was_let_go_is_about_all_that_was_in_it() {
        let mut unsettled = Unsettled::default();
        unsettled.note_idle(0);
        handed(&mut unsettled, 100);
        // Three seconds later the neighbour has failed: nothing is outstanding, more is sent, and then the report comes.
        assert_eq!(unsettled.note_idle(15 * LATER), Before::LongBusy);
        handed(&mut unsettled, 1);
        assert_eq!(unsettled.take(15 * LATER + 1), Amount { count: 101, bytes: 1_010 });
        assert!(unsettled.is_empty());
        // The second report of the same failure is not about what waits for the next one.
        handed(&mut unsettled, 7);
        assert!(unsettled.take(15 * LATER + 2).is_zero());
        assert_eq!(unsettled.take(30 * LATER).count, 7);
    }

    #[test]
    fn what_has_left_long_ago_is_not_given_back() {
        let mut unsettled = Unsettled::default();
        for step in 0..1_000 {
            assert_eq!(unsettled.note_idle(step * LATER / 100), Before::Other);
            handed(&mut unsettled, 1);
        }
        // The last one met a dead neighbour.
        assert_eq!(unsettled.take(30 * LATER).count, 1);
    }

    #[test]
    fn it_is_empty_when_no_report_can_come() {
        let mut unsettled = Unsettled::default();
        handed(&mut unsettled, 5);
        unsettled.note_idle(7);
        assert!(!unsettled.is_empty());
        unsettled.note_idle(7 + LATER);
        assert!(unsettled.is_empty());
        assert_eq!(unsettled.take(8 + LATER).count, 0);
    }
}
