//! What the people who run it are told: by the log, by signals, by the states of components.

use crate::support::{WEIR, Weir, generate_by, hop};
use ledger::{HopKind, Reason};
use std::fs;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use testkit::{
    DEADLINE, Netns, Peer, TempDir, free_port, need_root, need_root_netns, receive, receiver,
    sender, signal, wait_for,
};

/// Two signals as close to each other as they come; of two kinds, since two of one kind may be one to the kernel.
const TWICE: &str = "kill -s INT \"$0\"; kill -s TERM \"$0\"";

fn signal_twice(pid: u32) {
    let status = Command::new("sh").args(["-c", TWICE, &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_target_that_loses_is_told_once_and_again_when_it_recovers() {
    let to = format!("127.0.0.1:{}", free_port());
    let target = format!("{to}?name=out");
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &target, "--to", "null:"]);
    let listener =
        format!("udp://{}", weir.address()).replace(&weir.address().port().to_string(), "0");
    let states = |name: &str, word: &str| {
        let line = format!("weir_component_state{{component=\"{name}\",state=\"{word}\"}} 1\n");
        weir.page("/metrics", "text/plain").contains(&line)
    };
    let (lost, well) = (format!("target/{listener}/out"), format!("target/{listener}/null:"));
    let load = sender(weir.address());
    let refused = |least: u64| {
        weir.wait_for(|ledger| {
            (0..10).for_each(|_| drop(load.send(b"to nobody")));
            let gone = |kind| hop(ledger, kind, "out").dropped_for(Reason::Refused).count;
            gone(HopKind::Egress) + gone(HopKind::Target) >= least
        })
    };
    refused(100);
    let begins = format!("target out of listener {listener}: nobody listens at the target");
    let said = weir.wait_for_line(&begins);
    assert!(said.contains("counted as refused. Fix: start the receiver"), "{said}");
    wait_for(|| "degraded".to_owned(), || states(&lost, "degraded").then_some(()));
    assert!(states(&well, "ok"));
    refused(200);
    let back = UdpSocket::bind(&to).unwrap();
    back.set_read_timeout(Some(DEADLINE)).unwrap();
    // It may be looked for now and then only.
    wait_for(
        || "nothing arrives".to_owned(),
        || {
            load.send(b"back").unwrap();
            back.set_nonblocking(true).unwrap();
            back.recv(&mut [0; 16]).ok()
        },
    );
    let said =
        weir.wait_for_line(&format!("target out of listener {listener}: nothing has failed"));
    assert!(said.contains("(refused ") || said.contains("refused 2"), "{said}");
    assert!(!said.contains(&begins), "more than once: {said}");
    // It is up again once it takes something: without traffic nobody knows.
    wait_for(
        || "ok".to_owned(),
        || {
            load.send(b"back").unwrap();
            states(&lost, "ok").then_some(())
        },
    );
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(ended.said.matches(&begins).count(), 1, "{}", ended.said);
}

#[test]
fn usr1_prints_the_ledger_and_goes_on() {
    let (socket, addr) = receiver();
    let target = format!("{addr}?name=out");
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &target]);
    let load = sender(weir.address());
    for text in [b"one", b"two"] {
        load.send(text).unwrap();
        assert_eq!(receive(&socket), text);
        signal(weir.process(), "USR1");
        let said = weir.wait_for_line("in flight: ");
        assert!(said.contains("-> out"), "{said}");
    }
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
}

#[test]
fn two_signals_at_once_are_one_request() {
    for _ in 0..5 {
        let (socket, addr) = receiver();
        let mut command = Command::new(WEIR);
        command.args(["gen", "--to", &addr, "--rate", "1000", "--json", "--progress", "off"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        receive(&socket);
        signal_twice(child.id());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["sent_datagrams"].as_u64().unwrap() > 0, "{report}");
    }
}

#[test]
fn two_signals_at_once_do_not_cut_a_drain_short() {
    let folder = TempDir::new();
    let stuck = std::os::unix::net::UnixDatagram::bind(folder.file("slow.sock")).unwrap();
    let target = format!("unix:{}?name=slow", folder.text("slow.sock"));
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &target, "--drain-grace", "1h"]);
    let load = sender(weir.address());
    let wanted = 1_000_u32;
    (0..wanted).for_each(|n| assert_eq!(load.send(&n.to_be_bytes()).unwrap(), 4));
    weir.wait_for(|ledger| {
        hop(ledger, HopKind::Target, "slow").received.count == u64::from(wanted)
    });
    signal_twice(weir.pid());
    weir.wait_for_line("stopping: ");
    // The reader comes back, and gets everything.
    stuck.set_read_timeout(Some(DEADLINE)).unwrap();
    (0..wanted).for_each(|n| {
        let mut buffer = [0; 8];
        let len = stuck.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..len], n.to_be_bytes());
    });
    let ended = weir.wait_to_end();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
}

#[test]
fn a_target_without_a_route_has_the_advice_that_fits() {
    if !need_root_netns() {
        return;
    }
    let namespace = Netns::new();
    let mut command = namespace.command(WEIR);
    let listen = format!("127.0.0.1:{}", free_port());
    command.args([
        "relay",
        "--progress",
        "off",
        "--listen",
        &listen,
        "--to",
        "192.0.2.7:514?name=far",
    ]);
    let weir = Weir::start(command);
    let sent =
        generate_by(namespace.command(WEIR), &["--to", &listen, "--rate", "100", "--count", "50"]);
    weir.wait_for_line("target far of listener");
    let ended = weir.stop();
    let dropped =
        hop(&ended.ledger, HopKind::Target, "far").dropped_for(Reason::NetworkUnreachable);
    assert_eq!(dropped.count, sent.all(), "{}", ended.said);
    assert!(ended.said.contains("Fix: check `ip route get`"), "{}", ended.said);
}

#[test]
fn a_ledger_that_nobody_serves_says_how_to_serve_it() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let output = Command::new(WEIR).args(["ledger", "--admin", &url]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("give `weir relay` --admin 127.0.0.1:9464"), "{said}");
    let mut command = Command::new(WEIR);
    command
        .args(["relay", "--listen", "127.0.0.1:0", "--to", "null:"])
        .env_remove("WEIR_ADMIN_LISTEN");
    let mut relay = Peer::start(command.stderr(Stdio::piped()));
    let banner = std::io::BufReader::new(relay.0.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(banner).map(Result::unwrap);
    let line = lines.find(|line| line.contains("admin off")).unwrap();
    assert!(line.ends_with("admin off (for `weir ledger`: --admin 127.0.0.1:9464)"), "{line}");
    std::thread::spawn(move || lines.for_each(drop));
    assert_eq!(relay.terminate().code(), Some(0));
}

#[test]
fn the_admin_server_has_less_of_the_processor_than_the_data_loops() {
    if !need_root("a nice value that says what was set") {
        return;
    }
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", "null:"]);
    weir.ledger();
    let tasks = fs::read_dir(format!("/proc/{}/task", weir.pid())).unwrap();
    let stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
    let nice: Vec<(bool, i32)> = stats
        .map(|stat| {
            let (name, rest) = stat.rsplit_once(')').unwrap();
            (name.ends_with("(admin"), rest.split_whitespace().nth(16).unwrap().parse().unwrap())
        })
        .collect();
    let admin = nice.iter().find(|(is_admin, _)| *is_admin).unwrap().1;
    let others: Vec<_> = nice.iter().filter(|(is_admin, _)| !is_admin).collect();
    assert!(others.iter().all(|(_, other)| admin > *other || *other >= 10), "{nice:?}");
    assert_eq!(weir.stop().code, Some(0));
}
