//! The process that answers one question: what it may take is taken from it by the kernel, and what it cannot need is not there.

use crate::support::WEIR;
use record::{ChunkBuilder, SocketRecord};
use serde_json::json;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{TempDir, wait_for, wait_for_up_to};

const NUMBERS: &str = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)";
/// As every Linux has it.
const SIGXCPU: i32 = 24;
/// Processor time comes slowly where other tests have the processors.
const BUSY_MAX: Duration = Duration::from_secs(300);
/// `linux/capability.h`: the bit of the one that opens other processes' files in `/proc`.
const CAP_SYS_PTRACE: u64 = 1 << 19;
const MEMORY_BYTES_MAX: u64 = 32 << 20;

fn fill(folder: &Path) {
    let options = store::Options {
        folder: folder.to_owned(),
        keep_age: None,
        keep_bytes: None,
        segment_age: Duration::from_secs(3_600),
        keys_max: 10,
    };
    let mut writer = store::Writer::open(options).unwrap();
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    for cookie in 0..100 {
        let record =
            SocketRecord { time_unix_ns: Some(1), cookie: Some(cookie), ..Default::default() };
        builder.record(&record);
    }
    let chunk = builder.cut(None).unwrap();
    writer.insert(chunk.rows().map(|row| (row.kind, row.bytes)), sys::clock::Now::read()).unwrap();
    writer.seal_all().unwrap();
}

/// Starts the process with a question whose statement may take this long.
fn start(folder: &Path, statement: &str, time: Duration) -> Child {
    let errand = json!({
        "folder": folder, "named": null, "statement": statement, "clearance": "public",
        "time_ms": time.as_millis() as u64, "rows_max": 100, "bytes_max": 1 << 20,
        "memory_bytes_max": MEMORY_BYTES_MAX,
    });
    let mut command = Command::new(WEIR);
    command.arg("query-helper").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(errand.to_string().as_bytes()).unwrap();
    child
}

fn finish(mut child: Child) -> String {
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    said
}

fn status(child: &Child, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn a_statement_takes_no_more_memory_than_its_process_may() {
    let dir = TempDir::new();
    fill(&dir.file("history"));
    for statement in [
        format!("{NUMBERS} SELECT json_group_array(hex(zeroblob(100000)) || x) FROM n"),
        format!("{NUMBERS} SELECT x, randomblob(50000) AS r FROM n ORDER BY r"),
        format!("{NUMBERS} SELECT count(DISTINCT hex(zeroblob(1000)) || x) FROM n"),
    ] {
        let mut child = start(&dir.file("history"), &statement, Duration::from_secs(3));
        let mut most_kib = 0;
        wait_for_up_to(BUSY_MAX, "it to end", || {
            most_kib = most_kib.max(status(&child, "VmData:").unwrap_or(0));
            child.try_wait().unwrap()
        });
        let said = finish(child);
        // An aggregate of SQLite that has no memory goes on and says so at the end.
        let is_refused = said.starts_with("memory\nit needed more than 32 MiB")
            || said.starts_with("time\nstopped after 3 s");
        assert!(is_refused, "{statement}: {said}");
        assert!(said.contains("Fix: "), "{said}");
        // Seen while it ran: what it began with, and no more than that.
        assert!(most_kib <= (MEMORY_BYTES_MAX >> 10) + (16 << 10), "{statement}: {most_kib} KiB");
    }
}

#[test]
fn it_has_no_privilege_no_descriptor_and_no_file_but_the_stores() {
    let dir = TempDir::new();
    fill(&dir.file("history"));
    let endless = format!("{NUMBERS} SELECT max(x) FROM n");
    let child = start(&dir.file("history"), &endless, Duration::from_secs(60));
    // 2 is a filter: the last thing that it gives up.
    wait_for("it to be confined", || (status(&child, "Seccomp:") == Some(2)).then_some(()));
    let proc = |name: &str| format!("/proc/{}/{name}", child.id());
    let text = fs::read_to_string(proc("status")).unwrap();
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let limits = fs::read_to_string(proc("limits")).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {limits}"))
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(limit("Max file size"), "0");
    assert_eq!(limit("Max core file size"), "0");
    assert_eq!(limit("Max cpu time"), "63");
    assert_ne!(limit("Max address space"), "unlimited");

    let store = fs::canonicalize(dir.file("history")).unwrap();
    let may_look = sys::process::effective_capabilities().unwrap() & CAP_SYS_PTRACE != 0;
    for entry in fs::read_dir(proc("fd")).unwrap() {
        // It forbids tracing: without the capability, no other process of its user sees what it has open.
        let target = entry.and_then(|entry| {
            let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
            Ok((number, fs::read_link(entry.path())?))
        });
        match target {
            Ok((number, target)) => {
                assert!(may_look, "{number}: {target:?}");
                assert!(number < 3 || target.starts_with(&store), "{number}: {target:?}");
            }
            Err(error) => {
                assert!(!may_look && error.kind() == ErrorKind::PermissionDenied, "{error}")
            }
        }
    }
    testkit::signal(&child, "KILL");
    finish(child);
}

/// One instruction after the other: SQLite does not look at its clock in between.
#[test]
fn a_statement_without_a_loop_ends_by_its_processor_time() {
    let dir = TempDir::new();
    fill(&dir.file("history"));
    let all: Vec<String> = (0..2_000).map(|at| format!("instr(a, b || {at})")).collect();
    let columns: Vec<String> = all.chunks(100).map(|some| some.join(" + ")).collect();
    let statement = format!(
        "SELECT {} FROM (SELECT hex(zeroblob(130000)) AS a, hex(zeroblob(65000)) AS b)",
        columns.join(", ")
    );
    let began = Instant::now();
    let mut child = start(&dir.file("history"), &statement, Duration::from_secs(1));
    let ended = wait_for_up_to(BUSY_MAX, "it to be killed", || child.try_wait().unwrap());
    assert_eq!(ended.signal(), Some(SIGXCPU), "{ended} after {:?}", began.elapsed());
}

#[test]
fn without_a_daemon_it_says_what_to_use() {
    let mut command = Command::new(WEIR);
    let output = command.arg("query-helper").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Fix: weir query"), "{output:?}");
}
