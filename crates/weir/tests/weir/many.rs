//! Many listeners, many targets, and the processors that they run on.

use crate::nobody::Nobody;
use crate::support::{WEIR, Weir};
use ledger::{HopKind, Snapshot};
use std::fmt::Write as _;
use std::fs;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;
use testkit::{TempDir, need_root, wait_for};

const LISTENERS: usize = 64;
const TARGETS: usize = 8;

/// Datagrams that each listener is sent, one listener after the other, as fast as they go.
const DATAGRAMS: usize = 1_500;

#[test]
fn sixty_four_listeners_with_eight_targets_each_account_for_every_datagram() {
    let receivers: Vec<_> = (0..TARGETS).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for receiver in &receivers {
        receiver.set_nonblocking(true).unwrap();
        sys::socket::set_receive_buffer(receiver.as_fd(), 4 << 20).unwrap();
    }

    let folder = TempDir::new();
    let mut text = String::new();
    for listener in 0..LISTENERS {
        writeln!(
            text,
            "[[listener]]\nname = \"l{listener}\"\nlisten = \"127.0.0.1:0\"\nring_size = \"256KiB\"\nreceive_buffer = \"256KiB\""
        )
        .unwrap();
        for (at, receiver) in receivers.iter().enumerate() {
            let to = receiver.local_addr().unwrap();
            writeln!(text, "[[listener.target]]\nname = \"t{at}\"\nto = \"{to}\"").unwrap();
        }
    }
    let path = folder.file("weir.toml");
    fs::write(&path, text).unwrap();

    let check = Command::new(WEIR).args(["config", "check", "--json"]).arg(&path).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    let check: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    assert!(check["memory"].to_string().contains("bytes"), "{check}");

    let weir = Weir::run(&path);
    let addresses = listening(&weir);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..DATAGRAMS {
        for address in &addresses {
            sender.send_to(&[7; 200][..20 + number % 180], address).unwrap();
        }
        // Some of them, so that both happen: what is delivered, and what a receiver's full socket drops.
        for receiver in &receivers[..TARGETS / 2] {
            while receiver.recv(&mut [0; 256]).is_ok() {}
        }
    }

    let sent = (DATAGRAMS * LISTENERS) as u64;
    let ledger = weir.wait_for_rest(sent);
    check_law(&ledger);
    // A thread for each listener, and those of the control side.
    let threads = fs::read_dir(format!("/proc/{}/task", weir.pid())).unwrap().count();
    assert!(threads < LISTENERS + 24, "{threads} threads");
    let ended = weir.stop();
    check_law(&ended.ledger);
}

/// The addresses of all listeners: the banner has no room for so many.
fn listening(weir: &Weir) -> Vec<std::net::SocketAddr> {
    // Which port is whose does not matter: each gets as many.
    let mut found = Vec::new();
    let inodes: Vec<String> = fs::read_dir(format!("/proc/{}/fd", weir.pid()))
        .unwrap()
        .filter_map(|fd| fs::read_link(fd.unwrap().path()).ok())
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    for line in fs::read_to_string("/proc/net/udp").unwrap().lines().skip(1) {
        let words: Vec<_> = line.split_whitespace().collect();
        // Not connected: a listener's.
        if inodes.iter().any(|inode| *inode == words[9]) && words[2] == "00000000:0000" {
            let port = u16::from_str_radix(words[1].split(':').nth(1).unwrap(), 16).unwrap();
            found.push(([127, 0, 0, 1], port).into());
        }
    }
    assert_eq!(found.len(), LISTENERS);
    found
}

fn check_law(ledger: &Snapshot) {
    let sum = |kind| ledger.hops.iter().filter(move |hop| hop.hop == kind);
    let sent = (DATAGRAMS * LISTENERS) as u64;
    assert_eq!(sum(HopKind::Socket).map(|hop| hop.received.count).sum::<u64>(), sent);
    let accepted: u64 = sum(HopKind::Receive).map(|hop| hop.delivered.count).sum();
    let offered: u64 = sum(HopKind::Target).map(|hop| hop.received.count).sum();
    assert_eq!(offered, accepted * TARGETS as u64);
    for hop in &ledger.hops {
        assert_eq!(hop.unaccounted, 0, "{hop:?}");
        assert_eq!(hop.received, hop.left(), "{hop:?}");
    }
}

/// Where each thread of this name's beginning may run, as the kernel says it.
fn cpus_of(weir: &Weir, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", weir.pid())).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |wanted: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(wanted)).unwrap();
            line.trim().to_owned()
        };
        if field("Name:").starts_with(name) {
            found.push(field("Cpus_allowed_list:"));
        }
    }
    found.sort();
    found
}

/// Waits until the threads of this name may run there and nowhere else: each says so itself, when it first runs.
fn wait_for_cpus(weir: &Weir, name: &str, wanted: &[String]) {
    wait_for(format!("{name} on {wanted:?}"), || (cpus_of(weir, name) == wanted).then_some(()));
}

#[test]
fn a_listener_s_threads_run_where_they_are_told_to() {
    let all = sys::cpus::CpuList::of_this_thread().unwrap();
    if all.numbers().len() < 2 {
        testkit::skip("two processors are needed", &["REQUIRE_ALL"]);
        return;
    }
    let (first, last) = (all.in_turn(0), all.in_turn(all.numbers().len() - 1));
    let both = format!("{first},{last}").parse::<sys::cpus::CpuList>().unwrap();
    let listen = format!("127.0.0.1:0?name=in&cpus={both}");
    let more = ["--to", "null:", "--schedule", "threaded"];
    let weir = Weir::relay(&[&["--listen", &listen][..], &more].concat());
    wait_for_cpus(&weir, "rx-in", &[both.to_string()]);
    wait_for("targets where their listener is", || {
        cpus_of(&weir, "tx-").iter().all(|cpus| *cpus == both.to_string()).then_some(())
    });
    weir.stop();

    // Of several that receive, each has one; the thread that merges has all.
    let weir = Weir::relay(&[&["--listen", &listen, "--sockets", "2"][..], &more].concat());
    let mut wanted = vec![both.to_string(), first.to_string(), last.to_string()];
    wanted.sort();
    wait_for_cpus(&weir, "rx-in", &wanted);
    weir.stop();

    let refused = Command::new(WEIR)
        .args(["relay", "--listen", "127.0.0.1:0?name=in&cpus=0-1000", "--to", "null:"])
        .output()
        .unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(78), "{said}");
    for part in
        ["listener in: cpus = \"0-1000\": this process may not run on ", "Fix: write cpus = \""]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn polling_a_device_works_as_nobody_or_says_which_privilege_it_takes() {
    let Some(nobody) = Nobody::new() else { return };
    // Kernels differ: some let everybody do it.
    let is_free = std::thread::spawn(|| {
        sys::process::keep_capabilities(0).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        sys::socket::set_busy_poll(socket.as_fd(), Duration::from_micros(50)).is_ok()
    });
    let mut command = nobody.here();
    command.args(["relay", "--listen", "127.0.0.1:0?name=in&busy_poll=50us", "--to", "null:"]);
    if is_free.join().unwrap() {
        assert_eq!(Weir::start(command).stop().code, Some(0));
        return;
    }

    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(77), "{said}");
    let parts = [
        "listener in: busy_poll is not to be had",
        "CAP_NET_ADMIN",
        "Fix: setcap cap_net_admin=+ep /",
    ];
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_listener_that_polls_its_device_relays_and_stops_polling_on_reload() {
    if !need_root("busy polling (CAP_NET_ADMIN)") {
        return;
    }
    let folder = TempDir::new();
    let path = folder.file("weir.toml");
    let write = |more: &str| {
        let text = format!(
            "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n{more}[[listener.target]]\nto = \"null:\"\n"
        );
        fs::write(&path, text).unwrap();
    };
    write("busy_poll = \"50us\"\nsockets = 2\n");
    let weir = Weir::run(&path);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(b"polled", weir.address()).unwrap();
    weir.wait_for_rest(1);
    write("sockets = 2\n");
    weir.process.signal("HUP");
    let said = weir.wait_for_line("reloaded: ");
    assert!(said.contains("busy_poll") && !said.contains("ERROR"), "{said}");
    sender.send_to(b"waited for", weir.address()).unwrap();
    wait_for(
        || "both".to_owned(),
        || (weir.ledger().received_at(HopKind::Socket).count == 2).then_some(()),
    );
    assert_eq!(weir.stop().code, Some(0));
}
