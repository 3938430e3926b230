//! `weir run`: the start, the service manager's protocol, and the end under load.

use crate::support::{WEIR, Weir, hop};
use ledger::{HopKind, Reason};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testkit::{DEADLINE, Peer, TempDir, receive, receiver, sender, signal, try_get, wait_for};

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn config(folder: &TempDir, text: &str) -> std::path::PathBuf {
    let path = folder.file("weir.toml");
    write(&path, text);
    path
}

fn check_failure(config: &str, code: i32, parts: &[&str]) {
    let output = Command::new(WEIR).args(["run", "-c", config]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn a_file_that_cannot_be_used_says_why() {
    let folder = TempDir::new();
    check_failure(&folder.text("missing.toml"), 66, &["cannot read", "weir config example"]);
    let wrong =
        config(&folder, "[daemon]\ndrain_grase = \"1s\"\n[[listener]]\nlisten = \"127.0.0.1\"\n");
    check_failure(
        wrong.to_str().unwrap(),
        78,
        &["did you mean drain_grace?", "it has no port", "has no target"],
    );
    let nowhere = folder.text("a/b/c.log");
    let file = config(
        &folder,
        &format!(
            "[admin]\nlisten = \"off\"\n[[listener]]\nlisten = \"127.0.0.1:0\"\n\
             [[listener.target]]\nto = \"file:{nowhere}\"\n"
        ),
    );
    check_failure(file.to_str().unwrap(), 74, &["c.log", "Fix: mkdir -p"]);
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() {
    let folder = TempDir::new();
    let path = config(
        &folder,
        "[daemon]\ndrain_grace = \"7s\"\nlog_level = \"error\"\n[[listener]]\nlisten = \"127.0.0.1:0\"\n\
         [[listener.target]]\nto = \"null:\"\n",
    );
    let mut command = Command::new(WEIR);
    command.args(["run", "-c"]).arg(&path).args(["--drain-grace", "9s"]);
    command.env("WEIR_DRAIN_GRACE", "8s").env("WEIR_LOG_LEVEL", "info");
    let ended = Weir::start(command).stop();
    assert_eq!(ended.code, Some(0));
    assert!(ended.said.contains("for at most 9s"), "{}", ended.said);
}

#[test]
fn a_stop_under_load_delivers_everything_or_names_the_rest() {
    let folder = TempDir::new();
    let (socket, addr) = receiver();
    sys::socket::set_receive_buffer(std::os::fd::AsFd::as_fd(&socket), 256 << 20).unwrap();
    let path = config(
        &folder,
        &format!(
            "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n[[listener.target]]\nname = \"out\"\nto = \"{addr}\"\n"
        ),
    );
    let weir = Weir::run(&path);
    let (to, stop) = (weir.address(), AtomicBool::new(false));
    let (sent, ended) = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let sender = sender(to);
            let mut sent = 0_u64;
            // Refused: the relay has gone.
            while !stop.load(Ordering::Relaxed) && sender.send(&sent.to_be_bytes()).is_ok() {
                sent += 1;
                if sent.is_multiple_of(64) {
                    thread::yield_now();
                }
            }
            sent
        });
        weir.wait_for(|ledger| hop(ledger, HopKind::Egress, "out").delivered.count > 10_000);
        let ended = weir.stop();
        stop.store(true, Ordering::Relaxed);
        (load.join().unwrap(), ended)
    });
    let all = &ended.ledger;
    let (at_socket, target) = (hop(all, HopKind::Socket, ""), hop(all, HopKind::Target, "out"));
    let refused = at_socket.dropped_for(Reason::Shutdown).count;
    let left = target.dropped_for(Reason::Shutdown).count;
    assert_eq!(left, 0, "ten seconds are enough: {}", ended.said);
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let datagrams = text::plural(refused, "datagram", "datagrams");
    let named = format!("refused: {datagrams} that arrived at in");
    assert_eq!(ended.said.contains(&named), refused > 0, "{}", ended.said);
    // Nobody has the first datagram after the port was left: the answer to it fails the next call.
    let unseen = sent.checked_sub(at_socket.received.count);
    assert!(unseen.is_some_and(|unseen| unseen <= 1), "{unseen:?} of {sent}: {}", ended.said);
    socket.set_nonblocking(true).unwrap();
    let got = std::iter::from_fn(|| socket.recv(&mut [0; 16]).ok()).count() as u64;
    // Without privilege the kernel gives the receiver less room than the load fills.
    let info = sys::socket::mem_info(std::os::fd::AsFd::as_fd(&socket)).unwrap();
    let arrived = got + u64::from(info.dropped_datagrams);
    assert_eq!(arrived, hop(all, HopKind::Egress, "out").delivered.count, "{}", ended.said);
}

/// A daemon with a healthy target and a unix one that nobody reads.
struct Stuck {
    weir: Weir,
    stuck: UnixDatagram,
    healthy: UdpSocket,
    _folder: TempDir,
}

impl Stuck {
    fn start(drain_grace: &str) -> Stuck {
        let folder = TempDir::new();
        let stuck = UnixDatagram::bind(folder.file("stuck.sock")).unwrap();
        let (healthy, addr) = receiver();
        let path = config(
            &folder,
            &format!(
                "[daemon]\ndrain_grace = \"{drain_grace}\"\n[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n\
                 [[listener.target]]\nname = \"stuck\"\nto = \"unix:{}\"\n\
                 [[listener.target]]\nname = \"healthy\"\nto = \"{addr}\"\n",
                folder.text("stuck.sock")
            ),
        );
        let weir = Weir::run(&path);
        let sender = sender(weir.address());
        for n in 0..STUCK_COUNT {
            sender.send(&n.to_be_bytes()).unwrap();
            receive(&healthy);
        }
        Stuck { weir, stuck, healthy, _folder: folder }
    }
}

const STUCK_COUNT: u64 = 3_000;

#[test]
fn what_a_stopped_target_had_not_taken_is_named_exactly() {
    let Stuck { weir, stuck, healthy: _healthy, _folder } = Stuck::start("200ms");
    let ended = weir.stop();
    assert_eq!(ended.code, Some(75), "{}", ended.said);
    stuck.set_nonblocking(true).unwrap();
    let taken = std::iter::from_fn(|| stuck.recv(&mut [0; 16]).ok()).count() as u64;
    let target = hop(&ended.ledger, HopKind::Target, "stuck");
    let rest = target.dropped_for(Reason::Shutdown);
    assert_eq!((target.delivered.count, rest.count), (taken, STUCK_COUNT - taken));
    assert!(taken > 0 && rest.count > 0, "{taken}");
    let named = format!(
        "left behind: {} datagrams ({} bytes) of in that stuck had not taken",
        rest.count, rest.bytes
    );
    assert!(ended.said.contains(&named), "{}", ended.said);
    assert_eq!(hop(&ended.ledger, HopKind::Egress, "healthy").delivered.count, STUCK_COUNT);
}

#[test]
fn readiness_ends_with_the_drain_and_a_second_signal_ends_the_drain() {
    let Stuck { weir, stuck: _stuck, healthy: _healthy, _folder } = Stuck::start("1h");
    assert_eq!(try_get(weir.admin, "/readyz", "*/*").map(drop), Ok(()));
    signal(weir.process(), "INT");
    let admin = weir.admin;
    let head = wait_for(
        || "not ready while draining".to_owned(),
        || try_get(admin, "/readyz", "*/*").err().filter(|head| head.contains(" 503 ")),
    );
    assert!(head.starts_with("HTTP/1."), "{head}");
    assert!(try_get(admin, "/healthz", "*/*").is_ok(), "draining is no illness");
    let ended = weir.hurry("INT");
    assert_eq!(ended.code, Some(75), "{}", ended.said);
    assert!(ended.said.contains("a second signal"), "{}", ended.said);
}

#[test]
fn the_service_manager_is_told_of_every_turn_of_life() {
    let folder = TempDir::new();
    let manager = UnixDatagram::bind(folder.file("notify.sock")).unwrap();
    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    let path = config(
        &folder,
        "[[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.target]]\nto = \"null:\"\n",
    );
    let mut command = Command::new(WEIR);
    command.args(["run", "-c"]).arg(&path);
    command.env("NOTIFY_SOCKET", folder.file("notify.sock")).env("WATCHDOG_USEC", "300000");
    let weir = Weir::start(command);
    let wait_for_message = |wanted: &str| {
        let mut seen = Vec::new();
        loop {
            let mut buffer = [0; 4_096];
            let len = manager.recv(&mut buffer).unwrap_or_else(|_| panic!("{wanted}: {seen:?}"));
            let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
            if text.lines().any(|line| line.starts_with(wanted)) {
                return text;
            }
            seen.push(text);
        }
    };
    wait_for_message("READY=1");
    // Three times: the loops turn without traffic.
    for _ in 0..3 {
        wait_for_message("WATCHDOG=1");
    }
    signal(weir.process(), "HUP");
    assert!(wait_for_message("RELOADING=1").contains("MONOTONIC_USEC="));
    wait_for_message("READY=1");
    wait_for_message("STATUS=");
    signal(weir.process(), "TERM");
    wait_for_message("STOPPING=1");
    assert_eq!(weir.wait_to_end().code, Some(0));
}

#[test]
fn a_service_manager_that_does_not_read_holds_up_nothing() {
    let folder = TempDir::new();
    let manager = UnixDatagram::bind(folder.file("notify.sock")).unwrap();
    let text = "[[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.target]]\nto = \"null:\"\n";
    let path = config(&folder, text);
    let mut command = Command::new(WEIR);
    command.args(["run", "-c"]).arg(&path);
    // Fed a hundred times a second: its queue is full at once.
    command.env("NOTIFY_SOCKET", folder.file("notify.sock")).env("WATCHDOG_USEC", "30000");
    let weir = Weir::start(command);
    let more = UnixDatagram::unbound().unwrap();
    more.set_nonblocking(true).unwrap();
    wait_for(
        || "the manager's queue is not full".to_owned(),
        || more.send_to(b"more", folder.file("notify.sock")).err(),
    );
    assert_eq!(weir.stop().code, Some(0));
    drop(manager);
}

#[test]
fn the_quickstart_file_starts_and_writes_both_files() {
    let folder = TempDir::new();
    let root = testkit::root();
    let text = std::fs::read_to_string(root.join("examples/quickstart.toml")).unwrap();
    let path = config(&folder, &text.replace("127.0.0.1:5514", "127.0.0.1:0"));
    let mut command = Command::new(WEIR);
    command.args(["run", "-c"]).arg(&path).current_dir(folder.path());
    let weir = Weir::start(command);
    sender(weir.address()).send(b"hello weir").unwrap();
    weir.wait_for_rest(1);
    let mut client = UnixStream::connect(folder.file("weir-data/admin.sock")).unwrap();
    client.write_all(b"GET /sockets?limit=1 HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"shown\":1,"), "{answer}");
    assert_eq!(weir.stop().code, Some(0));
    for name in ["old.log", "new.log"] {
        let path = folder.file("weir-data").join(name);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "hello weir\n");
    }
}

/// Time that a thread has waited for a processor: that is the machine's, not ours.
fn waited(schedstat: &str) -> Duration {
    let text = std::fs::read_to_string(schedstat).unwrap_or_default();
    let ns = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Duration::from_nanos(ns.unwrap_or_default())
}

/// Time from the start of a relay to the arrival of the first datagram, without what its threads and this one waited for
/// a processor.
fn start_to_first_datagram(socket: &UdpSocket, to: &str) -> Duration {
    const OWN: &str = "/proc/thread-self/schedstat";
    let listen = format!("127.0.0.1:{}", testkit::free_port());
    let sender = sender(listen.parse().unwrap());
    let (begin, waited_before) = (std::time::Instant::now(), waited(OWN));
    let mut command = Command::new(WEIR);
    command.args(["relay", "--listen", &listen, "--to", to, "--to", "null:"]);
    let mut relay = Peer::start(command.stderr(std::process::Stdio::null()));
    while socket.recv(&mut [0; 8]).is_err() {
        assert!(begin.elapsed() < DEADLINE);
        // Refused until the relay is there.
        let _ = sender.send(b"first");
        // A timeout of the socket would be a whole tick of the kernel's, as long as the start itself.
        std::thread::park_timeout(Duration::from_micros(200));
    }
    let taken = begin.elapsed();
    let tasks = format!("/proc/{}/task", relay.0.id());
    let threads = std::fs::read_dir(tasks).unwrap().filter_map(Result::ok);
    let its_waits: Duration =
        threads.map(|task| waited(&format!("{}/schedstat", task.path().display()))).sum();
    relay.terminate();
    while socket.recv(&mut [0; 8]).is_ok() {}
    taken.saturating_sub(its_waits + waited(OWN).saturating_sub(waited_before))
}

#[test]
fn the_first_datagram_leaves_soon_after_the_start() {
    let (socket, addr) = receiver();
    socket.set_nonblocking(true).unwrap();
    let mut taken = [(); 11].map(|()| start_to_first_datagram(&socket, &addr));
    taken.sort_unstable();
    // The middle one: the first may read the program from the disk, and a lucky one proves nothing.
    assert!(taken[5] < Duration::from_millis(20), "{taken:?}");
}
