//! The relays in the comparison, as processes.

use crate::contender::{Contender, Programs, Schedule, Weir};
use crate::dead_end::DeadEnds;
use crate::host::{self, Placement};
use crate::process::{self, Resident};
use anyhow::Context;
use load::Address;
use load::spin::Receiver;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The buffer that limitrelay gets: it asks for 64 MiB and the kernel grants twice that. Weir asks for the size that is granted.
const RECEIVE_BUFFER: &str = "128MiB";

/// Longest time until a relay forwards.
const START_LIMIT: Duration = Duration::from_secs(10);

/// The prefix of the name of the thread that reads the listener's socket; the listener's name follows.
const RECEIVING_THREAD_PREFIX: &str = "rx-";

/// Time between two probes of a relay that is starting.
const PROBE_INTERVAL: Duration = Duration::from_micros(200);

/// Compiles limitrelay.c.
pub(crate) fn build_limitrelay(program: &Path) -> anyhow::Result<()> {
    build(concat!(env!("CARGO_MANIFEST_DIR"), "/limitrelay.c"), program)
}

/// Compiles rawrelay.c.
pub(crate) fn build_rawrelay(program: &Path) -> anyhow::Result<()> {
    build(concat!(env!("CARGO_MANIFEST_DIR"), "/rawrelay.c"), program)
}

fn build(source: &str, program: &Path) -> anyhow::Result<()> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(program)
        .arg(source)
        .status()
        .with_context(|| format!("running the C compiler {compiler}"))?;
    anyhow::ensure!(status.success(), "compiling {source}: {status}");
    Ok(())
}

/// A running relay; killed when dropped.
pub(crate) struct Relay {
    pub(crate) contender: Contender,
    pub(crate) addr: SocketAddr,
    /// Every port on which one of its processes receives datagrams.
    ports: Vec<u16>,
    children: Vec<Child>,
}

impl Relay {
    /// Starts the processes of a relay and returns at once.
    pub(crate) fn spawn(
        contender: Contender,
        programs: &Programs,
        targets: &[SocketAddr],
        dead_ends: Option<&DeadEnds>,
    ) -> anyhow::Result<Relay> {
        let addr = free_address()?;
        let mut relay = Relay { contender, addr, ports: vec![addr.port()], children: Vec::new() };

        match contender {
            Contender::Weir(form) => {
                let mut command = weir(programs, addr, targets, form);
                if let Some(kind) = form.beside {
                    let dead_ends = dead_ends.context("no dead end was opened")?;
                    command.args(["--to", &dead_ends.target(kind)?]);
                }
                relay.start(&mut command)?;
            }
            Contender::LimitRelay | Contender::LimitRelayRuns | Contender::LimitRelayTogether => {
                let mut command = Command::new(&programs.limitrelay);
                command.arg(addr.port().to_string());
                command.args(targets.iter().map(SocketAddr::to_string));
                command.args(match contender {
                    Contender::LimitRelayRuns => Some("-r"),
                    Contender::LimitRelayTogether => Some("-g"),
                    _ => None,
                });
                relay.start(&mut command)?;
            }
            Contender::RawRelay => {
                let mut command = Command::new(&programs.rawrelay);
                command.arg(addr.to_string()).args(targets.iter().map(SocketAddr::to_string));
                relay.start(&mut command)?;
            }
            Contender::Socat => relay.start_socat(programs, targets)?,
        }
        Ok(relay)
    }

    /// One process broadcasts received datagrams on loopback, and one per target forwards the broadcasts.
    fn start_socat(&mut self, programs: &Programs, targets: &[SocketAddr]) -> anyhow::Result<()> {
        let socat = programs.socat.as_ref().context("socat is not installed")?;
        let shared = free_address()?.port();
        self.ports.push(shared);
        let own = self.addr.port();

        // SO_RCVBUFFORCE (33) has no name among socat's options. It needs a capability; the plain option does not.
        let may_force = sys::process::effective_capabilities()
            .is_some_and(|set| set >> sys::process::CAP_NET_ADMIN & 1 == 1);
        let buffer =
            if may_force { "setsockopt-listen=1:33:i67108864" } else { "so-rcvbuf=67108864" };

        // 65,536 bytes, because the default of 8,192 truncates.
        let mut run = |from: String, to: String| {
            self.start(Command::new(socat).args(["-u", "-b", "65536", &from, &to]))
        };

        for target in targets {
            run(
                format!("UDP4-RECV:{shared},bind=127.255.255.255,reuseaddr,{buffer}"),
                format!("UDP4-DATAGRAM:{target}"),
            )?;
        }
        run(
            format!("UDP4-RECV:{own},bind=127.0.0.1,{buffer}"),
            format!("UDP4-DATAGRAM:127.255.255.255:{shared},broadcast"),
        )
    }

    fn start(&mut self, command: &mut Command) -> anyhow::Result<()> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {:?}", command.get_program()))?;
        self.children.push(child);
        Ok(())
    }

    /// Probes until each receiver has heard through the relay, then until nothing is on its way any more.
    pub(crate) fn wait_until_ready(&mut self, receivers: &mut [Receiver]) -> anyhow::Result<()> {
        let begin = Instant::now();
        let probe = probe_socket(self.addr)?;
        let mut heard = vec![false; receivers.len()];
        while !heard.iter().all(|heard| *heard) {
            self.check_start(begin)?;
            // A refused probe is the reason to send another.
            let _ = probe.send(&[0; 64]);
            let next = Instant::now() + PROBE_INTERVAL;
            while Instant::now() < next {
                for (receiver, heard) in receivers.iter_mut().zip(&mut heard) {
                    *heard |= receiver.receive() > 0;
                }
            }
        }

        let mut quiet_since = Instant::now();
        while quiet_since.elapsed() < Duration::from_millis(20) {
            if receivers.iter_mut().any(|receiver| receiver.receive() > 0) {
                quiet_since = Instant::now();
            }
        }
        Ok(())
    }

    fn check_start(&mut self, begin: Instant) -> anyhow::Result<()> {
        for child in &mut self.children {
            if let Some(status) = child.try_wait()? {
                anyhow::bail!("{} ended at its start: {status}", self.contender.label());
            }
        }
        let limit_s = START_LIMIT.as_secs();
        let label = self.contender.label();
        anyhow::ensure!(
            begin.elapsed() < START_LIMIT,
            "{label} forwards nothing after {limit_s} s"
        );
        Ok(())
    }

    /// Pins its threads: all to the relays' processors, except the receiving thread of Weir threaded, which has a processor of
    /// its own.
    pub(crate) fn pin(&self, placement: &Placement) -> anyhow::Result<()> {
        for child in &self.children {
            host::pin_process(child.id(), &placement.relay_cpus)?;
        }

        let is_threaded =
            matches!(self.contender, Contender::Weir(weir) if weir.schedule == Schedule::Threaded);
        if !is_threaded {
            return Ok(());
        }

        for child in &self.children {
            let receiving = process::threads_named(child.id(), RECEIVING_THREAD_PREFIX)?;
            anyhow::ensure!(!receiving.is_empty(), "weir has no thread that receives");
            for thread in receiving {
                host::pin_thread(thread, &placement.receive_cpus)?;
            }
        }
        Ok(())
    }

    /// CPU time of all its processes, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> anyhow::Result<u64> {
        self.children.iter().map(|child| process::cpu_ns(child.id())).sum()
    }

    /// Memory of all its processes.
    pub(crate) fn resident(&self) -> anyhow::Result<Resident> {
        let mut sum = Resident::default();
        for child in &self.children {
            let one = process::resident(child.id())?;
            sum.now_kib += one.now_kib;
            sum.peak_kib += one.peak_kib;
        }
        Ok(sum)
    }

    /// Datagrams that the kernel dropped at its sockets so far.
    pub(crate) fn drops(&self) -> u64 {
        // All processes share a network namespace, which may differ from ours.
        let Some(child) = self.children.first() else { return 0 };
        self.ports.iter().map(|port| process::socket_drops(child.id(), *port)).sum()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for child in &mut self.children {
            // A process that has already ended is only waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn weir(programs: &Programs, addr: SocketAddr, targets: &[SocketAddr], form: Weir) -> Command {
    let mut command = Command::new(&programs.weir);
    command.args(["relay", "--listen", &addr.to_string(), "--schedule", form.schedule.name()]);
    command.args(["--receive-buffer", RECEIVE_BUFFER, "--progress", "off"]);
    command.args(form.gathering.args()).args(form.receive.args());
    for target in targets {
        command.args(["--to", &format!("{target}{}", form.source.option())]);
    }
    command
}

/// Time from starting a relay's process until the first datagram arrives through it.
pub(crate) fn start_time(
    contender: Contender,
    programs: &Programs,
    receiver: &mut Receiver,
) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let mut relay = Relay::spawn(contender, programs, &[udp(receiver)?], None)?;
    let probe = probe_socket(relay.addr)?;

    loop {
        relay.check_start(begin)?;
        // A refused probe is simply repeated.
        let _ = probe.send(&[0; 64]);

        let next = Instant::now() + PROBE_INTERVAL;
        while Instant::now() < next {
            if receiver.receive() > 0 {
                return Ok(begin.elapsed());
            }
        }
    }
}

/// The UDP address of a receiver.
pub(crate) fn udp(receiver: &Receiver) -> anyhow::Result<SocketAddr> {
    match receiver.address() {
        Address::Udp(addr) => Ok(*addr),
        Address::Unix(_) => anyhow::bail!("a receiver has no address of UDP"),
    }
}

fn probe_socket(addr: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").context("opening a probe's socket")?;
    socket.connect(addr).context("connecting a probe's socket")?;
    Ok(socket)
}

/// An address that was free a moment ago.
fn free_address() -> anyhow::Result<SocketAddr> {
    let socket = UdpSocket::bind("127.0.0.1:0").context("looking for a free port")?;
    Ok(socket.local_addr()?)
}
