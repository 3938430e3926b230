//! `GET /sockets`: who is answered, and what an answer costs.

use super::{listen_in, wait_for_polls, wait_for_reloads};
use crate::support::{WEIR, Weir};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::{
    DEADLINE, Netns, Peer, TempDir, need_root, need_root_netns, need_tool, run, signal, try_get,
    wait_for,
};

/// A configuration with these keys under `[admin]` and `[sockets]`.
fn write(dir: &TempDir, admin: &str, sockets: &str) -> PathBuf {
    let text = format!(
        "[admin]\n{admin}\n[sockets]\n{sockets}\n[[sink]]\nfrom = [\"sockets\"]\nto = \"null:\"\n"
    );
    let path = dir.file("weir.toml");
    fs::write(&path, text).unwrap();
    path
}

/// Asks at a unix socket as another user. Prints the answer, or why there is none.
const ASK_AS: &str = r#"
import os, socket, sys
path, uid, page = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
client = socket.socket(socket.AF_UNIX)
try:
    client.connect(path)
except PermissionError:
    sys.exit(print("may not connect"))
client.sendall(f"GET {page} HTTP/1.0\r\nHost: anything\r\n\r\n".encode())
answer = b""
while piece := client.recv(65536):
    answer += piece
print(answer.decode())
"#;

fn ask_as(uid: u32, path: &Path, page: &str) -> String {
    let uid = uid.to_string();
    run(Command::new("python3").args(["-c", ASK_AS]).arg(path).args([&uid, page]))
}

#[test]
fn sockets_of_other_namespaces_are_shown_to_known_users_alone() {
    if !need_root_netns() || !need_root("becoming another user") || !need_tool("python3") {
        return;
    }
    let (dir, netns) = (TempDir::new(), Netns::new());
    let mut inside = listen_in(&netns);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.file("admin.sock");
    let socket = format!("socket = \"{}\"", path.display());
    let all = "states = [\"all\"]\nlisten_every = 1\nnamespaces = \"all\"";
    let page = "/sockets?filter=sport+=+:9464";
    let weir = Weir::run(&write(&dir, "", all));
    wait_for_polls(&weir, 1);
    let name = format!("\"netns_name\":\"{}\"", netns.name);
    let at_the_address = || try_get(weir.admin, page, "*/*").unwrap();
    assert!(!at_the_address().contains(&name), "at an address nobody: {}", at_the_address());
    // With a socket, and nobody named.
    write(&dir, &socket, all);
    signal(weir.process(), "HUP");
    wait_for_reloads(&weir, 1);
    let sees = |uid| {
        let answer = ask_as(uid, &path, page);
        assert_eq!(answer.contains("HTTP/1.0 200"), answer.contains("\"sockets\":["), "{answer}");
        answer.contains(&name)
    };
    wait_for(|| ask_as(0, &path, page), || sees(0).then_some(()));
    assert_eq!(ask_as(65_534, &path, page).trim(), "may not connect");
    assert!(!at_the_address().contains(&name));
    // With one named, and after somebody has removed the file.
    fs::remove_file(&path).unwrap();
    write(&dir, &format!("{socket}\nsocket_users = [\"65534\"]"), all);
    signal(weir.process(), "HUP");
    wait_for_reloads(&weir, 2);
    assert!(sees(0) && sees(65_534), "{}", ask_as(65_534, &path, page));
    let stranger = ask_as(4_321, &path, page);
    assert!(stranger.starts_with("HTTP/1.0 403"), "{stranger}");
    assert!(stranger.contains("admin.socket_users") && !stranger.contains(&netns.name));
    assert!(ask_as(4_321, &path, "/ledger").starts_with("HTTP/1.0 403"));
    assert!(ask_as(65_534, &path, "/ledger").starts_with("HTTP/1.0 200"));
    // In the own namespace everybody may list sockets, and so everybody is answered.
    write(&dir, &socket, "namespaces = \"own\"");
    signal(weir.process(), "HUP");
    wait_for_reloads(&weir, 3);
    wait_for(|| "an answer".to_owned(), || try_get(weir.admin, page, "*/*").ok());
    assert_eq!(ask_as(65_534, &path, page).trim(), "may not connect");
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(ended.said.matches("collector started anew").count(), 1, "{}", ended.said);
    assert!(!path.exists(), "the file goes with the daemon");
    inside.terminate();
}

#[test]
fn connections_to_the_daemon_itself_are_left_out_and_counted() {
    let dir = TempDir::new();
    let keys = "namespaces = \"own\"\ninterval = \"1s\"\njitter = \"0s\"";
    let weir = Weir::run(&write(&dir, "", keys));
    let _held = std::net::TcpStream::connect(weir.admin).unwrap();
    let port = weir.admin.port();
    let page = format!("/sockets?filter=sport+=+:{port}+or+dport+=+:{port}");
    let matched = |count: &str| {
        let answer = || try_get(weir.admin, &page, "*/*").unwrap_or_default();
        wait_for(answer, || answer().contains(&format!("\"matched\":{count}")).then_some(()));
    };
    matched("0,");
    let filtered = || {
        let ledger: serde_json::Value =
            serde_json::from_str(&try_get(weir.admin, "/ledger", "*/*").unwrap()).unwrap();
        let dropped = |hop: &serde_json::Value| {
            let all = hop["dropped"].as_array().unwrap().iter();
            let count = all.filter(|one| one["reason"] == "filtered").map(|one| &one["count"]);
            count.map(|count| count.as_str().unwrap().parse::<u64>().unwrap()).sum::<u64>()
        };
        let hops = ledger["hops"].as_array().unwrap().iter();
        hops.filter(|hop| hop["hop"] == "poll" || hop["hop"] == "close")
            .map(dropped)
            .collect::<Vec<_>>()
    };
    wait_for(
        || format!("{:?}", filtered()),
        || filtered().iter().all(|count| *count > 0).then_some(()),
    );

    // Where somebody wants them.
    write(&dir, "", &format!("{keys}\nadmin_connections = true"));
    signal(weir.process(), "HUP");
    wait_for_reloads(&weir, 1);
    let _held = std::net::TcpStream::connect(weir.admin).unwrap();
    let answer = || try_get(weir.admin, &page, "*/*").unwrap_or_default();
    wait_for(answer, || {
        (answer().contains("\"matched\":") && !answer().contains("\"matched\":0,")).then_some(())
    });
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
}

#[test]
fn the_refusal_says_where_to_ask() {
    let dir = TempDir::new();
    let weir = Weir::run(&write(&dir, "", "namespaces = \"all\""));
    let mut stream = std::net::TcpStream::connect(weir.admin).unwrap();
    stream
        .write_all(b"GET /records?follow&from=sockets HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("Fix: weir ui"), "{answer}");
    weir.stop();
}

#[test]
fn a_socket_that_cannot_be_had_is_refused_with_the_reason() {
    let dir = TempDir::new();
    let refused = |admin: &str| {
        let config = write(&dir, admin, "namespaces = \"own\"");
        let output = Command::new(WEIR).args(["run", "-c"]).arg(config).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = refused("listen = \"off\"\nsocket = \"/no/such/folder/admin.sock\"");
    assert!(code == Some(69) && said.contains("mkdir -p /no/such/folder"), "{said}");
    let socket = format!("listen = \"off\"\nsocket = \"{}\"", dir.text("admin.sock"));
    let (code, said) = refused(&format!("{socket}\nsocket_users = [\"no such user\"]"));
    assert!(code == Some(78) && said.contains("no user \"no such user\""), "{said}");
    let (code, said) = refused("socket_users = [\"root\"]");
    assert!(code == Some(78) && said.contains("there is no socket"), "{said}");
    // Another program's is left alone, and so is a file; one that nobody listens at is taken over.
    let _live = std::os::unix::net::UnixListener::bind(dir.file("admin.sock")).unwrap();
    let (code, said) = refused(&socket);
    assert!(code == Some(69) && said.contains("another program listens there"), "{said}");
    drop(_live);
    let config =
        write(&dir, &format!("socket = \"{}\"", dir.text("admin.sock")), "namespaces = \"own\"");
    let weir = Weir::run(&config);
    let mode = fs::metadata(dir.file("admin.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    weir.stop();
}

/// A figure of `/proc/PID/status` in KiB.
fn status_kib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The whole answer to a question at a unix socket.
fn ask(path: &Path, page: &str) -> String {
    let mut client = UnixStream::connect(path).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    client.write_all(format!("GET {page} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    body.to_owned()
}

/// `WEIR_TEST_CONNECTIONS=50000` for the figure that is published; each has two sockets.
fn connections() -> usize {
    let wanted = std::env::var("WEIR_TEST_CONNECTIONS").ok();
    wanted.map_or(12_000, |text| text.parse().unwrap())
}

#[test]
fn an_answer_of_many_sockets_takes_little_memory() {
    const KIB_MAX: u64 = 8 * 1_024;
    if !need_root_netns() || !need_tool("python3") {
        return;
    }
    let (dir, netns) = (TempDir::new(), Netns::new());
    let script = testkit::root().join("crates/weir/tests/weir/sockets/make_sockets.py");
    let mut command = netns.command("python3");
    command.arg(script).arg(connections().to_string());
    let mut crowd = Peer::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut ready = String::new();
    BufReader::new(crowd.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let path = dir.file("admin.sock");
    let keys = "namespaces = \"own\"\ninterval = \"1h\"\ncloses = false";
    let config = write(&dir, &format!("socket = \"{}\"", path.display()), keys);
    let mut command = netns.command(WEIR);
    command.args(["run", "-c"]).arg(config);
    let weir = Weir::start(command);
    wait_for(
        || "the first poll".to_owned(),
        || ask(&path, "/ledger").contains("\"polls\":\"1\"").then_some(()),
    );
    // Everything that a question takes once and for all.
    ask(&path, "/sockets?limit=1");
    let before = status_kib(weir.pid(), "VmRSS:");
    // The peak from here on (proc(5), clear_refs).
    fs::write(format!("/proc/{}/clear_refs", weir.pid()), "5").unwrap();
    let answer = ask(&path, "/sockets?limit=100000");
    let peak = status_kib(weir.pid(), "VmHWM:");
    let shown = answer.matches("\"record_kind\":").count();
    let size = answer.len() >> 20;
    let grown = peak.saturating_sub(before);
    let told = format!("{shown} sockets, {size} MiB of JSON: from {before} KiB to {peak} KiB");
    writeln!(std::io::stderr(), "{told}").unwrap();
    assert!(answer.contains(&format!("\"shown\":{shown},\"truncated\":")), "{told}");
    assert!(answer.ends_with("}\n"), "{told}");
    assert!(size >= 16, "not enough to tell: {told}");
    assert!(grown <= KIB_MAX, "{told}");
    // And of many that ask for as much, and do not read.
    let mut deaf: Vec<_> = (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for client in &mut deaf {
        client.write_all(b"GET /sockets?limit=100000 HTTP/1.0\r\n\r\n").unwrap();
        client.set_nonblocking(true).unwrap();
    }
    let mut kept = Vec::new();
    // Those who have to wait are told to come back, or get their turn: all of them, in the end.
    let begins = |client: &mut UnixStream| client.read(&mut [0]).is_ok_and(|len| len == 1);
    let all_began = || {
        deaf.retain_mut(|client| {
            if begins(client) {
                kept.push(client.try_clone().unwrap());
                false
            } else {
                true
            }
        });
        deaf.is_empty().then_some(())
    };
    wait_for(|| "all answers".to_owned(), all_began);
    let peak = status_kib(weir.pid(), "VmHWM:");
    assert!(peak.saturating_sub(before) <= KIB_MAX, "from {before} KiB to {peak} KiB");
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    drop(crowd.0.stdin.take());
}
