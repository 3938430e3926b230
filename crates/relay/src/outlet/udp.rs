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

/// Time after which a path or device that refused runs is tried again: paths recover.
const UNLIMIT_INTERVAL_NS: u64 = 60_000_000_000;

/// Time between two looks at what the socket has outstanding: short compared with all that is decided by them.
const IDLE_INTERVAL_NS: u64 = 200_000;

/// Time between two questions about the neighbour for which something has been waiting for long.
const LOOK_INTERVAL_NS: u64 = 1_000_000_000;

/// How long an answer to the question why nothing is outstanding any more is waited for; it takes some 2 ms.
const LOOK_PATIENCE_NS: u64 = 100_000_000;

/// Entries of the error queue that are taken at once, so that a flood of ICMP cannot hold the thread.
const RETURNED_MAX: usize = 256;

/// A connected UDP socket.
///
/// # What comes back
/// `send` says that the kernel took a datagram, not that it left. Two things give it back later:
///
/// - "Port unreachable", through the error queue. On this host it comes before `send` returns, one for each message, so that
///   it is about the message that was sent last. From elsewhere it comes for some datagrams only: hosts limit how many
///   they send.
/// - The neighbour did not answer for three seconds, and everything that waited for it is gone. Our own stack's reports of
///   that ("host unreachable") are limited to 50 at once (`net.ipv4.icmp_msgs_burst`), and the neighbour's queue drops its
///   oldest without any (`net/core/neighbour.c`, `__neigh_event_send`); so everything is counted that was handed over
///   since the socket last had nothing outstanding ([`Unsettled`]). Measured on 6.18: of 6,846 datagrams sent towards a
///   dead neighbour 129 were reported, and of those to two that failed at the same moment all reports were about one.
///   So it is the [`Path`] that says whether the neighbour failed. And nothing is handed over while it is being looked for,
///   nor between the moment when all that waited is gone and the moment when it is known why: more would begin to wait for
///   the neighbour's next chance, and could not be told from what is gone.
pub(crate) struct UdpOutlet<K> {
    pub(crate) kernel: K,
    path: Path,
    own_address: Option<Source>,
    gso: Gso,
    source_address: SourceAddress,
    /// What goes into the datagrams, where they say who sent them.
    headers: Option<Headers>,
    /// Datagrams that left from this host although their source was to be kept or said, and are not counted yet.
    without_source: u64,
    /// Largest datagram that may be part of a run; 0: none.
    run_datagram_bytes_max: usize,
    handed: Amount,
    given_back: Amount,
    unsettled: Unsettled,
    wait: Wait,
    refusal: Refusal,
    /// When to look again whether longer runs may pass; `None`: they are not limited.
    unlimit_runs_ns: Option<u64>,
    last_message: Amount,
    /// What came back and has not been counted yet.
    returned: Vec<Lost>,
}

/// What is known of datagrams that wait for a neighbour.
#[derive(Default)]
struct Wait {
    /// Nothing is handed over, because something waits for a neighbour that does not answer.
    is_held: bool,
    /// Nothing is outstanding any more, and this look, asked for then, will say whether it is gone or has left.
    look: Option<(u64, u64)>,
    /// Something has been outstanding for long.
    is_long: bool,
    /// Our own stack reported that the neighbour failed.
    is_reported: bool,
    /// The path's failures before that of which something outstanding would be lost.
    failures_before: u64,
    check_due_ns: u64,
    look_due_ns: u64,
}

/// What one entry of the error queue says.
struct Lost {
    reason: Reason,
    amount: Amount,
    /// Type and code; `None`: the kernel said it in another way.
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

    /// The socket to wait for until more can be sent; `None` while its being writable says nothing about that.
    pub(crate) fn writable_socket(&self) -> Option<BorrowedFd<'_>> {
        if self.wait.is_held || self.wait.look.is_some() { None } else { self.kernel.socket() }
    }

    pub(crate) fn reports_all(&self) -> bool {
        // What comes back goes to the source.
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

    /// Why nothing is worth a call now.
    pub(crate) fn refusing(&self, now_ns: u64) -> Option<Reason> {
        self.refusal.reason(now_ns)
    }

    /// Follows what waits for the neighbour. Returns whether more may be handed over.
    fn follow_wait(&mut self, now_ns: u64) -> bool {
        if let Some((look, asked_ns)) = self.wait.look {
            let seen = match self.path.has_looked(look) {
                true => self.path.seen(),
                // The thread that looks is held up by the kernel's tables: what it has heard so far decides.
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

    /// Nothing is outstanding: it has left, or is gone if it waited for the neighbour.
    fn note_idle(&mut self, now_ns: u64) -> bool {
        let is_long = self.wait.is_held || self.unsettled.is_long_busy(now_ns);

        if !is_long && !self.wait.is_reported {
            self.wait.failures_before = self.path.failures();
            self.wait.is_long = false;
            self.unsettled.note_idle(now_ns);
            return true;
        }

        if self.path.neighbour() == Neighbour::Known && !self.path.is_asked() {
            // What was waiting began to wait after the neighbour had failed. That was reported long ago, so the
            // last look knows of it.
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

    /// What is outstanding waits for the device, or for the neighbour.
    fn note_busy(&mut self, now_ns: u64) {
        if self.unsettled.is_long_busy(now_ns) {
            if !self.wait.is_long {
                self.wait.is_long = true;
                // What failed before is not what this waits for: a failure is reported within this time.
                self.wait.failures_before = self.path.failures();
            }
            self.look_now_and_then(now_ns);
        }

        if self.path.neighbour() == Neighbour::Known {
            // It failed and is back, and this is still here: it waits for the device.
            self.wait.failures_before = self.path.failures();
        }

        self.wait.is_held = self.path.is_unanswered();
    }

    /// Asks for a look at what the kernel does not report by itself: that the neighbour is being asked for.
    fn look_now_and_then(&mut self, now_ns: u64) {
        if now_ns >= self.wait.look_due_ns {
            self.wait.look_due_ns = now_ns + LOOK_INTERVAL_NS;
            self.path.look();
        }
    }

    /// Decides about what was outstanding and is not any more, by what the path said when it was looked at.
    fn conclude(&mut self, now_ns: u64, (failures, neighbour): (u64, Neighbour)) {
        let wait = std::mem::take(&mut self.wait);

        let has_failed = failures != wait.failures_before
            || neighbour == Neighbour::Failed
            || (wait.is_reported && !self.path.is_followed());
        if has_failed {
            if !wait.is_reported {
                // Without a report, what is lost was handed over since nothing was last outstanding. A report may
                // come late, and be about what was before that.
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

    /// Notes a loss after the send, of no more than was sent: anybody may forge an ICMP message, and a firewall of this
    /// host answers datagrams that it did not let out.
    fn give_back(&mut self, reason: Reason, amount: Amount, icmp: Option<(u8, u8)>) {
        let rest = self.handed.saturating_sub(self.given_back);
        // Count and bytes apart: of a datagram that an ICMP message is about the length is not known.
        let amount =
            Amount { count: amount.count.min(rest.count), bytes: amount.bytes.min(rest.bytes) };
        self.given_back += amount;
        self.returned.push(Lost { reason, amount, icmp });
    }

    /// What still waits for a neighbour that has not answered so far is counted as lost; what waits for a slow
    /// device is not. Decided by what is known already: nothing is asked, and nothing waited for.
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

    /// Takes what came back off the error queue, while it is known which message was the last.
    fn collect_returned(&mut self) {
        while self.returned.len() < RETURNED_MAX {
            let Some(returned) = self.kernel.take_returned() else { return };
            if let Some((reason, amount)) = self.meaning_of(&returned) {
                self.give_back(reason, amount, Some((returned.icmp_type, returned.icmp_code)));
            }
        }
    }

    /// What an entry of the error queue says about what was handed over.
    fn meaning_of(&mut self, returned: &Returned) -> Option<(Reason, Amount)> {
        match returned.errno {
            // Of several sockets it is not known whose message was the last.
            Errno::CONNREFUSED if matches!(self.source_address, SourceAddress::KeptWithPort(_)) => {
                Some((Reason::Refused, ONE))
            }
            // One answer to one message: what comes beyond that is about something that never left.
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

/// Whether a datagram may leave from an address. Not from one that means another host on each link (RFC 4291 section 2.5.6), nor from what is
/// no host's, which a PROXY header may name: the kernel takes 0.0.0.0 for "choose", and refuses the others.
fn can_be_source(ip: IpAddr) -> bool {
    let is_of_one_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(is_of_one_link || is_broadcast || ip.is_multicast() || ip.is_unspecified())
}

/// A datagram of which an ICMP message does not say how long it was.
const ONE: Amount = Amount { count: 1, bytes: 0 };

impl<K: UdpKernel> UdpOutlet<K> {
    pub(crate) fn send(
        &mut self,
        messages: &[Message<'_>],
        sources: Sources<'_>,
    ) -> Result<usize, Errno> {
        let is_local = self.path.is_local();
        // A clock call that a target on this host does not need.
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
                    // The next message met an error, which may be the answer to the last one taken: the kernel keeps the
                    // answer in the queue but has forgotten the error.
                    self.collect_returned();
                    self.refusal.note_collected(refused_before);
                }
                Ok(taken)
            }
            Err(errno) => {
                self.refusal.note_failed(errno, self.kernel.now_ns());
                if errno == Errno::AGAIN {
                    // The error queue makes a socket ready to poll: a wait for room would end at once for as long
                    // as it is not empty.
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
        // A run has one place for a header, and each of its datagrams needs one.
        let may_run = self.gso == Gso::Auto && self.headers.is_none() && self.path.keeps_messages();
        if may_run && !self.refusal.is_probing() { self.run_datagram_bytes_max } else { 0 }
    }

    pub(crate) fn limit_runs(&mut self, datagram_bytes: usize) {
        let by_path = self.kernel.datagram_bytes_max();
        // If the path takes datagrams of this length, it is the device that takes no runs.
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
            meter.egress.drop(returned.reason, returned.amount);
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

    /// Whether what waits is to be followed before each call, however short ago that was done.
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
