//! A flood of several times what the machine can take: everything that was sent arrived or is in a counter, for each
//! target; the relay's memory stays within its budget; another listener of the same process loses nothing.

use crate::support::{
    Ended, Generator, Place, SCHEDULES, Sent, Verifier, Weir, free_udp_address, hop,
};
use ledger::{HopKind, Reason};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use testkit::{Process, TempDir, say, wait_for};

/// What a process owns apart from its datagrams: relocated data, stacks, and the admin server. Its code is not in it: that is the page
/// cache's, and how much of it is mapped depends on the folios in which the kernel keeps the file.
const FIXED_BYTES: u64 = 4 << 20;

/// What may grow beside the rings while a flood runs: the buffers of the receive calls, of which a datagram of this test
/// touches one page each, stacks, and the admin server's answers.
const GROWTH_BESIDE_RINGS_BYTES: u64 = 3 << 20;

fn config(schedule: &str, flood: &[String], stuck: &Path, gentle: &str) -> String {
    format!(
        "[admin]\nlisten = '127.0.0.1:0'\n\
         [[listener]]\nname = 'in'\nlisten = '127.0.0.1:0'\nschedule = '{schedule}'\n\
         receive_buffer = '1MiB'\nring_size = '4MiB'\n\
         [[listener.target]]\nname = 'a'\nto = '{}'\n\
         [[listener.target]]\nname = 'b'\nto = '{}'\n\
         [[listener.target]]\nname = 'stuck'\nto = 'unix:{}'\n\
         [[listener]]\nname = 'gentle'\nlisten = '127.0.0.1:0'\nschedule = '{schedule}'\n\
         receive_buffer = '16MiB'\nring_size = '1MiB'\n\
         [[listener.target]]\nname = 'c'\nto = '{gentle}'\n",
        flood[0],
        flood[1],
        stuck.display()
    )
}

/// What `weir config check` says that the process takes for datagrams.
struct Budget {
    /// All of it.
    process_bytes: u64,
    /// The rings of all listeners alone.
    ring_bytes: u64,
}

fn budget(config: &Path) -> Budget {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["config", "check", "--json"])
        .arg(config)
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let bytes = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{said:#}"));
    let listeners = said["memory"]["listeners"].as_array().unwrap();
    let rings =
        listeners.iter().map(|one| bytes(&one["ring_bytes"]) + bytes(&one["descriptor_bytes"]));
    Budget { process_bytes: bytes(&said["memory"]["process_bytes"]), ring_bytes: rings.sum() }
}

/// Holds one listener of the verifier against the generator, the ledger, and the verifier's own words about the ledger.
fn check_target(ended: &Ended, sent: &Sent, target: &str, report: &Value, joined: &Value) -> u64 {
    let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value}"));
    let counts = &report["counts"];
    for fault in ["duplicate", "corrupt", "truncated", "foreign", "untracked", "beyond_window"] {
        assert_eq!(counts[fault], 0, "{fault}: {counts:#}");
    }
    let arrived = count(&counts["received"]) + count(&counts["heartbeats"]);
    let own_drops = count(&report["kernel_dropped"]);
    let socket = ended.hop(HopKind::Socket, None);
    let receive = ended.hop(HopKind::Receive, None);
    let account = ended.account(target);
    let before = socket.dropped_total().count + receive.dropped_total().count;
    say(&format!(
        "  {target}: sent {} = arrived {arrived} + our socket {own_drops} + relay's socket {} + ring {:?} + {:?}",
        sent.all(),
        socket.dropped_total().count,
        receive.dropped,
        account.dropped,
    ));
    assert_eq!(sent.all(), arrived + own_drops + before + account.lost());
    assert_eq!(account.delivered, arrived + own_drops);
    // What `weir verify --ledger` says is the same, by place.
    assert_eq!((&joined["unexplained"], &joined["surplus"]), (&0.into(), &0.into()), "{joined:#}");
    let losses = joined["losses"].as_array().unwrap();
    let lost: u64 = losses.iter().map(|loss| count(&loss["datagrams"])).sum();
    assert_eq!(count(&joined["sent"]), sent.all(), "{joined:#}");
    assert_eq!(sent.all(), arrived + lost + count(&joined["in_flight"]), "{joined:#}");
    let at_socket = losses.iter().find(|loss| loss["place"] == "socket");
    let at_socket = at_socket.map_or(0, |loss| count(&loss["datagrams"]));
    assert_eq!(at_socket, socket.dropped_for(Reason::SocketBuffer).count, "{joined:#}");
    before + account.lost()
}

/// A machine that is busy with other things may lose all of a stream's last heartbeats. Then nobody but the generator knows
/// how many it sent, and the run proves nothing about the verifier.
const ATTEMPTS: u32 = 5;

fn flood(schedule: &str) {
    assert!((0..ATTEMPTS).any(|_| flood_has_known_end(schedule)), "{ATTEMPTS} ends were lost");
}

fn has_known_end(report: &Value) -> bool {
    report["listeners"].as_array().unwrap().iter().all(|listener| {
        let run = &listener["runs"][0];
        run["streams_ended"] == run["streams_announced"] && listener["ended_by"] == "done"
    })
}

fn flood_has_known_end(schedule: &str) -> bool {
    let folder = TempDir::new();
    let gentle = Verifier::start(&Place::Here, &["127.0.0.1:0"], &["--until-done"]);
    // The verifier needs the admin address, and the relay needs the verifier's: their ports are chosen before.
    let addresses = [free_udp_address(), free_udp_address()].map(|at| at.to_string());
    let path = folder.file("weir.toml");
    // Nobody reads it before the end: what it is behind fills the ring, whatever the others do.
    let stuck = UnixDatagram::bind(folder.file("stuck")).unwrap();
    stuck.set_nonblocking(true).unwrap();
    let text = config(schedule, &addresses, &folder.file("stuck"), &gentle.listens[0]);
    std::fs::write(&path, text).unwrap();
    let relay = Weir::run(&path);
    let own_before = relay.own_bytes();
    let [at_flood, at_gentle] = &relay.addresses[..] else { panic!("{:?}", relay.addresses) };
    // A small buffer, so that the verifier loses some too and has to say so.
    let own = ["--until-done", "--silence", "5s", "--receive-buffer", "256KiB"];
    let url = relay.url();
    let more = [&own[..], &["--admin", &url]].concat();
    let names = ["--ledger-target", "in/a", "--ledger-target", "in/b"];
    let listens = [&addresses[0][..], &addresses[1]];
    let verifier = Verifier::start(&Place::Here, &listens, &[&more[..], &names].concat());

    let mild = Generator::start(&Place::Here, at_gentle, &["--rate", "1k", "--count", "4k"]);
    let load = ["--rate", "max", "--gso", "--senders", "3", "--duration", "3s"];
    let sent = Generator::start(&Place::Here, at_flood, &load).finish();
    let mild = mild.finish();
    gentle.expect_all(&mild);
    let (_, report) = verifier.finish();

    let own = relay.own_bytes();
    let grown = own - own_before;
    let Budget { process_bytes, ring_bytes } = budget(&path);
    let budget = process_bytes + FIXED_BYTES;
    wait_for("the rest", || {
        while stuck.recv(&mut [0; 2_048]).is_ok() {}
        relay.ledger().hops.iter().all(|hop| hop.in_flight.is_zero()).then_some(())
    });
    let ended = relay.stop();
    say(&format!(
        "{schedule}: flood of {}, {own} of {budget} bytes in use, {grown} more than at the start with \
         rings of {ring_bytes}; the other listener got all of {}",
        sent.all(),
        mild.all()
    ));
    if !has_known_end(&report) {
        say("the last heartbeats of a stream were lost: once more");
        return false;
    }
    for (idx, target) in ["a", "b"].iter().enumerate() {
        let (listener, joined) = (&report["listeners"][idx], &report["ledger"][idx]);
        let lost = check_target(&ended, &sent, target, listener, joined);
        assert!(lost > sent.all() / 10, "this was no overload: {lost} of {}", sent.all());
    }
    // Pages once touched stay: this is what the flood took, and the flooded ring was full.
    assert!(own <= budget, "{own} bytes are in use, the budget is {budget}");
    let grown_max = ring_bytes + GROWTH_BESIDE_RINGS_BYTES;
    assert!(grown <= grown_max, "memory grew by {grown} bytes with rings of {ring_bytes}");
    assert!(grown >= 4 << 20, "{grown} bytes: the flood did not fill the ring");
    let spared = hop(&ended.ledger, HopKind::Egress, "c");
    assert_eq!(spared.delivered.count, mild.all());
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    true
}

#[test]
fn a_flood_is_accounted_for_and_harms_no_other_listener_inline() {
    flood(SCHEDULES[0]);
}

#[test]
fn a_flood_is_accounted_for_and_harms_no_other_listener_threaded() {
    flood(SCHEDULES[1]);
}

#[test]
fn the_ledger_is_asked_before_the_generator_may_start() {
    let daemon = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", daemon.local_addr().unwrap());
    let mut command = Place::Here.weir();
    command.args(["verify", "--listen", "127.0.0.1:0", "--duration", "10ms", "--admin", &url]);
    let mut verifier = Process::start(command);
    let (question, _) = daemon.accept().unwrap();
    assert_eq!(verifier.said(), "");
    answer_with_an_empty_ledger(question);
    verifier.hear("listening on ");
    // It asks once more at the end.
    let (question, _) = daemon.accept().unwrap();
    answer_with_an_empty_ledger(question);
    verifier.finish();
}

fn answer_with_an_empty_ledger(mut question: TcpStream) {
    let body = serde_json::to_string(&ledger::Snapshot::default()).unwrap();
    let mut head = [0; 4_096];
    let len = question.read(&mut head).unwrap();
    assert!(head[..len].starts_with(b"GET /ledger "));
    let type_and_length =
        format!("Content-Type: application/json\r\nContent-Length: {}", body.len());
    write!(question, "HTTP/1.1 200 OK\r\n{type_and_length}\r\nConnection: close\r\n\r\n{body}")
        .unwrap();
}
