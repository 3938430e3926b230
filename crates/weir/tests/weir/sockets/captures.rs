//! Captures: what `ss` wrote is read, and what is written is read by `ss` and by us.

use super::rig::{connect, output, records, said, sockets, sockets_in, text};
use super::{rig::Many, ss};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use testkit::{Netns, Peer, TempDir, need_root_netns, need_tool, run};

/// What of a record stays as it is in a capture: all but where and when it was read.
fn kept(record: &Value) -> Value {
    const ELSEWHERE: [&str; 13] = [
        "run_id",
        "host_id",
        "kernel_release",
        "time_unix_ns",
        "poll",
        "sequence",
        "host",
        "boot_id",
        "netns_inode",
        "netns_name",
        "cgroup_path",
        "systemd_unit",
        "container_id",
    ];
    let mut record = record.clone();
    let object = record.as_object_mut().unwrap();
    object.retain(|name, _| !ELSEWHERE.contains(&name.as_str()));
    record
}

fn by_cookie(records: &[Value]) -> BTreeMap<u64, Value> {
    records.iter().map(|record| (record["cookie"].as_u64().unwrap(), kept(record))).collect()
}

#[test]
fn a_dump_of_ss_is_read() {
    if !need_root_netns() || !need_tool("ss") || !need_tool("python3") {
        return;
    }
    let netns = Netns::new();
    let _many = Many::make(&netns, 100);
    let folder = TempDir::new();
    let dump = folder.text("dump");
    run(netns.command("ss").args(["-tai", "-D", &dump]));
    let read = records(sockets(&["--read", &dump, "--format", "jsonl"]));
    let live = ss::all(&netns);
    // Where both ends are closed, one of them is gone.
    assert!(read.len() >= 190, "{}", read.len());
    for record in &read {
        assert!(live.contains_key(&record["cookie"].as_u64().unwrap()), "{record}");
        // Of which host it is the file does not say.
        assert!(record.get("host").is_none() && record.get("netns_inode").is_none(), "{record}");
    }
    let table = text(sockets(&["--read", &dump, "--listening"]));
    assert_eq!(table.lines().count(), 1 + 4, "{table}");
    let filtered =
        records(sockets(&["--read", &dump, "--format", "jsonl", "state close-wait and rtt > 0us"]));
    assert!(!filtered.is_empty() && filtered.iter().all(|record| record["state"] == "close_wait"));
}

#[test]
fn what_is_written_is_read_back_by_us_and_by_ss() {
    if !need_root_netns() || !need_tool("ss") || !need_tool("python3") {
        return;
    }
    let netns = Netns::new();
    let _many = Many::make(&netns, 100);
    let folder = TempDir::new();
    let (dump, pcap, back) = (folder.text("dump"), folder.text("pcap"), folder.text("back"));
    let written = output(sockets_in(&netns, &["--all", "--write", &dump]));
    assert!(written.status.success() && written.stdout.is_empty(), "{}", said(&written));
    assert!(said(&written).contains("sockets written to"), "{}", said(&written));
    let first = by_cookie(&records(sockets(&["--read", &dump, "--format", "jsonl"])));
    assert!(first.len() >= 190);
    // Over pcap and back it is the same.
    text(sockets(&["--read", &dump, "--write", &pcap, "--write-format", "pcap"]));
    text(sockets(&["--read", &pcap, "--write", &back]));
    assert_eq!(by_cookie(&records(sockets(&["--read", &pcap, "--format", "jsonl"]))), first);
    assert_eq!(fs::read(&back).unwrap().len(), fs::read(&dump).unwrap().len());
    let mut replay = Command::new("ss");
    replay.arg("-tinmHOae").env("TCPDIAG_FILE", &dump);
    let by_ss = ss::parse(replay);
    assert!(by_ss.keys().eq(first.keys()), "ss read {} of {}", by_ss.len(), first.len());
    for (cookie, fields) in &by_ss {
        assert_eq!(fields["recv_q"], first[cookie]["receive_queue"].to_string(), "{fields:?}");
    }
}

#[test]
fn broken_parts_are_counted_and_the_rest_is_read() {
    let connection = connect("127.0.0.1:0");
    let folder = TempDir::new();
    let dump = folder.text("dump");
    text(sockets(&[&connection.filter(), "--write", &dump]));
    let mut bytes = fs::read(&dump).unwrap();
    let length = u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize;
    // The first message gets an unknown family, the last one an end that is missing.
    bytes[16] = 99;
    bytes.truncate(bytes.len() - 4);
    fs::write(&dump, &bytes).unwrap();
    let read = output(sockets(&["--read", &dump, "--format", "jsonl"]));
    // Sockets are missing, and so is the end of the dump.
    assert_eq!(read.status.code(), Some(65), "{}", said(&read));
    assert_eq!(String::from_utf8(read.stdout.clone()).unwrap().lines().count(), 1, "{length}");
    assert!(said(&read).contains("2 parts could not be decoded"), "{}", said(&read));
    assert!(said(&read).contains("unknown_family 1"), "{}", said(&read));
}

#[test]
fn standard_input_and_output_are_files_too() {
    let connection = connect("127.0.0.1:0");
    let written = output(sockets(&[&connection.filter(), "--write", "-"]));
    let folder = TempDir::new();
    fs::write(folder.file("dump"), &written.stdout).unwrap();
    let mut read = sockets(&["--read", "-", "--format", "jsonl", "--columns", "src_port"]);
    let read =
        read.stdin(Stdio::from(fs::File::open(folder.file("dump")).unwrap())).output().unwrap();
    assert_eq!(String::from_utf8(read.stdout).unwrap().lines().count(), 2);
}

/// `ss -D` writes them; whoever may ask the kernel for them needs CAP_NET_ADMIN.
#[test]
fn keys_of_signatures_are_not_written() {
    if !need_root_netns() || !need_tool("ss") || !need_tool("python3") {
        return;
    }
    let netns = Netns::new();
    let script = testkit::root().join("crates/weir/tests/weir/sockets/md5_connection.py");
    let mut command = netns.command("python3");
    let mut peer = Peer::start(command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(peer.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.trim() == "no MD5" {
        return;
    }
    let folder = TempDir::new();
    let (ours, theirs) = (folder.text("ours"), folder.text("theirs"));
    text(sockets_in(&netns, &["--write", &ours]));
    run(netns.command("ss").args(["-tai", "-D", &theirs]));
    let has_key = |path: &str| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(25).any(|window| window == b"a key that nobody may see")
    };
    assert!(has_key(&theirs), "the kernel tells keys");
    assert!(!has_key(&ours));
    let read = records(sockets(&["--read", &theirs, "--format", "jsonl"]));
    assert!(read.iter().any(|record| record["has_md5"] == true));
    text(sockets(&["--read", &theirs, "--write", &ours, "--write-format", "pcap"]));
    assert!(!has_key(&ours));
    let everything = output(sockets(&["--read", &theirs, "--format", "msgpack"])).stdout;
    assert!(!String::from_utf8_lossy(&everything).contains("nobody may see"));
    drop(peer.0.stdin.take());
    peer.0.wait().unwrap();
}
