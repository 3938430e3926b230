//! Restarts with socket activation: the socket outlives the process, and nothing is lost.

use crate::support::WEIR;
use ledger::{HopKind, Snapshot};
use load::Address;
use load::generate::{self, Limit, Rate};
use load::verify::{Done, Options, Until, Verifier};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{DEADLINE, TempDir, need_root, signal, wait_for};

const RESTARTS: u32 = 20;

/// Room in the socket for 80,000 datagrams (832 bytes each), which are 4 s of the load.
const BUFFER_BYTES: usize = 64 << 20;

/// What a service manager keeps: the sockets, and where it is told.
struct Manager {
    socket: OwnedFd,
    listen: SocketAddr,
    notify: UnixDatagram,
    folder: TempDir,
}

impl Manager {
    fn new() -> Manager {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let listen = socket.local_addr().unwrap();
        sys::socket::set_receive_buffer(socket.as_fd(), BUFFER_BYTES).unwrap();
        let folder = TempDir::new();
        let notify = UnixDatagram::bind(folder.file("notify.sock")).unwrap();
        notify.set_read_timeout(Some(DEADLINE)).unwrap();
        Manager { socket: socket.into(), listen, notify, folder }
    }

    /// Starts `weir` with the socket as descriptor 3.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("sh");
        // The protocol names the process that may take the sockets, and `exec` keeps its number.
        let script = "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\"";
        command.args(["-c", script, WEIR]).args(args);
        command.env("NOTIFY_SOCKET", self.folder.file("notify.sock"));
        command.stdin(Stdio::from(self.socket.try_clone().unwrap()));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Waits until half of the buffer is free: a process that is stopped sooner leaves the next one more than it found, and after
    /// some of them the buffer is full. What was read stays charged up to a quarter of it (net/ipv4/udp.c, udp_rmem_release).
    fn wait_until_read(&self) {
        let queued = || sys::socket::mem_info(self.socket.as_fd()).unwrap().receive_queued_bytes;
        let is_read = || (queued() as usize) < BUFFER_BYTES / 2;
        wait_for(|| format!("{} bytes wait", queued()), || is_read().then_some(()));
    }

    fn wait_for_message(&self, wanted: &str) {
        let mut seen = Vec::new();
        let deadline = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < deadline, "{wanted}: {seen:?}");
            let mut buffer = [0; 4_096];
            let Ok(len) = self.notify.recv(&mut buffer) else { panic!("{wanted}: {seen:?}") };
            let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
            if text.lines().any(|line| line.starts_with(wanted)) {
                return;
            }
            seen.push(text);
        }
    }
}

/// Ends a process by a signal and returns its last ledger.
fn stop(child: Child) -> Snapshot {
    signal(&child, "TERM");
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.ends_with("unaccounted: 0\n"), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn twenty_restarts_under_load_lose_nothing() {
    // Others get what net.core.rmem_max allows, which may be full before a busy machine has started the next process.
    if !need_root("a receive buffer of 64 MiB") {
        return;
    }
    let manager = Manager::new();
    let until = Until { done: Some(Done::default()), ..Until::default() };
    let any = Address::Udp("127.0.0.1:0".parse().unwrap());
    let verifier = Verifier::bind(Options { until, ..Options::on(vec![any]) }).unwrap();
    let Address::Udp(target) = verifier.addresses()[0].clone() else { panic!() };
    let (listen, to) = (manager.listen.to_string(), target.to_string());
    let args = ["relay", "--progress", "off", "--json", "--listen", &listen, "--to", &to];
    let (stop_load, stop_verifier) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sent, got, ledgers) = thread::scope(|scope| {
        let got = scope.spawn(|| verifier.run(&stop_verifier));
        let load = scope.spawn(|| {
            let options = generate::Options {
                rate: Rate::DatagramsPerSec(20_000),
                limit: Limit::default(),
                heartbeat: Some(Duration::from_millis(10)),
                ..generate::Options::to(vec![Address::Udp(manager.listen)])
            };
            generate::run(&options, &stop_load, &generate::Progress::default()).unwrap()
        });
        let mut ledgers = Vec::new();
        let mut child = manager.command(&args).spawn().unwrap();
        manager.wait_for_message("READY=1");
        for _ in 0..RESTARTS {
            manager.wait_until_read();
            ledgers.push(stop(child));
            child = manager.command(&args).spawn().unwrap();
            manager.wait_for_message("READY=1");
        }
        stop_load.store(true, std::sync::atomic::Ordering::Relaxed);
        let sent = load.join().unwrap();
        let got = got.join().unwrap();
        ledgers.push(stop(child));
        (sent, got, ledgers)
    });
    let all = sent.sent_datagrams + sent.heartbeats;
    assert!(sent.sent_datagrams > 2_000, "{sent:#?}");
    let sum = |kind| ledgers.iter().map(|one| one.received_at(kind).count).sum::<u64>();
    assert_eq!(sum(HopKind::Receive), all, "read by all processes together");
    assert_eq!(sum(HopKind::Egress), all, "delivered by all processes together");
    let busy = ledgers.iter().filter(|one| !one.received_at(HopKind::Receive).is_zero()).count();
    assert!(busy > 10, "only {busy} processes got anything");
    assert_eq!((got.missing, got.total.duplicate, got.total.corrupt), (0, 0, 0), "{got:#?}");
    assert_eq!(got.total.received, sent.sent_datagrams);
}

#[test]
fn what_the_kernel_drops_while_nobody_runs_is_the_next_process_s_loss() {
    let manager = Manager::new();
    sys::socket::set_receive_buffer(manager.socket.as_fd(), 8 << 10).unwrap();
    std::fs::write(manager.folder.file("held"), "").unwrap();
    let listen = manager.listen.to_string();
    let args = [
        "relay",
        "--progress",
        "off",
        "--json",
        "--listen",
        &listen,
        "--to",
        "null:",
        "--receive-buffer",
        "64KiB",
    ];
    // As a service manager does that was asked to hold the file by the first process.
    let start = || {
        let mut command = Command::new("sh");
        let script = "exec 3<&0 4<>\"$0\" 0</dev/null; \
                      export LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=in:weir-drops; exec \"$@\"";
        command.args(["-c", script, &manager.folder.text("held"), WEIR]).args(args);
        command.env("NOTIFY_SOCKET", manager.folder.file("notify.sock"));
        command.stdin(Stdio::from(manager.socket.try_clone().unwrap()));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        manager.wait_for_message("READY=1");
        child
    };
    let drops_at_socket =
        || u64::from(sys::socket::mem_info(manager.socket.as_fd()).unwrap().dropped_datagrams);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send_until_some_are_dropped = || {
        let (before, mut sent) = (drops_at_socket(), 0_u64);
        while drops_at_socket() < before + 10 {
            sender.send_to(&[0; 500], manager.listen).unwrap();
            sent += 1;
        }
        sent
    };
    let of = |ledger: &Snapshot| {
        let hop = ledger.hops.iter().find(|hop| hop.hop == HopKind::Socket).unwrap();
        (hop.received.count, hop.dropped_for(ledger::Reason::SocketBuffer).count)
    };
    assert_eq!(of(&stop(start())), (0, 0));
    for _ in 0..2 {
        let before = drops_at_socket();
        let sent = send_until_some_are_dropped();
        let lost = drops_at_socket() - before;
        let child = start();
        let waiting =
            || sys::socket::mem_info(manager.socket.as_fd()).unwrap().receive_queued_bytes;
        wait_for(|| "it is not read".to_owned(), || (waiting() == 0).then_some(()));
        assert_eq!(of(&stop(child)), (sent, lost), "all of it is one process's");
        // What one has counted the next one does not.
        assert_eq!(of(&stop(start())), (0, 0));
    }
}

#[test]
fn the_service_manager_is_asked_to_hold_what_was_counted() {
    let manager = Manager::new();
    let listen = manager.listen.to_string();
    let args = ["relay", "--progress", "off", "--json", "--listen", &listen, "--to", "null:"];
    let child = manager.command(&args).spawn().unwrap();
    manager.wait_for_message("FDNAME=weir-drops");
    manager.wait_for_message("READY=1");
    stop(child);
}

#[test]
fn a_socket_that_no_listener_wants_is_an_error_that_names_it() {
    let manager = Manager::new();
    let args = ["relay", "--listen", "127.0.0.1:0", "--to", "null:"];
    let output = manager.command(&args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains(&format!("a socket at {}", manager.listen)), "{said}");
    assert!(said.contains("ListenDatagram="), "{said}");
}
