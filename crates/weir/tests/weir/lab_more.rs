//! `weir lab relay` as a process, with tiny measurements.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder that is gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        Folder(std::env::temp_dir().join(format!("weir-lab-more-{name}-{}", std::process::id())))
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&fs::read(self.0.join("report.json")).unwrap()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(words: &str, out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.arg("lab").args(words.split_whitespace()).args(["--progress", "off", "--out"]).arg(out);
    command
}

/// Runs it; `None` where this host forbids networks or cannot make them.
fn run(words: &str, out: &Path) -> Option<Output> {
    let output = command(words, out).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Some(output),
        Some(69 | 77) if std::env::var("REQUIRE_NETNS").as_deref() != Ok("1") => {
            skipped(&words);
            None
        }
        code => panic!("{code:?}: {words}"),
    }
}

/// Straight to the descriptor: the test harness captures `eprintln!` of tests that pass.
fn skipped(why: &str) {
    let mut err = std::io::stderr();
    writeln!(err, "skipped: {why}").unwrap();
}

/// The model's figures are not judged here, where other tests run: only that they are there, and of the right size.
#[test]
fn stages_have_costs_and_a_prediction_beside_what_was_measured() {
    if !testkit::need_root_netns() {
        return;
    }
    let mut command = Command::new(crate::support::WEIR);
    command
        .args("lab relay --stages --json --sizes 200 --duration 100ms --progress off".split(' '));
    let figures: Value = serde_json::from_str(&testkit::run(&mut command)).unwrap();

    let costs = figures["costs"].as_object().unwrap();
    assert_eq!(costs.len(), 10);
    for name in ["receive_ns", "member_ns", "merge_ns", "send_ns", "worker_send_ns", "deliver_ns"] {
        let ns = costs[name].as_f64().unwrap();
        assert!((1.0..1e6).contains(&ns), "{name}: {ns}");
    }
    let known = figures["known"].as_array().unwrap();
    assert_eq!(known.len(), 8);
    for one in known {
        assert!(one["predicted_per_sec"].as_f64().unwrap() > 0.0, "{one:#}");
        assert!(one["measured_per_sec"].as_f64().unwrap() > 0.0, "{one:#}");
    }
    let predicted = figures["predicted"].as_array().unwrap();
    assert_eq!(predicted.len(), 15);
    assert_eq!(predicted[14]["relay"]["processors"], 64);
}

#[test]
fn our_relay_s_ledger_stands_beside_what_the_receivers_miss() {
    let folder = Folder::new("relay");
    let words = "relay --sizes 200 --targets 1,2 --flows 3 --rates 1k,2k --duration 300ms";
    let Some(output) = run(words, &folder.0) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("200 bytes, 2 targets, 3 flows: "), "{text}");
    let report = folder.json();
    assert!(report["relay"].as_str().unwrap().starts_with("weir relay "));
    assert!(report["about"]["command"].as_str().unwrap().starts_with("weir lab relay --sizes 200"));
    let curves = report["curves"].as_array().unwrap();
    assert_eq!(curves.len(), 2);
    for curve in curves {
        for sample in curve["samples"].as_array().unwrap() {
            let (ledger, of) = (&sample["ledger"], |name: &str| sample[name].as_u64().unwrap());
            assert_eq!(ledger["balanced"], true, "{sample}");
            assert!(ledger["received"].as_u64().unwrap() >= of("sent"), "{sample}");
            assert_eq!(of("expected") - of("received"), of("missing"));
            assert!(
                of("received") > 0 && !ledger["snapshot"]["hops"].as_array().unwrap().is_empty()
            );
        }
    }
    assert!(folder.0.join("report.html").exists() && folder.0.join("charts/loss.svg").exists());
}

#[test]
fn a_relay_elsewhere_needs_no_privilege() {
    let folder = Folder::new("elsewhere");
    // Nothing between sender and receiver is the relay that loses least.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let words = format!(
        "relay --to 127.0.0.1:{port} --receive 127.0.0.1:{port} --sizes 100 --flows 1 --rates 1k --duration 300ms"
    );
    let output = command(&words, &folder.0).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = folder.json();
    assert_eq!(report["relay"], format!("the relay at udp://127.0.0.1:{port}"));
    let sample = &report["curves"][0]["samples"][0];
    assert_eq!(
        (&sample["missing"], &sample["ledger"]),
        (&Value::from(0), &Value::Null),
        "{sample}"
    );
}

#[test]
fn what_makes_no_sense_is_a_mistake_of_usage_and_leaves_no_folder() {
    let folder = Folder::new("usage");
    for words in [
        "relay --to 127.0.0.1:9",
        "relay --sizes 20",
        "relay --rates 0",
        "relay --duration 0s",
        "relay --tolerance 100",
        "relay --targets 0",
    ] {
        let output = command(words, &folder.0).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{words}: {text}");
        assert!(!folder.0.exists(), "{words}");
    }
}

#[test]
fn the_relay_ends_with_the_command_however_that_ends() {
    let folder = Folder::new("killed");
    let words = "relay --sizes 200 --targets 1 --flows 1 --rates 1k --duration 60s";
    let mut lab = command(words, &folder.0).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let relay = loop {
        if let Some(status) = lab.try_wait().unwrap() {
            assert_ne!(std::env::var("REQUIRE_NETNS").as_deref(), Ok("1"), "it ended: {status}");
            skipped("no networks here");
            return;
        }
        if let Some(child) = child_of(lab.id()) {
            break child;
        }
        assert!(Instant::now() < deadline, "no relay was started");
        std::thread::sleep(Duration::from_millis(10));
    };
    lab.kill().unwrap();
    lab.wait().unwrap();
    while runs(relay) {
        assert!(Instant::now() < deadline, "the relay {relay} outlived the command");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A `weir relay` that this process has started.
fn child_of(process: u32) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let children =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|list| {
            list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()
        })
        .collect();
    children.into_iter().find(|id| {
        fs::read(format!("/proc/{id}/cmdline"))
            .is_ok_and(|line| line.windows(7).any(|w| w == b"\0relay\0"))
    })
}

/// Whether a process is there and not only waiting to be reaped.
fn runs(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("State:") && !line.contains('Z') && !line.contains('X'))
}
