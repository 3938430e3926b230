//! The real binary as a process: started, watched through its ledger, stopped, and judged by its last ledger.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic as the test does")]

use ledger::{HopKind, HopSnapshot, Snapshot};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that is meant to happen; machines under load are slow.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Time between two looks at a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The binary under test.
pub(crate) const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// Waits until `look` finds something; the test fails with what `describe` says when the deadline passes.
pub(crate) fn wait_for<T>(describe: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out: {}", describe());
        thread::park_timeout(LOOK_INTERVAL);
    }
}

/// A port of loopback that was free a moment ago, for UDP and TCP; below the ports that the kernel chooses by itself.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(97);
    loop {
        let step = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let at = ("127.0.0.1", 20_000 + (step % 10_000) as u16);
        if UdpSocket::bind(at).is_ok() && TcpListener::bind(at).is_ok() {
            return at.1;
        }
    }
}

/// A receiving socket on loopback, and its address.
pub(crate) fn receiver() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// A sending socket on loopback that is connected to `to`.
pub(crate) fn sender(to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// The next datagram.
pub(crate) fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let len = socket.recv(&mut buffer).expect("a datagram arrives");
    buffer.truncate(len);
    buffer
}

/// A folder that every user may enter, and that goes with its owner.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The same as text, for command lines.
    pub(crate) fn text(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().to_owned()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that ends with its owner.
pub(crate) struct Peer(pub(crate) Child);

impl Peer {
    pub(crate) fn start(command: &mut Command) -> Peer {
        Peer(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Asks it to end, and waits.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        signal(&self.0, "TERM");
        self.0.wait().unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal by name.
pub(crate) fn signal(process: &Child, name: &str) {
    let pid = process.id().to_string();
    let status = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &pid]).status();
    assert!(status.unwrap().success(), "kill -s {name} {pid}");
}

/// Runs a program to its end and returns its standard output; any other end than 0 fails the test.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// What `weir gen` says that it sent, heartbeats and all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) datagrams: u64,
}

/// Runs `weir gen` with these arguments.
pub(crate) fn generate(args: &[&str]) -> Sent {
    generate_by(Command::new(WEIR), args)
}

/// Runs `weir gen` by a command that starts `weir`, for instance in a namespace.
pub(crate) fn generate_by(mut weir: Command, args: &[&str]) -> Sent {
    let text = run(weir.arg("gen").args(args).args(["--json", "--progress", "off"]));
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key}: {text}"));
    assert_eq!(number("failed_datagrams"), 0, "{text}");
    Sent { datagrams: number("sent_datagrams") + number("heartbeats") }
}

/// A running relay or daemon.
pub(crate) struct Weir {
    peer: Peer,
    /// The lines of standard error after the banner.
    said: mpsc::Receiver<String>,
    banner: String,
    /// The first two listeners, as the banner tells them: `127.0.0.1:5514` or `unix:/path`.
    pub(crate) addresses: Vec<String>,
    /// Where the ledger is.
    pub(crate) admin: SocketAddr,
}

/// How it ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    /// The last ledger.
    pub(crate) ledger: Snapshot,
    /// Standard error.
    pub(crate) said: String,
}

impl Weir {
    /// `weir relay` with these arguments, and an admin server.
    pub(crate) fn relay<S: AsRef<OsStr>>(args: &[S]) -> Weir {
        let mut command = Command::new(WEIR);
        command.args(["relay", "--progress", "off"]).args(args);
        Weir::start(command)
    }

    /// `weir run` with this configuration, and an admin server.
    pub(crate) fn run(config: &Path) -> Weir {
        let mut command = Command::new(WEIR);
        command.args(["run", "-c"]).arg(config);
        Weir::start(command)
    }

    /// A command that ends as `weir relay` or `weir run`; waits for its banner.
    pub(crate) fn start(mut command: Command) -> Weir {
        command.args(["--json", "--admin", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut peer = Peer::start(&mut command);
        let reader = BufReader::new(peer.0.stderr.take().unwrap());
        let (lines, said) = mpsc::channel();
        // It reads on when nobody listens any more: a full pipe would hold the process up.
        thread::spawn(move || {
            reader.lines().map_while(Result::ok).for_each(|line| drop(lines.send(line)))
        });
        let mut banner = String::new();
        while !banner.lines().next_back().unwrap_or("").starts_with("  schedule ") {
            let line = said.recv_timeout(DEADLINE);
            let line = line.unwrap_or_else(|error| panic!("no banner, {error}: {banner}"));
            banner += &(line + "\n");
        }
        let word_after = |line: &str, begin: &str| {
            let rest = &line[line.find(begin)? + begin.len()..];
            Some(rest.split_whitespace().next()?.trim_end_matches(':').to_owned())
        };
        let addresses = banner.lines().filter_map(|line| word_after(line, "listening on "));
        let addresses =
            addresses.map(|word| word.trim_start_matches("udp://").to_owned()).collect();
        let admin = banner.lines().find_map(|line| word_after(line, "metrics on http://"));
        let admin = admin.unwrap_or_else(|| panic!("{banner}")).parse().unwrap();
        Weir { peer, said, banner, addresses, admin }
    }

    /// The address of the first listener, a UDP one.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses[0].parse().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.peer.0.id()
    }

    pub(crate) fn process(&self) -> &Child {
        &self.peer.0
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// A page of the admin server.
    pub(crate) fn page(&self, path: &str, accept: &str) -> String {
        get(self.admin, path, accept)
    }

    /// The ledger as it is now.
    pub(crate) fn ledger(&self) -> Snapshot {
        let text = self.page("/ledger", "application/json");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Waits until the ledger is as wanted, and returns it.
    pub(crate) fn wait_for(&self, is_wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let mut last = None;
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline {
            let ledger = self.ledger();
            if is_wanted(&ledger) {
                return ledger;
            }
            last = Some(ledger);
            thread::park_timeout(LOOK_INTERVAL);
        }
        panic!(
            "timed out; the ledger: {}",
            last.map(|one| ledger::waterfall(&one)).unwrap_or_default()
        );
    }

    /// Waits until so many datagrams have arrived at all sockets and every target has dealt with them.
    pub(crate) fn wait_for_rest(&self, datagrams: u64) -> Snapshot {
        self.wait_for(|ledger| {
            let sockets = ledger.hops.iter().filter(|hop| hop.hop == HopKind::Socket);
            let came: u64 = sockets.map(|hop| hop.received.count).sum();
            came >= datagrams && ledger.hops.iter().all(|hop| hop.in_flight.count == 0)
        })
    }

    /// Waits until standard error has a line with this in it, and returns what it said up to there, which is not said again.
    pub(crate) fn wait_for_line(&self, wanted: &str) -> String {
        let mut said = String::new();
        let deadline = Instant::now() + DEADLINE;
        while !said.lines().next_back().is_some_and(|line| line.contains(wanted)) {
            let line = self.said.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            said += &line.unwrap_or_else(|error| panic!("{wanted}: {error}: {said}"));
            said.push('\n');
        }
        said
    }

    /// Asks it to stop and waits for its end. Whatever the ledger says then must balance.
    pub(crate) fn stop(self) -> Ended {
        signal(&self.peer.0, "TERM");
        self.wait_to_end()
    }

    /// Asks it to stop with nobody to read its standard output, and waits for its end.
    pub(crate) fn stop_unread(mut self) -> Option<i32> {
        drop(self.peer.0.stdout.take());
        self.peer.terminate().code()
    }

    /// Ends a drain that has begun by a second signal, which counts half a second after the first; sent until it does.
    pub(crate) fn hurry(self, name: &str) -> Ended {
        let mut said = String::new();
        wait_for(
            || "the second signal".to_owned(),
            || {
                signal(&self.peer.0, name);
                let line = self.said.recv_timeout(LOOK_INTERVAL).ok()?;
                said += &(line + "\n");
                said.contains("a second signal").then_some(())
            },
        );
        let ended = self.wait_to_end();
        Ended { said: said + &ended.said, ..ended }
    }

    /// Waits for its end, after a signal.
    pub(crate) fn wait_to_end(mut self) -> Ended {
        let mut stdout = self.peer.0.stdout.take().unwrap();
        let text = thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text)
        });
        let code = wait_for(|| "its end".to_owned(), || self.peer.0.try_wait().unwrap()).code();
        let text = text.join().unwrap().unwrap();
        let said = self.said.iter().fold(self.banner.clone(), |all, line| all + &line + "\n");
        let ledger: Snapshot =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {said}"));
        assert!(said.ends_with("unaccounted: 0\n"), "{said}");
        assert!(ledger.is_balanced() && ledger.unaccounted() == 0, "{said}");
        Ended { code, ledger, said }
    }
}

/// The hop of this kind whose target is `target`, or that has none if that is empty.
pub(crate) fn hop<'a>(ledger: &'a Snapshot, kind: HopKind, target: &str) -> &'a HopSnapshot {
    let is_it =
        |hop: &&HopSnapshot| hop.hop == kind && hop.target.as_deref().unwrap_or("") == target;
    let found = ledger.hops.iter().find(is_it);
    found.unwrap_or_else(|| panic!("no {kind:?} of {target:?}: {}", ledger::waterfall(ledger)))
}

/// A page over HTTP; any status but 200 fails the test.
pub(crate) fn get(server: SocketAddr, path: &str, accept: &str) -> String {
    try_get(server, path, accept).unwrap_or_else(|error| panic!("{server}{path}: {error}"))
}

/// A page over HTTP, or why there is none.
pub(crate) fn try_get(server: SocketAddr, path: &str, accept: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect(server).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(DEADLINE)).map_err(|error| error.to_string())?;
    // HTTP/1.0: no server answers in chunks.
    let head = format!("GET {path} HTTP/1.0\r\nHost: {server}\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(head.as_bytes()).map_err(|error| error.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| answer.clone())?;
    let status = head.split_whitespace().nth(1);
    if status == Some("200") { Ok(body.to_owned()) } else { Err(head.to_owned()) }
}
