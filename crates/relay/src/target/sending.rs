//! Sends one claim: its datagrams become messages, and the outcome of each message is counted.

use super::{InCommon, Outlet, RUN_BYTES_MAX};
use crate::meter::TargetMeter;
use crate::ring::{CLAIM_MAX, Claim, Descriptor};
use ledger::{Amount, Reason};
use sys::Errno;
use sys::send::{Message, SEGMENTS_MAX};

/// How often one message is resent after an error that was about an earlier one.
const RETRIES_MAX: u32 = 2;

/// State of sending one claim.
pub(super) struct Work<'a, O> {
    pub(super) outlet: &'a mut O,
    pub(super) meter: &'a TargetMeter,
    /// The gate's decisions about the datagrams of the claim. `None` when all pass.
    pub(super) decided: Option<&'a [Option<Reason>]>,
    pub(super) now_ns: u64,
    /// Datagrams from the start of the claim that are handled.
    pub(super) done: usize,
    /// How often the current message was retried.
    pub(super) retries: u32,
}

/// Up to `N` messages of a claim and, for each, its start in the claim.
struct Batch<'a, const N: usize> {
    messages: [Message<'a>; N],
    begins: [usize; N],
    len: usize,
    /// End of the last message in the claim, including filtered datagrams right behind it.
    end: usize,
}

impl<const N: usize> Batch<'_, N> {
    /// End of the handled part of the claim once the first `messages` are sent.
    fn end_of(&self, messages: usize) -> usize {
        if messages < self.len { self.begins[messages] } else { self.end }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Done,
    Blocked,
}

impl<O: Outlet> Work<'_, O> {
    /// Sends the datagrams of the claim that pass and counts those that do not, until all are handled or the outlet is blocked.
    /// After each call, what was handled is returned to the ring's writer.
    pub(super) fn send_all(&mut self, claim: &mut Claim<'_>) -> Ended {
        while self.done < claim.len() {
            let (end, ended) = match self.outlet.refusing(self.now_ns) {
                Some(reason) => (self.refuse_rest(claim, reason), Ended::Done),
                None => self.send_some(claim),
            };

            // Before `advance`, which lets the writer overwrite what was handled.
            self.count_held(claim, end);
            claim.advance(end);
            self.done = end;
            if ended == Ended::Blocked {
                return Ended::Blocked;
            }
        }
        Ended::Done
    }

    /// Makes one call, and returns how far the claim is handled then.
    fn send_some(&mut self, claim: &Claim<'_>) -> (usize, Ended) {
        let datagram_bytes_max = self.outlet.run_datagram_bytes_max(self.now_ns);
        let runs = Runs { datagram_bytes_max, in_common: self.outlet.in_common() };

        // Most claims are one datagram or one run: room for more would cost as much as everything else here.
        let one = form_messages::<1>(claim, self.done, self.decided, runs);
        if one.end == claim.len() {
            return self.send_batch(&one, claim);
        }

        let many = form_messages::<CLAIM_MAX>(claim, self.done, self.decided, runs);
        self.send_batch(&many, claim)
    }

    fn send_batch<const N: usize>(
        &mut self,
        batch: &Batch<'_, N>,
        claim: &Claim<'_>,
    ) -> (usize, Ended) {
        let messages = &batch.messages[..batch.len];
        let Some(first) = messages.first() else { return (batch.end, Ended::Done) };

        self.meter.send_calls.add(1);
        let source_of = |at: usize| claim.get(batch.begins[at]).0.source;
        let sent = match self.outlet.send(messages, &source_of) {
            Ok(taken) => {
                self.retries = 0;
                self.count_delivered(claim, batch, taken);
                taken
            }
            Err(Errno::AGAIN) => return (batch.end_of(0), Ended::Blocked),
            // Nothing was sent: the caller's loop repeats the call.
            Err(Errno::INTR) => 0,
            Err(errno) => match self.fate_of(first, errno) {
                Fate::Again => 0,
                Fate::Dropped => 1,
            },
        };

        (batch.end_of(sent), Ended::Done)
    }

    /// Decides about the message that a call could not send.
    fn fate_of(&mut self, message: &Message<'_>, errno: Errno) -> Fate {
        self.meter.count_error(errno);

        if may_be_about_an_earlier_message(errno) {
            self.outlet.take_returned(self.meter, self.now_ns);
            if self.retries < RETRIES_MAX {
                self.retries += 1;
                self.meter.retries.add(1);
                return Fate::Again;
            }
        }

        // The datagrams may pass alone when the run does not: form new messages and retry.
        if message.datagrams > 1 && is_about_the_run(errno) {
            self.outlet.limit_runs(message.datagram_bytes.into());
            self.retries = 0;
            return Fate::Again;
        }

        self.retries = 0;
        self.meter.sender.drop(reason_of(errno), amount_of(message));
        Fate::Dropped
    }

    /// Counts the rest of the claim as dropped for `reason`, except for what the gate filtered out.
    fn refuse_rest(&mut self, claim: &Claim<'_>, reason: Reason) -> usize {
        let passes = |index: &usize| self.decided.is_none_or(|decided| decided[*index].is_none());
        let lens = (self.done..claim.len()).filter(passes).map(|index| claim.get(index).1.len());
        self.meter.sender.drop(reason, lens.map(Amount::one).sum());
        claim.len()
    }

    fn count_delivered<const N: usize>(
        &self,
        claim: &Claim<'_>,
        batch: &Batch<'_, N>,
        taken: usize,
    ) {
        let mut total = Amount::default();
        let mut group = (0, 0);

        for (message, &begin) in batch.messages[..taken].iter().zip(&batch.begins) {
            total += amount_of(message);
            // Datagrams of one receive batch share their time; a run gets the time of its first datagram.
            let arrived_ns = claim.get(begin).0.times.arrived_ns;
            if arrived_ns == group.0 {
                group.1 += u64::from(message.datagrams);
            } else {
                self.count_delay(group);
                group = (arrived_ns, u64::from(message.datagrams));
            }
        }

        self.count_delay(group);
        self.meter.sender.delivered.add(total);
    }

    fn count_delay(&self, (arrived_ns, count): (u64, u64)) {
        if count > 0 {
            self.meter.delay.add(self.now_ns.saturating_sub(arrived_ns) / 1_000, count);
        }
    }

    /// Counts what the gate filtered out of the datagrams up to `end`.
    fn count_held(&self, claim: &Claim<'_>, end: usize) {
        let Some(decided) = self.decided else { return };
        for (index, reason) in decided.iter().enumerate().take(end).skip(self.done) {
            if let Some(reason) = reason {
                self.meter.sender.drop(*reason, Amount::one(claim.get(index).1.len()));
            }
        }
    }
}

/// What to do with a message that could not be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Retry, perhaps in another form.
    Again,
    /// Count it as dropped.
    Dropped,
}

/// Packs the datagrams from `from` on into up to `N` messages. Contiguous datagrams become one message if the kernel can split it
/// again: all of one length, except that the last may be shorter.
fn form_messages<'a, const N: usize>(
    claim: &'a Claim<'_>,
    from: usize,
    decided: Option<&[Option<Reason>]>,
    runs: Runs,
) -> Batch<'a, N> {
    let is_held = |index: usize| decided.is_some_and(|decided| decided[index].is_some());
    let mut batch =
        Batch { messages: [Message::single(&[]); N], begins: [0; N], len: 0, end: from };

    while batch.end < claim.len() {
        let index = batch.end;
        if is_held(index) {
            batch.end += 1;
            continue;
        }

        // Checked only now, so that filtered datagrams behind the last message are handled along with it.
        if batch.len == N {
            break;
        }

        let (count, bytes) = run_length(claim, index, is_held, runs);
        let (_, first) = claim.get(index);
        batch.messages[batch.len] = match count {
            1 => Message::single(first),
            _ => Message::run(claim.run(index, count, bytes), first.len() as u16),
        };
        batch.begins[batch.len] = index;
        batch.len += 1;
        batch.end += count;
    }

    batch
}

/// Which datagrams may leave together.
#[derive(Clone, Copy)]
struct Runs {
    /// The largest datagram of a run, in bytes.
    datagram_bytes_max: usize,
    in_common: InCommon,
}

impl Runs {
    fn may_share(self, a: &Descriptor, b: &Descriptor) -> bool {
        match self.in_common {
            InCommon::Nothing => true,
            InCommon::Address => a.source.ip_bytes() == b.source.ip_bytes(),
            InCommon::AddressAndPort => a.source == b.source,
        }
    }
}

/// How many datagrams from `index` on may leave as one message, at least 1, and their total length in bytes.
fn run_length(
    claim: &Claim<'_>,
    index: usize,
    is_held: impl Fn(usize) -> bool,
    runs: Runs,
) -> (usize, usize) {
    let (of_first, first) = claim.get(index);
    let (mut count, mut bytes) = (1, first.len());
    if first.is_empty() || first.len() > runs.datagram_bytes_max {
        return (count, bytes);
    }

    let count_max = SEGMENTS_MAX.min(claim.len() - index);
    while count < count_max && !is_held(index + count) {
        let (of_next, next) = claim.get(index + count);
        // A run is one slice of the ring, so its datagrams must be contiguous.
        let is_dense = std::ptr::eq(next.as_ptr(), first.as_ptr().wrapping_add(bytes));
        if !is_dense
            || next.is_empty()
            || !runs.may_share(&of_first, &of_next)
            || next.len() > first.len()
            || bytes + next.len() > RUN_BYTES_MAX
        {
            break;
        }
        count += 1;
        bytes += next.len();
        // Only the last segment of a message may be shorter.
        if next.len() < first.len() {
            break;
        }
    }

    (count, bytes)
}

fn amount_of(message: &Message<'_>) -> Amount {
    Amount { count: u64::from(message.datagrams), bytes: message.bytes.len() as u64 }
}

/// Errors that may be left over from an ICMP message about an earlier datagram, in which case the kernel did not look at the
/// current message (udp(7), IP_RECVERR): the results of `icmp_err_convert` (net/ipv4/icmp.c) and `icmpv6_err_convert`
/// (net/ipv6/icmp.c). If `send` has reasons of its own for one of them, it comes again on a retry.
fn may_be_about_an_earlier_message(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::MSGSIZE
            | Errno::ACCES
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::HOSTDOWN
            | Errno::NONET
    )
}

/// Errors of a run whose datagrams may pass alone: a segment larger than the path allows, a device without checksum offload, or
/// more segments than the kernel allows (net/ipv4/udp.c, udp_send_skb).
fn is_about_the_run(errno: Errno) -> bool {
    matches!(errno, Errno::MSGSIZE | Errno::INVAL | Errno::IO)
}

pub(crate) fn reason_of(errno: Errno) -> Reason {
    match errno {
        Errno::CONNREFUSED => Reason::Refused,
        Errno::HOSTUNREACH => Reason::HostUnreachable,
        Errno::NETUNREACH | Errno::NETDOWN => Reason::NetworkUnreachable,
        Errno::NOBUFS => Reason::EgressQueueFull,
        Errno::PERM | Errno::ACCES => Reason::Firewall,
        Errno::MSGSIZE => Reason::TooBig,
        Errno::DESTADDRREQ => Reason::TargetUnresolved,
        _ => Reason::SendError,
    }
}
