//! The end: drain within the grace period, and say what became of everything.

use super::progress::say;
use super::{Daemon, Event};
use crate::exit::Failure;
use admin::Phase;
use ledger::{Amount, HopKind, HopSnapshot, Reason, Snapshot};
use signal_hook::consts::SIGHUP;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir::config::units::display_duration;

/// Time between two looks at the drain.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How long after the deadline a thread may still hang, in a disk for instance.
const HANG_LIMIT: Duration = Duration::from_secs(5);

/// How the last ledger is told.
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
    /// That, and JSON on standard output.
    Json,
}

/// What the exit code says about loss while the daemon ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnLoss {
    Ignore,
    Fail,
}

/// What the drain left behind.
#[derive(Default)]
struct Drained {
    /// Listeners whose threads did not end.
    hanging: Vec<String>,
    /// What was dropped because of the stop, in words.
    left: Vec<String>,
}

impl Daemon {
    /// Drains, prints the last ledger, and says how it went.
    pub(super) fn stop(mut self, last: LastLedger) -> anyhow::Result<ExitCode> {
        self.health.set_phase(Phase::Draining);
        self.service.stopping();
        tracing::info!(
            "stopping: sending what was received, for at most {}",
            display_duration(self.config.daemon.drain_grace)
        );
        // Listeners that a reload closed have refused datagrams too: that was not this stop.
        let before = self.ledger.snapshot();
        let mut drained = self.drain();
        let snapshot = self.ledger.check();
        drained.left = left(&before, &snapshot);
        self.admin_listener = None;
        if let Some(http) = self.http.take() {
            http.stop();
        }
        say(&report(&snapshot, &drained));
        if last.form == LedgerForm::Json {
            let mut out = std::io::stdout().lock();
            serde_json::to_writer(&mut out, &snapshot)?;
            writeln!(out)?;
        }
        Ok(exit_code(&snapshot, &drained, last.on_loss))
    }

    fn drain(&mut self) -> Drained {
        let mut deadline = Instant::now() + self.config.daemon.drain_grace;
        self.begin_stop(deadline);
        loop {
            let has_ended = |listener: &relay::Listener| listener.has_ended();
            let is_done = self.running.iter().all(|one| has_ended(&one.listener))
                && self.retiring.iter().all(|one| has_ended(&one.listener));
            let now = Instant::now();
            if is_done || now >= deadline + HANG_LIMIT {
                break;
            }
            self.service.extend_timeout(now);
            self.service.feed_watchdog_while_draining(now);
            self.observe(now);
            match self.events.recv_timeout(LOOK_INTERVAL) {
                Ok(Event::Signal(signal)) if signal != SIGHUP => {
                    tracing::warn!("a second signal: what is left is dropped, and counted");
                    deadline = deadline.min(now);
                    self.begin_stop(deadline);
                }
                _ => {}
            }
        }
        let mut drained = Drained::default();
        let running = self.running.drain(..).map(|one| (one.listener, one.file));
        let retiring = self.retiring.drain(..).map(|one| (one.listener, None));
        for (listener, file) in running.chain(retiring) {
            if let Some(file) = file {
                file.remove();
            }
            if listener.has_ended() {
                listener.finish_stop();
            } else {
                drained.hanging.push(listener.name().to_owned());
                // Dropping it would wait for its threads.
                std::mem::forget(listener);
            }
        }
        drained
    }

    fn begin_stop(&self, deadline: Instant) {
        for one in &self.running {
            one.listener.begin_stop(deadline);
        }
        for one in &self.retiring {
            one.listener.begin_stop(deadline);
        }
    }
}

/// The last ledger in words. Its last line says what is unaccounted.
fn report(snapshot: &Snapshot, drained: &Drained) -> String {
    let mut text = format!("\n{}", ledger::waterfall(snapshot));
    for rest in &drained.left {
        text.push_str(&format!("left behind: {rest}\n"));
    }
    for name in &drained.hanging {
        text.push_str(&format!(
            "listener {name} did not end: a thread of it hangs in a system call\n"
        ));
    }
    text.push_str(&format!("unaccounted: {}\n", broken(snapshot)));
    text
}

/// What each hop has dropped as `shutdown` between two snapshots, in words.
fn left(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let rest = |hop: &HopSnapshot| {
        let earlier = before.hop(hop.hop, &hop.listener, hop.target.as_deref());
        let earlier = earlier.map(|hop| hop.dropped_for(Reason::Shutdown)).unwrap_or_default();
        let more = hop.dropped_for(Reason::Shutdown).saturating_sub(earlier);
        (!more.is_zero()).then(|| describe(hop, more))
    };
    after.hops.iter().filter_map(rest).collect()
}

fn describe(hop: &HopSnapshot, Amount { count, bytes }: Amount) -> String {
    let listener = &hop.listener;
    match (hop.hop, &hop.target) {
        (HopKind::Socket, _) => {
            format!("{count} datagrams that arrived at {listener} after the stop began")
        }
        (_, target) => format!(
            "{count} datagrams ({bytes} bytes) of {listener} that {} had not taken",
            target.as_deref().unwrap_or("nobody")
        ),
    }
}

/// By how much the law fails. After everything has ended, what is inside a hop has no name either.
fn broken(snapshot: &Snapshot) -> u64 {
    snapshot.unaccounted().unsigned_abs()
}

fn exit_code(snapshot: &Snapshot, drained: &Drained, on_loss: OnLoss) -> ExitCode {
    if !drained.hanging.is_empty() {
        return Failure::DrainedIncompletely.code();
    }
    if broken(snapshot) != 0 || !snapshot.is_balanced() {
        return Failure::Accounting.code();
    }
    if !drained.left.is_empty() {
        return Failure::DrainedIncompletely.code();
    }
    if on_loss == OnLoss::Fail && !snapshot.unintended_losses().is_empty() {
        return Failure::CheckFailed.code();
    }
    ExitCode::SUCCESS
}
