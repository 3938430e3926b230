//! Sockets to poll: processes that hold connections, in separate namespaces.

use anyhow::Context;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use sys::namespace::{Home, OpenNamespace};

/// A network namespace with loopback, removed when dropped.
pub(crate) struct Namespace(String);

impl Namespace {
    pub(crate) fn new(name: &str) -> anyhow::Result<Namespace> {
        let name = format!("weirbench-{name}-{}", std::process::id());
        ip(&format!("netns add {name}\n"))?;
        let namespace = Namespace(name);
        up(namespace.name())?;
        Ok(namespace)
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&format!("netns del {}\n", self.0));
    }
}

fn up(name: &str) -> anyhow::Result<()> {
    let status = Command::new("ip").args(["-n", name, "link", "set", "lo", "up"]).status()?;
    anyhow::ensure!(status.success(), "loopback of {name} does not come up");
    Ok(())
}

/// Passes lines of commands to ip(8).
fn ip(lines: &str) -> anyhow::Result<()> {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("no pipe")?.write_all(lines.as_bytes())?;
    anyhow::ensure!(child.wait()?.success(), "ip(8) failed; this needs root");
    Ok(())
}

/// Sockets that stay open until dropped.
#[derive(Default)]
pub(super) struct Population {
    holders: Vec<Child>,
    namespaces: Vec<Namespace>,
    streams: Vec<TcpStream>,
    listeners: Vec<TcpListener>,
}

/// Sockets of one holder: fewer than the number of descriptors to which a process may usually raise its limit.
const SOCKETS_PER_HOLDER: usize = 5_000;

impl Population {
    /// Opens `sockets` connected sockets in one namespace: a third IPv4, a third IPv6, a third IPv4 to a dual-stack listener.
    pub(super) fn in_one(namespace: &Namespace, sockets: usize) -> anyhow::Result<Population> {
        let mut population = Population::default();
        let mut left = sockets;
        while left > 0 {
            let now = left.min(SOCKETS_PER_HOLDER);
            population.holders.push(holder(namespace.name(), now)?);
            left -= now;
        }
        Ok(population)
    }

    /// Opens a listener and a connection to it in each of `count` namespaces.
    pub(super) fn in_namespaces(count: usize) -> anyhow::Result<Population> {
        let home = Home::remember().context("the own namespace")?;
        let mut population = Population::default();

        for number in 0..count {
            let namespace = Namespace::new(&number.to_string())?;
            let path = format!("/run/netns/{}", namespace.name());
            let open = OpenNamespace::open(path.as_ref())?;
            let (listener, ends) =
                home.enter(&open, || connect(1, Ipv4Addr::LOCALHOST.into()))??;

            population.namespaces.push(namespace);
            population.listeners.push(listener);
            population.streams.extend(ends);
        }
        Ok(population)
    }

    /// Runs `f` while a byte is sent on each connection of [`Self::in_namespaces`] four times a second.
    pub(super) fn sending<R>(&self, f: impl FnOnce() -> R) -> R {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // Few enough that no receive buffer fills up.
                    for mut stream in &self.streams {
                        let _ = stream.write(&[0]);
                    }
                    std::thread::sleep(Duration::from_millis(250));
                }
            });

            let result = f();
            is_over.store(true, Ordering::Relaxed);
            result
        })
    }
}

impl Drop for Population {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// Starts a process that holds sockets, and waits until it holds them.
fn holder(namespace: &str, sockets: usize) -> anyhow::Result<Child> {
    let program = std::env::current_exe()?;
    let mut child = Command::new("ip")
        .args([
            "netns",
            "exec",
            namespace,
            "sh",
            "-c",
            "ulimit -n $(ulimit -H -n); exec \"$@\"",
            "sh",
        ])
        .arg(program)
        .args(["hold", &sockets.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;

    let mut ready = [0];
    let out = child.stdout.as_mut().context("no pipe")?;
    if let Err(error) = out.read_exact(&mut ready) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(error)
            .context("a holder of sockets has ended: how many descriptors may it open?");
    }
    Ok(child)
}

/// Holds sockets until its input ends; for the bench itself.
#[derive(clap::Args)]
pub(crate) struct HoldArgs {
    /// Number of connected sockets, both ends counted.
    sockets: usize,
}

pub(crate) fn hold(args: &HoldArgs) -> anyhow::Result<()> {
    let third = args.sockets / 6;
    let rest = args.sockets / 2 - 2 * third;

    let mut held = Vec::new();
    for (pairs, listen) in [
        (third, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).ip()),
        (third, SocketAddr::from((Ipv6Addr::LOCALHOST, 0)).ip()),
        (rest, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)).ip()),
    ] {
        held.push(connect(pairs, listen)?);
    }

    std::io::stdout().write_all(b"r")?;
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Opens connections to a listener, and keeps both ends. A listener on the wildcard address is reached by IPv4.
fn connect(
    pairs: usize,
    listen: std::net::IpAddr,
) -> std::io::Result<(TcpListener, Vec<TcpStream>)> {
    let listener = TcpListener::bind((listen, 0))?;
    let port = listener.local_addr()?.port();
    let to = if listen.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { listen };
    let mut ends = Vec::with_capacity(pairs * 2);
    for _ in 0..pairs {
        ends.push(TcpStream::connect((to, port))?);
        ends.push(listener.accept()?.0);
    }
    Ok((listener, ends))
}
