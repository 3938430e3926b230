//! The end: drain within the grace period, and report what became of everything.

use super::http::Bound;
use super::progress::say_folded;
use super::{Daemon, Ending, Event, Why};
use crate::exit::{self, Failure};
use crate::live;
use admin::{Phase, Said};
use ledger::{Amount, HopKind, HopSnapshot, Reason, Snapshot, Way};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use text::plural;
use text::units::display_duration;

/// A second signal within this time of the one that began the stop counts as the same request.
const SAME_REQUEST: Duration = Duration::from_nanos(sys::signal::SAME_REQUEST_NS);
/// Time between two checks of the drain.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// How the last ledger is printed, and whether loss affects the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastLedger {
    pub(crate) form: LedgerForm,
    pub(crate) on_loss: OnLoss,
}

/// The form of the last ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LedgerForm {
    /// A waterfall on standard error.
    Text,
    /// The waterfall, and JSON on standard output.
    Json,
}

/// Whether loss during the run makes the exit code a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnLoss {
    Ignore,
    Fail,
}

/// What the stop dropped at one hop.
struct Left<'a> {
    hop: &'a HopSnapshot,
    amount: Amount,
}

impl Left<'_> {
    /// Whether it had been received. What arrives at the socket after the stop has begun was not.
    fn was_received(&self) -> bool {
        self.hop.hop != HopKind::Socket
    }
}

impl Daemon {
    /// Drains, prints the last ledger, and returns the exit code.
    pub(super) fn stop(mut self) -> anyhow::Result<ExitCode> {
        let last = self.last_ledger;
        live::end();
        self.health.set_phase(Phase::Draining);
        self.service.stopping();
        tracing::info!(
            "stopping: sending what was received, for at most {}",
            display_duration(self.config.daemon.drain_grace)
        );

        // First, so that nobody waits for them, and what they have not read is not left behind by this stop.
        self.followers.end(Why::Stop, || self.service.keep_stopping());

        // Listeners closed by a reload have also refused datagrams; those drops do not belong to this stop.
        let before = self.ledger.snapshot();
        let begun = Instant::now();
        let deadline = self.drain(begun);
        self.ways.refresh();
        let snapshot = self.ledger.check();
        // What was written last may be what could not be.
        self.pipes.look(&self.config, &snapshot);
        self.pipes.say_why_they_end();
        let left = left(&before, &snapshot);

        self.admin_bound.remove_file(&Bound::default());
        self.admin_bound = Bound::default();

        // Before everything that waits for others: a supervisor that loses patience must not cost us the last ledger.
        say_folded(&report(&snapshot, &left));
        let json = match last.form {
            LedgerForm::Text => String::new(),
            LedgerForm::Json => serde_json::to_string(&snapshot)? + "\n",
        };
        let code = match exit_code(&snapshot, &left, last.on_loss) {
            0 if self.pipes.has_failed() => Failure::Io as u8,
            code => code,
        };
        let ended = exit::print_and_end(&json, ExitCode::from(code));
        // For a command that waits at the admin server.
        let lines = verdict(&snapshot, &left).lines().map(str::to_owned).collect();
        self.health.ended(Said { code, lines });

        self.end_mitigations(begun, deadline);
        if let Some(http) = self.http.take() {
            // A push or an answer that has not finished by then is lost.
            let _ = http.stop(|| self.service.keep_stopping());
        }

        ended
    }

    /// Waits until the speakers have withdrawn what they have to, for what is left of the time to drain.
    fn end_mitigations(&mut self, begun: Instant, mut deadline: Instant) {
        while !self.mitigations.have_stopped() && Instant::now() < deadline {
            self.service.keep_stopping();
            match self.events.recv_timeout(LOOK_INTERVAL) {
                Ok(Event::Signal(SIGINT | SIGTERM)) if begun.elapsed() >= SAME_REQUEST => {
                    tracing::warn!(
                        "a second signal: routes that speakers have not withdrawn stay with them"
                    );
                    deadline = Instant::now();
                }
                _ => {}
            }
        }
        self.mitigations.finish(deadline, || self.service.keep_stopping());
    }

    /// Drains what was received. Returns the deadline, which a second signal moves up.
    fn drain(&mut self, begun: Instant) -> Instant {
        let mut deadline = begun + self.config.daemon.drain_grace;

        // A prepared collector that waits for another to end never starts.
        self.prepared = None;
        self.end_collector();
        self.begin_stop(deadline);

        loop {
            let has_ended = |listener: &relay::Listener| listener.has_ended();
            let now = Instant::now();
            let are_sources_done = self.ending.as_ref().is_none_or(Ending::has_ended)
                && self.running.iter().all(|one| has_ended(&one.listener))
                && self.retiring.iter().all(|one| has_ended(&one.listener));
            if are_sources_done {
                // No more input. First the last events and flow rows go to the sinks; then the sinks may drain.
                self.flows.tell_all();
                self.sinks.close(deadline);
            }
            let is_drained = are_sources_done && self.sinks.has_drained();
            // The speakers have the rest of the time, after the last ledger: one that hangs holds up nothing else.
            if is_drained || now >= deadline {
                break;
            }

            self.service.keep_stopping();
            self.observe(now);

            match self.events.recv_timeout(LOOK_INTERVAL) {
                Ok(Event::Signal(SIGUSR1)) => self.say_ledger(),
                // Within half a second it is the same request: timeout(1) signals a process and then its group.
                Ok(Event::Signal(SIGINT | SIGTERM)) if begun.elapsed() >= SAME_REQUEST => {
                    tracing::warn!("a second signal: what is left is dropped, and counted");
                    deadline = deadline.min(now);
                    self.begin_stop(deadline);
                }
                _ => {}
            }
        }

        let running = self.running.drain(..).map(|one| (one.listener, one.file));
        let retiring = self.retiring.drain(..).map(|one| (one.listener, None));

        // In this order, because a running listener's drop count is newer than a retired one's for the same inherited socket.
        for (listener, file) in retiring.chain(running) {
            if let Some(file) = file {
                file.remove();
            }

            self.service.extend_timeout(Instant::now());
            // Waits only a moment past the deadline, even for a thread that hangs on a disk.
            let cookie = sys::socket::cookie(listener.socket());
            let is_theirs = listener.options().socket_owner == relay::SocketOwner::ServiceManager;
            let counted = listener.finish_stop();
            if let Some(cookie) = cookie.ok().filter(|_| is_theirs) {
                self.drops.note_last(cookie, counted);
            }
        }

        // No ring holds anything more: the analysis has all it will get.
        self.flows.finish();
        if let Some(ending) = self.ending.take() {
            ending.finish(deadline);
        }
        self.sinks.close(deadline);
        self.sinks.finish(&self.ledger);
        deadline
    }

    fn begin_stop(&mut self, deadline: Instant) {
        self.mitigations.begin_stop(deadline);
        self.sinks.hurry(deadline);
        for one in &self.running {
            one.listener.begin_stop(deadline);
        }
        for one in &self.retiring {
            one.listener.begin_stop(deadline);
        }
    }
}

/// The last ledger in words. Its last line says how much is unaccounted.
fn report(snapshot: &Snapshot, left: &[Left<'_>]) -> String {
    let mut text = format!("\n{}", ledger::waterfall_without_balance(snapshot));
    text.push_str(&verdict(snapshot, left));
    text
}

/// What was left behind, and how much is unaccounted.
fn verdict(snapshot: &Snapshot, left: &[Left<'_>]) -> String {
    let left: String = left.iter().map(describe).collect();
    format!("{left}unaccounted: {}\n", broken(snapshot))
}

/// What each hop dropped because of the stop, between two snapshots.
fn left<'a>(before: &Snapshot, after: &'a Snapshot) -> Vec<Left<'a>> {
    let dropped = |hop: &HopSnapshot| match hop.hop {
        HopKind::Sink => {
            let left = hop.undelivered().filter(|(way, _)| is_left_by_a_sink(*way));
            left.map(|(_, amount)| amount).sum()
        }
        _ => hop.dropped_for(Reason::Shutdown),
    };

    let rest = |hop: &'a HopSnapshot| {
        let earlier = before.hop(hop.hop, &hop.origin, hop.target.as_deref());
        let earlier = earlier.map(dropped).unwrap_or_default();
        let amount = dropped(hop).saturating_sub(earlier);
        (!amount.is_zero()).then_some(Left { hop, amount })
    };

    after.whole_hops().filter_map(rest).collect()
}

/// Whether a sink would have tried again if it had not been stopped. While its destination fails, it counts what it drops at
/// the end under the cause, such as a full disk. Records without an answer are left behind too: nobody can say whether they
/// arrived.
fn is_left_by_a_sink(way: Way) -> bool {
    match way {
        Way::Dropped(
            Reason::Shutdown
            | Reason::WriteError
            | Reason::SendError
            | Reason::Unavailable
            | Reason::SpoolUnsynced,
        )
        | Way::Uncertain => true,
        // Kept records are delivered after the next start.
        Way::Dropped(_) | Way::Rejected(_) | Way::Kept => false,
    }
}

fn describe(left: &Left<'_>) -> String {
    let (Amount { count, bytes }, origin) = (left.amount, &left.hop.origin);
    let datagrams = plural(count, "datagram", "datagrams");
    if !left.was_received() {
        return format!("refused: {datagrams} that arrived at {origin} after the stop began\n");
    }

    let bytes = plural(bytes, "byte", "bytes");
    let target = left.hop.target.as_deref().unwrap_or("nobody");
    if left.hop.hop == HopKind::Sink {
        let records = plural(count, "record", "records");
        return format!(
            "left behind: {records} ({bytes}) of {origin} that sink {target} had not delivered\n"
        );
    }
    format!("left behind: {datagrams} ({bytes}) of {origin} that {target} had not taken\n")
}

/// By how much the ledger does not balance. After everything has ended, what is in flight is unaccounted too.
fn broken(snapshot: &Snapshot) -> u64 {
    snapshot.unaccounted().unsigned_abs()
}

fn exit_code(snapshot: &Snapshot, left: &[Left<'_>], on_loss: OnLoss) -> u8 {
    if broken(snapshot) != 0 || !snapshot.is_balanced() {
        return Failure::Accounting as u8;
    }
    if left.iter().any(Left::was_received) {
        return Failure::DrainedIncompletely as u8;
    }
    if on_loss == OnLoss::Fail && !snapshot.unintended_losses().is_empty() {
        return Failure::CheckFailed as u8;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{HopBuilder, RejectClass, SinkCounters};

    /// What is left behind, and the exit code, after a sink counted something during the stop.
    fn stopped(count: impl Fn(&SinkCounters)) -> (u64, u8) {
        let counters = SinkCounters::default();
        let all = Amount { count: 10, bytes: 100 };
        let snapshot = |received: Amount| {
            let hop = HopBuilder::new(HopKind::Sink, "sockets", Some("s"), received);
            let hops = vec![hop.left_sink(&counters).finish(received)];
            Snapshot { hops, ..Snapshot::default() }
        };

        let before = snapshot(Amount::default());
        count(&counters);
        let after = snapshot(all);
        let left = left(&before, &after);
        let count = left.iter().map(|left| left.amount.count).sum();
        (count, exit_code(&after, &left, OnLoss::Ignore))
    }

    #[test]
    fn what_a_sink_could_not_deliver_or_got_no_answer_for_is_left_behind() {
        let all = Amount { count: 10, bytes: 100 };
        let incomplete = Failure::DrainedIncompletely as u8;
        assert_eq!(stopped(|sink| sink.drop(Reason::Shutdown, all)), (10, incomplete));
        assert_eq!(stopped(|sink| sink.drop(Reason::Unavailable, all)), (10, incomplete));
        assert_eq!(stopped(|sink| sink.drop(Reason::SpoolUnsynced, all)), (10, incomplete));
        assert_eq!(stopped(|sink| sink.uncertain(all)), (10, incomplete));
        assert_eq!(stopped(|sink| sink.acknowledge(all)), (0, 0));
        assert_eq!(stopped(|sink| sink.keep(all)), (0, 0));
        assert_eq!(stopped(|sink| sink.drop(Reason::Expired, all)), (0, 0));
        assert_eq!(stopped(|sink| sink.drop(Reason::Refused, all)), (0, 0));
        assert_eq!(stopped(|sink| sink.drop(Reason::NotInFormat, all)), (0, 0));
        let reject = |sink: &SinkCounters| sink.reject(RejectClass::Other, all);
        assert_eq!(stopped(reject), (0, 0));
    }
}
