//! Targets by host name: the address changes, goes away and comes back while datagrams flow.

use crate::support::{WEIR, Weir, hop};
use ledger::{HopKind, Reason};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::{Netns, TempDir, free_port, need_root_netns, receive, sender, signal, wait_for};

/// A process whose /etc/hosts is this file.
fn with_hosts(hosts: &str, args: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$0\" /etc/hosts; exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, hosts, WEIR]).args(args);
    command
}

fn receiver_at(host: &str, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((host, port)).unwrap();
    socket.set_read_timeout(Some(testkit::DEADLINE)).unwrap();
    socket
}

#[test]
fn a_target_follows_its_name() {
    if !need_root_netns() {
        return;
    }
    let folder = TempDir::new();
    let port = free_port();
    let (first, second) = (receiver_at("127.0.0.1", port), receiver_at("127.0.0.2", port));
    let hosts = |text: &str| std::fs::write(folder.file("hosts"), text).unwrap();
    hosts("127.0.0.1 collector.test\n");
    let to = format!("collector.test:{port}?name=out&resolve_interval=1s");
    let later = format!("later.test:{port}?name=later&resolve_interval=1s");
    let args =
        ["relay", "--progress", "off", "--listen", "127.0.0.1:0", "--to", &to, "--to", &later];
    let weir = Weir::start(with_hosts(&folder.text("hosts"), &args));
    let sender = sender(weir.address());
    // The first datagram already: the start has waited for the name.
    sender.send(b"1").unwrap();
    assert_eq!(receive(&first), b"1");
    let is_dropped = |count: u64| {
        weir.wait_for(|ledger| {
            let later = hop(ledger, HopKind::Target, "later");
            later.dropped_for(Reason::TargetUnresolved).count == count
        })
    };
    is_dropped(1);
    // The name is gone, and with it no datagram: the last good address stays.
    hosts("");
    sender.send(b"2").unwrap();
    assert_eq!(receive(&first), b"2");
    hosts("127.0.0.2 collector.test later.test\n");
    second.set_nonblocking(true).unwrap();
    let moved = wait_for(
        || "the target has not moved".to_owned(),
        || {
            sender.send(b"3").unwrap();
            let mut buffer = [0; 8];
            second.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())
        },
    );
    assert_eq!(moved, b"3");
    weir.wait_for(|ledger| {
        sender.send(b"4").unwrap();
        !hop(ledger, HopKind::Egress, "later").delivered.is_zero()
    });
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(hop(&ended.ledger, HopKind::Target, "out").dropped.is_empty(), "{}", ended.said);
    let said = format!("target out: sending to 127.0.0.2:{port}, before 127.0.0.1:{port}");
    assert!(ended.said.contains(&said), "{}", ended.said);
    let failures = ended.said.matches("cannot resolve later.test").count();
    assert_eq!(failures, 1, "at most once a minute: {}", ended.said);
}

/// A namespace in which no question to a name server is ever answered, and a folder with a daemon's file.
struct Unanswered {
    ours: Netns,
    _theirs: Netns,
    folder: TempDir,
}

impl Unanswered {
    fn new() -> Unanswered {
        let (ours, theirs) = (Netns::new(), Netns::new());
        ours.connect("eth0", &theirs, "eth0");
        ours.ip("addr add 192.0.2.1/24 dev eth0");
        // Nobody has this address, but the questions do leave: no error ever comes back.
        ours.ip("neigh add 192.0.2.53 lladdr 02:00:00:00:00:53 dev eth0 nud permanent");
        let folder = TempDir::new();
        let resolv_conf = "nameserver 192.0.2.53\noptions timeout:30\n";
        std::fs::write(folder.file("resolv.conf"), resolv_conf).unwrap();
        Unanswered { ours, _theirs: theirs, folder }
    }

    fn write(&self, config: &str) {
        std::fs::write(self.folder.file("weir.toml"), config).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = self.ours.command("sh");
        let script = "mount --bind \"$0\" /etc/resolv.conf; exec \"$@\"";
        command.args(["-c", script, &self.folder.text("resolv.conf"), WEIR, "run", "-c"]);
        command.arg(self.folder.file("weir.toml"));
        command
    }
}

#[test]
fn a_resolver_that_hangs_holds_up_neither_start_nor_reload_nor_stop() {
    if !need_root_netns() {
        return;
    }
    let rig = Unanswered::new();
    rig.write("[[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.target]]\nto = \"collector.test:514\"\n");
    let begin = Instant::now();
    let weir = Weir::start(rig.command());
    signal(weir.process(), "HUP");
    weir.wait_for_line("reloaded: nothing has changed");
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}: {}", begin.elapsed(), ended.said);
    let expected = "the resolver does not answer about collector.test:514";
    assert!(ended.said.contains(expected), "{}", ended.said);
}

#[test]
fn a_resolver_that_hangs_under_the_statsd_push_costs_neither_the_watchdog_nor_the_last_ledger() {
    if !need_root_netns() {
        return;
    }
    let rig = Unanswered::new();
    let file = |prefix: &str| {
        rig.write(&format!(
            "[metrics.statsd]\nto = \"statsd.test:8125\"\nprefix = \"{prefix}\"\ninterval = \"100ms\"\n\
             [[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.target]]\nto = \"null:\"\n"
        ));
    };
    file("one");
    let manager = UnixDatagram::bind(rig.folder.file("notify.sock")).unwrap();
    manager.set_read_timeout(Some(testkit::DEADLINE)).unwrap();
    let mut command = rig.command();
    command.env("NOTIFY_SOCKET", rig.folder.file("notify.sock")).env("WATCHDOG_USEC", "300000");
    let weir = Weir::start(command);
    let messages_until = |wanted: &str| {
        let mut seen = Vec::new();
        while !seen.iter().any(|text: &String| text.starts_with(wanted)) {
            let mut buffer = [0; 4_096];
            let len = manager.recv(&mut buffer).unwrap_or_else(|_| panic!("{wanted}: {seen:?}"));
            seen.push(String::from_utf8_lossy(&buffer[..len]).into_owned());
        }
        seen
    };
    messages_until("READY=1");
    // Three times a hundred milliseconds: the first push has begun, and waits for the name server.
    (0..3).for_each(|_| drop(messages_until("WATCHDOG=1")));
    file("two");
    signal(weir.process(), "HUP");
    messages_until("RELOADING=1");
    let meanwhile = messages_until("READY=1");
    let fed = meanwhile.iter().filter(|text| text.starts_with("WATCHDOG=1")).count();
    assert!(fed > 0, "the reload waits for the former push: {meanwhile:?}");
    let reloaded = weir.wait_for_line("reloaded: ");
    assert!(reloaded.contains("[metrics.statsd]: prefix \"one\" -> \"two\""), "{reloaded}");
    (0..3).for_each(|_| drop(messages_until("WATCHDOG=1")));
    let begin = Instant::now();
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}: {}", begin.elapsed(), ended.said);
}
