//! The relays that can be measured: our own, as a child process, and one that runs already.

use crate::command::ledger;
use ::ledger::{HopKind, Snapshot};
use lab::Address;
use lab::relay_sweep::{Lost, Relay, RelayLedger};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

type Failed = Box<dyn Error + Send + Sync>;

/// `weir relay` as a child of the thread that uses this, on loopback. In a network namespace of its own all ports are free.
#[derive(Default)]
pub(super) struct Ours {
    running: Option<Running>,
}

/// Ends with its owner.
struct Running {
    child: Child,
    targets: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5_514);
const ADMIN: &str = "127.0.0.1:9464";
/// Longer than a relay takes to start or to send what it has.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Relay for Ours {
    fn receivers(&self, targets: usize) -> Vec<Address> {
        vec![Address::Udp((Ipv4Addr::LOCALHOST, 0).into()); targets]
    }

    fn start(&mut self, targets: &[Address]) -> Result<Address, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["relay", "--progress", "off", "--log-level", "error", "--admin", ADMIN]);
        command.arg("--listen").arg(LISTEN.to_string());
        for target in targets {
            command.arg("--to").arg(target.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = sys::process::die_with_this_thread(&mut command).spawn()?;
        self.running = Some(Running { child, targets: targets.len() });
        self.wait_until(|_| true)?;
        Ok(Address::Udp(LISTEN))
    }

    fn stop(&mut self) -> Result<Option<RelayLedger>, Failed> {
        let targets = self.running.as_ref().map_or(0, |running| running.targets);
        let snapshot = self.wait_until(|snapshot| snapshot.unaccounted() == 0)?;
        self.running = None;
        Ok(Some(summary(&snapshot, targets)?))
    }
}

impl Ours {
    /// Asks for the ledger until it is as wanted.
    fn wait_until(&mut self, is_wanted: impl Fn(&Snapshot) -> bool) -> Result<Snapshot, Failed> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let running = self.running.as_mut().ok_or("no relay runs")?;
            if let Some(status) = running.child.try_wait()? {
                let mut words = String::new();
                let mut stderr = running.child.stderr.take();
                stderr.as_mut().map_or(Ok(0), |stderr| stderr.read_to_string(&mut words))?;
                return Err(format!("weir relay ended, {status}: {}", words.trim()).into());
            }
            match ledger::fetch(ADMIN) {
                Ok(snapshot) if is_wanted(&snapshot) => return Ok(snapshot),
                // What it still has after all this time is in the ledger as such.
                Ok(snapshot) if Instant::now() > deadline => return Ok(snapshot),
                Err(error) if Instant::now() > deadline => {
                    return Err(io::Error::other(error).into());
                }
                _ => thread::sleep(LOOK_AGAIN),
            }
        }
    }
}

/// What a ledger says, with losses before the copy for the targets counted once for each target.
fn summary(snapshot: &Snapshot, targets: usize) -> Result<RelayLedger, serde_json::Error> {
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    for loss in snapshot.unintended_losses() {
        let copies = if loss.hop.target.is_some() { 1 } else { targets as u64 };
        let at = format!("{}: {}", loss.hop.hop.label(), loss.reason.label());
        *lost.entry(at).or_default() += loss.amount.count * copies;
    }
    let mut lost: Vec<Lost> = lost.into_iter().map(|(at, copies)| Lost { at, copies }).collect();
    lost.retain(|lost| lost.copies > 0);
    lost.sort_by_key(|lost| std::cmp::Reverse(lost.copies));
    let of = |kind: HopKind| snapshot.hops.iter().filter(move |hop| hop.hop == kind);
    Ok(RelayLedger {
        received: of(HopKind::Socket).map(|hop| hop.received.count).sum(),
        sent: of(HopKind::Target).map(|hop| hop.delivered.count).sum(),
        lost,
        balanced: snapshot.is_balanced(),
        snapshot: serde_json::to_value(snapshot)?,
    })
}

/// A relay that somebody else started and told where to send.
#[derive(Clone)]
pub(super) struct Elsewhere {
    pub(super) to: Address,
    pub(super) receive: Vec<Address>,
}

impl Relay for Elsewhere {
    fn receivers(&self, _targets: usize) -> Vec<Address> {
        self.receive.clone()
    }

    fn start(&mut self, _targets: &[Address]) -> Result<Address, Failed> {
        Ok(self.to.clone())
    }

    fn stop(&mut self) -> Result<Option<RelayLedger>, Failed> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::ledger::{Amount, HopBuilder, Reason};

    #[test]
    fn what_is_lost_before_the_copy_is_lost_for_every_target() {
        let amount = |count| Amount { count, bytes: count * 10 };
        let hop = |kind, target, reason, received, dropped| {
            HopBuilder::new(kind, "a", target, amount(0))
                .delivered(amount(received - dropped))
                .dropped(reason, amount(dropped))
                .finish(amount(received))
        };
        let hops = vec![
            hop(HopKind::Socket, None, Reason::SocketBuffer, 100, 10),
            hop(HopKind::Target, Some("x"), Reason::QueueFull, 90, 4),
            hop(HopKind::Target, Some("y"), Reason::QueueFull, 90, 3),
        ];
        let ledger = summary(&Snapshot { hops, ..Snapshot::default() }, 2).unwrap();
        assert_eq!((ledger.received, ledger.sent, ledger.balanced), (100, 173, true));
        let lost = |at: &str, copies| Lost { at: at.to_owned(), copies };
        assert_eq!(ledger.lost, [lost("socket: socket_buffer", 20), lost("target: queue_full", 7)]);
    }
}
