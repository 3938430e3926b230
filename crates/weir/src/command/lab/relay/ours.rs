//! Our own relay, as a child process.

use crate::command::ledger;
use ::ledger::Snapshot;
use ::load::Address;
use ::load::join::RelayLedger;
use lab::relay_sweep::Relay;
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
        Ok(Some(RelayLedger::of(snapshot, targets)))
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
