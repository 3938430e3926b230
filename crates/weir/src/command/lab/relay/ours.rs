//! Our own relay, as a child process.

use crate::ask::{Daemon, Proof};
use crate::command::ledger;
use ::ledger::{HopKind, Snapshot};
use ::load::Address;
use ::load::join::RelayLedger;
use lab::relay_sweep::Relay;
use lab::stages::{Counts, Shape, Staged};
use std::error::Error;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

type Failed = Box<dyn Error + Send + Sync>;

/// `weir relay` as a child of the calling thread, on loopback. In its own network namespace all ports are free.
#[derive(Default)]
pub(super) struct Ours {
    running: Option<Running>,
}

/// The child ends with its owner.
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
/// More than a relay needs to start or to send what it holds.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Relay for Ours {
    fn receivers(&self, targets: usize) -> Vec<Address> {
        vec![Address::Udp((Ipv4Addr::LOCALHOST, 0).into()); targets]
    }

    fn start(&mut self, targets: &[Address]) -> Result<Address, Failed> {
        let targets: Vec<String> = targets.iter().map(Address::to_string).collect();
        self.start_with(&LISTEN.to_string(), &targets, &[])
    }

    fn stop(&mut self) -> Result<Option<RelayLedger>, Failed> {
        let targets = self.running.as_ref().map_or(0, |running| running.targets);
        let snapshot = self.wait_until(|snapshot| snapshot.unaccounted() == 0)?;
        self.running = None;
        Ok(Some(RelayLedger::of(snapshot, targets)))
    }
}

/// The listener and its threads are named `in`.
impl Staged for Ours {
    fn start(&mut self, shape: Shape, targets: &[Address]) -> Result<(Address, u32), Failed> {
        let mut to: Vec<String> = targets.iter().map(Address::to_string).collect();
        if to.is_empty() {
            to.push("null:".to_owned());
        }
        // Wait long for threads that the scheduler delays: we measure how many datagrams pass, so none may be given up early.
        let several = if shape.sockets > 1 { "&order_wait=10s" } else { "" };
        let listen = format!("{LISTEN}?name=in&sockets={}{several}", shape.sockets);
        let address = self.start_with(&listen, &to, &["--schedule", shape.schedule.name()])?;
        let pid = self.running.as_ref().map(|running| running.child.id());
        Ok((address, pid.ok_or("no relay runs")?))
    }

    fn counts(&mut self) -> Result<Counts, Failed> {
        let snapshot = self.wait_until(|_| true)?;
        let of = |kind| {
            let hops = snapshot.hops.iter().filter(move |hop| hop.hop == kind);
            hops.map(|hop| hop.delivered.count).sum()
        };
        Ok(Counts { read: of(HopKind::Socket), sent: of(HopKind::Target) })
    }

    fn stop(&mut self) {
        self.running = None;
    }
}

impl Ours {
    fn start_with(
        &mut self,
        listen: &str,
        targets: &[String],
        more: &[&str],
    ) -> Result<Address, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["relay", "--progress", "off", "--log-level", "error", "--admin", ADMIN]);
        command.args(more).args(["--listen", listen]);
        for target in targets {
            command.args(["--to", target]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = sys::process::die_with_this_thread(&mut command).spawn()?;
        self.running = Some(Running { child, targets: targets.len() });
        self.wait_until(|_| true)?;
        Ok(Address::Udp(LISTEN))
    }

    /// Asks for the ledger until `is_wanted` accepts it, or the deadline has passed.
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

            match ledger::fetch(&Daemon::at(ADMIN, &Proof::default())) {
                Ok(snapshot) if is_wanted(&snapshot) => return Ok(snapshot),
                // What the relay still holds after all this time is in the ledger anyway.
                Ok(snapshot) if Instant::now() > deadline => return Ok(snapshot),
                Err(error) if Instant::now() > deadline => {
                    return Err(io::Error::other(error).into());
                }
                _ => thread::sleep(LOOK_AGAIN),
            }
        }
    }
}
