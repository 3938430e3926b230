use super::header::Headers;
use super::kernel::UdpKernel;
use super::refusal::Refusal;
use super::unsettled::Unsettled;
use crate::meter::TargetMeter;
use crate::path::Path;
use crate::target::{InCommon, Sources};
use crate::{Gso, SourceAddress};
use ledger::{Amount, Reason};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use sys::errqueue::Returned;
use sys::route::Neighbour;
use sys::send::{BATCH, Message};
use sys::{Errno, Source};

/// Time after which a path or device that refused runs is tried again, in nanoseconds: paths recover.
const UNLIMIT_INTERVAL_NS: u64 = 60_000_000_000;

/// Time between two checks of what the socket has outstanding, in nanoseconds: short compared with everything that depends on it.
const IDLE_INTERVAL_NS: u64 = 200_000;

/// Time between two lookups of a neighbor that something has long been waiting for, in nanoseconds.
const LOOK_INTERVAL_NS: u64 = 1_000_000_000;

/// How long to wait for a lookup that tells why nothing is outstanding any more, in nanoseconds. It takes about 2 ms.
const LOOK_PATIENCE_NS: u64 = 100_000_000;

/// Maximum number of error queue entries taken at once, so that a flood of ICMP cannot hold the thread.
const RETURNED_MAX: usize = 256;

/// A connected UDP socket.
///
/// # What comes back
/// `send` returning means that the kernel took a datagram, not that it left. It can still come back in two ways:
///
/// - "Port unreachable", through the error queue. On this host it arrives before `send` returns, once per message, so it is about
///   the last message sent. From elsewhere it arrives only for some datagrams: hosts limit how many they send.
/// - The neighbor did not answer for three seconds, and everything that waited for it is gone. Our own stack's reports of that
///   ("host unreachable") are limited to 50 at once (`net.ipv4.icmp_msgs_burst`), and the neighbor's queue drops its oldest
///   datagrams without any (`net/core/neighbour.c`, `__neigh_event_send`). So everything handed over since the socket last had
///   nothing outstanding is counted ([`Unsettled`]). Measured on 6.18: 129 of 6,846 datagrams sent towards a dead neighbor were
///   reported, and when two neighbors failed at the same moment, all reports were about one of them. So the [`Path`] decides
///   whether the neighbor failed. And nothing is handed over while the neighbor is being resolved, nor between the moment when
///   all that waited is gone and the moment when the reason is known: new datagrams would wait for the neighbor's next attempt,
///   indistinguishable from those that are gone.
pub(crate) struct UdpOutlet<K> {
    pub(crate) kernel: K,
    path: Path,
    own_address: Option<Source>,
    gso: Gso,
    source_address: SourceAddress,
    /// What is inserted into datagrams that name their senders.
    headers: Option<Headers>,
    /// Datagrams not counted yet that left from this host although their source should have been kept or named.
    without_source: u64,
    /// Largest datagram that may be part of a run, in bytes. 0 for no runs.
    run_datagram_bytes_max: usize,
    handed: Amount,
    given_back: Amount,
    unsettled: Unsettled,
    wait: Wait,
    refusal: Refusal,
    /// When to try longer runs again. `None` when runs are not limited.
    unlimit_runs_ns: Option<u64>,
    last_message: Amount,
    /// What came back and has not been counted yet.
    returned: Vec<Lost>,
}

/// State of datagrams that wait for a neighbor.
#[derive(Default)]
struct Wait {
    /// Nothing is handed over, because something waits for a neighbor that does not answer.
    is_held: bool,
    /// Nothing is outstanding any more. This lookup, requested at this time, will tell whether it is lost or has left.
    look: Option<(u64, u64)>,
    /// Something has been outstanding for long.
    is_long: bool,
    /// Our own stack reported that the neighbor failed.
    is_reported: bool,
    /// The path's failure count before any failure that would lose what is outstanding.
    failures_before: u64,
    check_due_ns: u64,
    look_due_ns: u64,
}

/// The meaning of one entry of the error queue.
struct Lost {
    reason: Reason,
    amount: Amount,
    /// Type and code. `None` when the loss was not learned from an ICMP message.
    icmp: Option<(u8, u8)>,
}

impl<K: UdpKernel> UdpOutlet<K> {
    pub(crate) fn new(
        kernel: K,
        gso: Gso,
        source_address: SourceAddress,
        path: Path,
    ) -> UdpOutlet<K> {
        let failures_before = path.failures();
        UdpOutlet {
            path,
            own_address: kernel.own_address(),
            gso,
            headers: match source_address {
                SourceAddress::Said(header) => Some(Headers::new(header)),
                SourceAddress::Own | SourceAddress::Kept | SourceAddress::KeptWithPort(_) => None,
            },
            source_address,
            without_source: 0,
            run_datagram_bytes_max: kernel.datagram_bytes_max(),
            handed: Amount::default(),
            given_back: Amount::default(),
            unsettled: Unsettled::default(),
            wait: Wait { failures_before, ..Wait::default() },
            refusal: Refusal::default(),
            unlimit_runs_ns: None,
            last_message: Amount::default(),
            returned: Vec::with_capacity(RETURNED_MAX),
            kernel,
        }
    }

    /// The socket to wait for until more can be sent. `None` while its writability says nothing about that.
    pub(crate) fn writable_socket(&self) -> Option<BorrowedFd<'_>> {
        if self.wait.is_held || self.wait.look.is_some() { None } else { self.kernel.socket() }
    }

    pub(crate) fn reports_all(&self) -> bool {
        // Errors go back to the source address.
        let is_own = matches!(self.source_address, SourceAddress::Own | SourceAddress::Said(_));
        self.path.is_local() && is_own
    }

    pub(crate) fn in_common(&self) -> InCommon {
        match self.source_address {
            SourceAddress::Own | SourceAddress::Said(_) => InCommon::Nothing,
            SourceAddress::Kept => InCommon::Address,
            SourceAddress::KeptWithPort(_) => InCommon::AddressAndPort,
        }
    }

    pub(crate) fn is_unanswered(&self) -> bool {
        !self.path.is_local() && self.path.is_unanswered()
    }

    /// Why a call would be pointless now.
    pub(crate) fn refusing(&self, now_ns: u64) -> Option<Reason> {
        self.refusal.reason(now_ns)
    }

    /// Follows what waits for the neighbor. Returns whether more may be handed over.
    fn follow_wait(&mut self, now_ns: u64) -> bool {
        if let Some((look, asked_ns)) = self.wait.look {
            let seen = match self.path.has_looked(look) {
                true => self.path.seen(),
                // The path thread is held up by the kernel's tables: decide by what it has heard so far.
                false if now_ns >= asked_ns + LOOK_PATIENCE_NS => {
                    (self.path.failures(), self.path.neighbour())
                }
                false => return false,
            };

            self.conclude(now_ns, seen);
            return true;
        }

        self.wait.check_due_ns = now_ns + IDLE_INTERVAL_NS;
        if self.kernel.has_nothing_outstanding() {
            self.note_idle(now_ns)
        } else {
            self.note_busy(now_ns);
            !self.wait.is_held
        }
    }

    /// Nothing is outstanding: it has left, or it is lost if it waited for the neighbor.
    fn note_idle(&mut self, now_ns: u64) -> bool {
        let is_long = self.wait.is_held || self.unsettled.is_long_busy(now_ns);

        if !is_long && !self.wait.is_reported {
            self.wait.failures_before = self.path.failures();
            self.wait.is_long = false;
            self.unsettled.note_idle(now_ns);
            return true;
        }

        if self.path.neighbour() == Neighbour::Known && !self.path.is_asked() {
            // What was waiting began to wait after the neighbor had failed. That was reported long ago, so the last lookup knows
            // of it.
            self.conclude(now_ns, (self.path.failures(), Neighbour::Known));
            return true;
        }

        let look = self.path.look();
        self.wait.look = Some((look, now_ns));
        if self.path.has_looked(look) {
            self.conclude(now_ns, self.path.seen());
        }
        self.wait.look.is_none()
    }

    /// Something outstanding waits for the device or for the neighbor.
    fn note_busy(&mut self, now_ns: u64) {
        if self.unsettled.is_long_busy(now_ns) {
            if !self.wait.is_long {
                self.wait.is_long = true;
                // An earlier failure is not what this waits for: a failure is reported within this time.
                self.wait.failures_before = self.path.failures();
            }
            self.look_now_and_then(now_ns);
        }

        if self.path.neighbour() == Neighbour::Known {
            // The neighbor failed and is back, and this is still here: it waits for the device.
            self.wait.failures_before = self.path.failures();
        }

        self.wait.is_held = self.path.is_unanswered();
    }

    /// Requests a lookup of what the kernel does not report by itself: that the neighbor is being resolved.
    fn look_now_and_then(&mut self, now_ns: u64) {
        if now_ns >= self.wait.look_due_ns {
            self.wait.look_due_ns = now_ns + LOOK_INTERVAL_NS;
            self.path.look();
        }
    }

    /// Decides about what is no longer outstanding, by what the path's lookup found.
    fn conclude(&mut self, now_ns: u64, (failures, neighbour): (u64, Neighbour)) {
        let wait = std::mem::take(&mut self.wait);

        let has_failed = failures != wait.failures_before
            || neighbour == Neighbour::Failed
            || (wait.is_reported && !self.path.is_followed());
        if has_failed {
            if !wait.is_reported {
                // Without a report, what is lost was handed over since nothing was last outstanding. A report may come late and
                // be about earlier datagrams.
                self.unsettled.settle_idle();
            }
            self.give_back_unsettled(now_ns);
        }

        self.wait.failures_before = failures;
        self.wait.look_due_ns = wait.look_due_ns;
        self.unsettled.note_idle(now_ns);
    }

    fn give_back_unsettled(&mut self, now_ns: u64) {
        let amount = self.unsettled.take(now_ns);
        self.give_back(Reason::HostUnreachable, amount, None);
    }

    /// Records a loss after the send, but never more than was sent: anybody may forge an ICMP message, and a firewall on this
    /// host may answer datagrams that it did not let out.
    fn give_back(&mut self, reason: Reason, amount: Amount, icmp: Option<(u8, u8)>) {
        let rest = self.handed.saturating_sub(self.given_back);
        // Count and bytes separately: an ICMP message does not tell the length of its datagram.
        let amount =
            Amount { count: amount.count.min(rest.count), bytes: amount.bytes.min(rest.bytes) };
        self.given_back += amount;
        self.returned.push(Lost { reason, amount, icmp });
    }

    /// Counts what still waits for an unresponsive neighbor as lost, but not what waits for a slow device. Decides from what is
    /// known already, without asking or waiting.
    pub(crate) fn give_up_outstanding(&mut self) {
        if self.path.is_local() {
            return;
        }

        let now_ns = self.kernel.now_ns();
        if self.wait.look.is_some() {
            self.conclude(now_ns, (self.path.failures(), self.path.neighbour()));
        } else if !self.kernel.has_nothing_outstanding() && self.path.is_unanswered() {
            self.unsettled.settle_idle();
            self.give_back_unsettled(now_ns);
        }
    }

    /// Takes returned messages off the error queue, while it is known which message was the last.
    fn collect_returned(&mut self) {
        while self.returned.len() < RETURNED_MAX {
            let Some(returned) = self.kernel.take_returned() else { return };
            if let Some((reason, amount)) = self.meaning_of(&returned) {
                self.give_back(reason, amount, Some((returned.icmp_type, returned.icmp_code)));
            }
        }
    }

    /// What an error queue entry means for what was handed over.
    fn meaning_of(&mut self, returned: &Returned) -> Option<(Reason, Amount)> {
        match returned.errno {
            // With several sockets it is not known whose message was the last.
            Errno::CONNREFUSED if matches!(self.source_address, SourceAddress::KeptWithPort(_)) => {
                Some((Reason::Refused, ONE))
            }
            // One answer per message: a further one is about a message that never left.
            Errno::CONNREFUSED if self.path.is_local() => {
                self.refusal.note_refused(Reason::Refused, self.kernel.now_ns());
                Some((Reason::Refused, std::mem::take(&mut self.last_message)))
            }
            Errno::CONNREFUSED => Some((Reason::Refused, ONE)),
            Errno::HOSTUNREACH if self.is_own(returned) => {
                self.wait.is_reported = true;
                Some((Reason::HostUnreachable, Amount::default()))
            }
            Errno::HOSTUNREACH => Some((Reason::HostUnreachable, ONE)),
            Errno::NETUNREACH => Some((Reason::NetworkUnreachable, ONE)),
            // "Fragmentation needed" from a router: that datagram is lost, and the kernel lowers the path MTU.
            Errno::MSGSIZE if !returned.is_local => Some((Reason::TooBig, ONE)),
            // Reports about failed calls, which were counted when they failed.
            _ if returned.is_local => None,
            // "Prohibited", which is EACCES over IPv6 and EHOSTUNREACH over IPv4, and other ICMP errors.
            _ => Some((Reason::HostUnreachable, ONE)),
        }
    }

    fn is_own(&self, returned: &Returned) -> bool {
        let own = self.own_address.as_ref().and_then(Source::ip_bytes);
        own.is_some() && returned.offender.ip_bytes() == own
    }
}

/// Whether a datagram may leave from an address. Rejects addresses that mean another host on each link (RFC 4291 section 2.5.6),
/// and addresses that belong to no host, which a PROXY header may name: the kernel reads 0.0.0.0 as "choose one" and refuses the
/// others.
fn can_be_source(ip: IpAddr) -> bool {
    let is_of_one_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(is_of_one_link || is_broadcast || ip.is_multicast() || ip.is_unspecified())
}

/// A datagram of unknown length, reported by an ICMP message.
const ONE: Amount = Amount { count: 1, bytes: 0 };

impl<K: UdpKernel> UdpOutlet<K> {
    pub(crate) fn send(
        &mut self,
        messages: &[Message<'_>],
        sources: Sources<'_>,
    ) -> Result<usize, Errno> {
        let is_local = self.path.is_local();
        // A target on this host does not need this clock call.
        let now_ns = if is_local { 0 } else { self.kernel.now_ns() };
        if !is_local
            && (self.is_waiting() || now_ns >= self.wait.check_due_ns)
            && !self.follow_wait(now_ns)
        {
            return Err(Errno::AGAIN);
        }

        let few = if self.refusal.is_probing() { &messages[..1] } else { messages };
        match self.hand_over(few, sources) {
            Ok(taken) => {
                self.note_taken(&few[..taken], is_local, now_ns);
                let refused_before = self.refusal.note_taken(taken);
                if taken < few.len() || refused_before > 0 {
                    // The next message met an error, which may be the answer to the last one taken: the kernel keeps the answer
                    // in the queue but has forgotten the error.
                    self.collect_returned();
                    self.refusal.note_collected(refused_before);
                }
                Ok(taken)
            }
            Err(errno) => {
                self.refusal.note_failed(errno, self.kernel.now_ns());
                if errno == Errno::AGAIN {
                    // A non-empty error queue makes the socket ready to poll, so a wait for room would end at once.
                    self.collect_returned();
                }
                Err(errno)
            }
        }
    }

    /// Calls the kernel.
    fn hand_over(
        &mut self,
        messages: &[Message<'_>],
        sources: Sources<'_>,
    ) -> Result<usize, Errno> {
        if self.source_address == SourceAddress::Own {
            return self.kernel.send(messages);
        }
        if let Some(headers) = &mut self.headers {
            let messages = &messages[..messages.len().min(BATCH)];
            headers.write(messages, sources);
            let taken = self.kernel.send_with(messages, &|at| headers.insert(at))?;
            self.without_source += headers.unsaid(taken);
            return Ok(taken);
        }

        let own = self.own_address.and_then(|own| own.address());
        let source_of = |at: usize| {
            let source = sources(at).address()?;
            own.filter(|own| own.is_ipv4() == source.is_ipv4() && can_be_source(source.ip()))
                .map(|_| source)
        };
        let taken = self.kernel.send_from(messages, &source_of)?;
        let without = (0..taken).filter(|at| source_of(*at).is_none());
        self.without_source += without.map(|at| u64::from(messages[at].datagrams)).sum::<u64>();
        Ok(taken)
    }

    fn note_taken(&mut self, taken: &[Message<'_>], is_local: bool, now_ns: u64) {
        let mut total = Amount::default();
        for message in taken {
            self.last_message =
                Amount { count: u64::from(message.datagrams), bytes: message.bytes.len() as u64 };
            total += self.last_message;
        }

        self.handed += total;
        if !is_local && !taken.is_empty() {
            self.unsettled.hand_over(total, now_ns);
        }
    }

    pub(crate) fn run_datagram_bytes_max(&self) -> usize {
        // A run has room for one header, but each of its datagrams needs one.
        let may_run = self.gso == Gso::Auto && self.headers.is_none() && self.path.keeps_messages();
        if may_run && !self.refusal.is_probing() { self.run_datagram_bytes_max } else { 0 }
    }

    pub(crate) fn limit_runs(&mut self, datagram_bytes: usize) {
        let by_path = self.kernel.datagram_bytes_max();
        // If the path takes datagrams of this length, it is the device that refuses runs.
        self.run_datagram_bytes_max = if by_path < datagram_bytes { by_path } else { 0 };
        self.unlimit_runs_ns = Some(self.kernel.now_ns() + UNLIMIT_INTERVAL_NS);
    }

    pub(crate) fn take_returned(&mut self, meter: &TargetMeter, now_ns: u64) {
        self.collect_returned();

        if self.unlimit_runs_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            self.unlimit_runs_ns = None;
            self.run_datagram_bytes_max = self.kernel.datagram_bytes_max();
        }

        if !self.path.is_local() {
            self.follow_wait(self.kernel.now_ns());
        }

        meter.without_source.add(std::mem::take(&mut self.without_source));
        let senders = self.kernel.take_sender_counts();
        meter.without_port.add(senders.without_port);
        meter.sender_turnover.add(senders.turnover);
        for returned in self.returned.drain(..) {
            if let Some((icmp_type, icmp_code)) = returned.icmp {
                meter.count_icmp(icmp_type, icmp_code);
            }
            let amount = match self.path.is_local() {
                true => returned.amount,
                false => meter.with_bytes(returned.amount),
            };
            meter.egress.drop(returned.reason, amount);
        }
    }

    pub(crate) fn has_outstanding(&mut self) -> bool {
        if self.path.is_local() {
            return false;
        }

        let now_ns = self.kernel.now_ns();
        self.follow_wait(now_ns);
        if self.wait.look.is_some() {
            return true;
        }

        let has_outstanding = !self.kernel.has_nothing_outstanding();
        if has_outstanding {
            self.look_now_and_then(now_ns);
        }
        has_outstanding
    }

    /// Whether to follow what waits before each call, however recently that was done.
    fn is_waiting(&self) -> bool {
        let wait = &self.wait;
        let has_failed = self.path.failures() != wait.failures_before;
        wait.is_held || wait.look.is_some() || wait.is_reported || has_failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_s_address_can_be_a_source() {
        for ip in ["192.0.2.1", "127.0.0.1", "2001:db8::1", "fd00::1"] {
            assert!(can_be_source(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1", "fe80::1"] {
            assert!(!can_be_source(ip.parse().unwrap()), "{ip}");
        }
    }
}
