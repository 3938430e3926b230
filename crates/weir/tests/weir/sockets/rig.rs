//! Sockets to look at, and `weir sockets` to look with.

use crate::support::WEIR;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use testkit::{Netns, Peer};

/// `weir sockets` with these arguments, here.
pub(crate) fn sockets(args: &[&str]) -> Command {
    let mut command = Command::new(WEIR);
    command.arg("sockets").args(args).env_remove("COLUMNS");
    command
}

/// The same in a namespace.
pub(crate) fn sockets_in(netns: &Netns, args: &[&str]) -> Command {
    let mut command = netns.command(WEIR);
    command.arg("sockets").args(args).env_remove("COLUMNS");
    command
}

/// Runs it to its end.
pub(crate) fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// Runs it, expects code 0, and returns standard output.
#[track_caller]
pub(crate) fn text(command: Command) -> String {
    let output = output(command);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// What it said on standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The objects of JSON lines.
#[track_caller]
pub(crate) fn records(command: Command) -> Vec<Value> {
    text(command).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Both ends of a connection on loopback.
pub(crate) struct Connection {
    pub(crate) near: TcpStream,
    pub(crate) far: TcpStream,
}

/// Connects to a listener at this address, port 0 for any.
pub(crate) fn connect(at: &str) -> Connection {
    let listener = TcpListener::bind(at).unwrap();
    connect_to(&listener, listener.local_addr().unwrap())
}

/// Connects to an address at which this listener listens.
pub(crate) fn connect_to(listener: &TcpListener, at: SocketAddr) -> Connection {
    let near = TcpStream::connect(at).unwrap();
    let (far, _) = listener.accept().unwrap();
    Connection { near, far }
}

impl Connection {
    pub(crate) fn near_address(&self) -> SocketAddr {
        self.near.local_addr().unwrap()
    }

    pub(crate) fn far_address(&self) -> SocketAddr {
        self.near.peer_addr().unwrap()
    }

    /// A filter that only its two sockets pass.
    pub(crate) fn filter(&self) -> String {
        let port = self.near_address().port();
        format!("sport = :{port} or dport = :{port}")
    }
}

/// Processes in a namespace that hold many connections.
pub(crate) struct Many {
    _peer: Peer,
}

impl Many {
    pub(crate) fn make(netns: &Netns, connections: usize) -> Many {
        let script = testkit::root().join("crates/weir/tests/weir/sockets/make_sockets.py");
        let mut command = netns.command("python3");
        command.arg(script).arg(connections.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut peer = Peer::start(&mut command);
        let mut line = String::new();
        BufReader::new(peer.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{connections} connections");
        Many { _peer: peer }
    }
}

impl Drop for Many {
    fn drop(&mut self) {
        // The processes end with their standard input; then their sockets are gone with them.
        drop(self._peer.0.stdin.take());
        let _ = self._peer.0.wait();
    }
}
