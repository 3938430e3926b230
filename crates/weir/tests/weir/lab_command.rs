//! `weir lab udp-vs-tcp` and `weir lab flows`: the whole commands, with plans of a few seconds.

use crate::nobody::NOBODY;
use crate::support::WEIR;
use lab::experiment::model::Experiment;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{TempDir, find_tool, need_root, need_root_netns, need_tool, run, signal};

const SMALL: &str =
    "--quick --loss 0,20 --duration 3s --runs 2 --transports udp,tcp-cubic --schedule closed,open";

/// The command with a plan, and the folder `report` within `dir` to report to.
fn add_plan(command: &mut Command, plan: &str, dir: &Path) {
    command.args(["lab", "udp-vs-tcp"]).args(plan.split_whitespace());
    command.arg("--out").arg(dir.join("report"));
}

/// The report in `dir`, after looking whether it is whole.
fn report(dir: &Path) -> Experiment {
    let folder = dir.join("report");
    for name in [
        "report.html",
        "report.json",
        "points.csv",
        "runs.csv",
        "charts/mean-delay-closed-loop.svg",
    ] {
        assert!(fs::metadata(folder.join(name)).unwrap().len() > 500, "{name}");
    }
    if need_tool("weir-python") {
        run(Command::new(find_tool("weir-python").unwrap())
            .args(["-c", PARSE_HTML])
            .arg(folder.join("report.html")));
    }
    serde_json::from_slice(&fs::read(folder.join("experiment.json")).unwrap()).unwrap()
}

const PARSE_HTML: &str = r#"
import html.parser, sys
VOID = {"meta", "br", "hr", "img", "input", "link", "col", "wbr"}
class Page(html.parser.HTMLParser):
    open = []
    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
    def handle_startendtag(self, tag, attributes):
        pass
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())
page = Page()
page.feed(open(sys.argv[1], encoding="utf-8").read())
page.close()
assert not page.open, page.open
"#;

/// No device of the lab's network is in the host's own.
fn check_nothing_left() {
    let devices = fs::read_to_string("/proc/net/dev").unwrap();
    for name in ["h1-eth0", "h2-eth0", "s1-eth1", "s1-eth2"] {
        assert!(!devices.contains(name), "{devices}");
    }
}

#[track_caller]
fn check_small(output: &Output, dir: &Path, privilege: &str) {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    for word in ["udp, closed loop", "tcp-cubic, open loop", "resamples"] {
        assert!(out.contains(word), "{word} is missing:\n{out}");
    }
    assert!(err.contains("report.html"), "{err}");
    let experiment = report(dir);
    assert_eq!(experiment.settings.privilege, privilege);
    assert!(experiment.about.command.starts_with("weir lab udp-vs-tcp --quick --loss 0,20 "));
    assert!(
        experiment.about.machine.kernel.starts_with("Linux ")
            && experiment.about.machine.processors > 0
    );
    assert!(
        experiment.about.machine.sysctls.iter().any(|(name, _)| name == "net.ipv4.tcp_retries2")
    );
    assert!(!experiment.about.interrupted && experiment.about.took_ns > 3_000_000_000);
    assert_eq!((experiment.points.len(), experiment.settings.parallel_runs), (8, 16));
    for one in experiment.points.iter().flat_map(|point| &point.runs) {
        assert_eq!((one.failure.as_str(), one.kernel.retransmit_failures), ("", 0));
        assert!(one.sent > 0 && one.measured_loss.is_some());
    }
    check_nothing_left();
}

#[test]
fn root_gets_a_table_and_a_report() {
    if !need_root_netns() {
        return;
    }
    let dir = TempDir::new();
    let mut command = Command::new(WEIR);
    add_plan(&mut command, SMALL, dir.path());
    check_small(&command.output().unwrap(), dir.path(), "root");
    // The same as JSON, into a folder that is there.
    command.arg("--json");
    let refused = command.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(64), "{said}");
    assert!(said.contains("has the report of an earlier run") && said.contains("--overwrite"));
    command.arg("--overwrite");
    let figures: serde_json::Value = serde_json::from_str(&run(&mut command)).unwrap();
    assert_eq!(figures["points"].as_array().unwrap().len(), 8);
}

/// Every check holds of our own engine; the lab's tests have one that is wrong.
#[test]
fn figures_of_flows_are_right_under_loss_and_attacks_are_noticed() {
    if !need_root_netns() {
        return;
    }
    let dir = TempDir::new();
    let output = Command::new(WEIR)
        .args(["lab", "flows", "--quick", "--loss", "20", "--runs", "60", "--json", "--out"])
        .arg(dir.file("report"))
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");

    let figures: serde_json::Value = serde_json::from_str(&out).unwrap();
    let runs: Vec<_> = figures["points"].as_array().unwrap().iter().map(|p| &p["runs"]).collect();
    assert_eq!(runs, [60, 60, 20]);
    assert_eq!(figures["detections"][0]["noticed"], 20);
    for name in ["report.html", "report.json", "points.csv", "charts/detection.svg"] {
        assert!(fs::metadata(dir.file("report").join(name)).unwrap().len() > 200, "{name}");
    }
    check_nothing_left();
}

/// A copy of the program in a folder of nobody's: the original may lie where only root may look.
fn nobody() -> Option<TempDir> {
    if !need_root("becoming another user") || !need_tool("setpriv") || !need_root_netns() {
        return None;
    }
    let dir = TempDir::new();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    run(Command::new("cp").arg(WEIR).arg(dir.file("weir")));
    chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    Some(dir)
}

#[test]
fn nobody_gets_the_same_in_a_user_namespace() {
    let Some(dir) = nobody() else { return };
    let mut command = Command::new(find_tool("setpriv").unwrap());
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--"]);
    command.arg(dir.file("weir")).current_dir(dir.path());
    add_plan(&mut command, SMALL, dir.path());
    check_small(&command.output().unwrap(), dir.path(), "user namespace");
}

/// A command that would run for ten minutes and has run for a few seconds.
fn under_way(dir: &Path) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = Command::new(WEIR);
    let plan = SMALL.replace("3s", "600s").replace("0,20", "0,40") + " --progress lines";
    add_plan(&mut command, &plan, dir);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut seen = 0;
    while seen < 4 {
        let mut line = String::new();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended");
        seen += u32::from(line.contains("round 1 of 1 (0 to 40 % loss, 16 flows)"));
    }
    (child, lines)
}

#[test]
fn an_interrupt_ends_it_with_what_was_measured() {
    if !need_root_netns() {
        return;
    }
    let dir = TempDir::new();
    let (child, mut lines) = under_way(dir.path());
    let began = Instant::now();
    signal(&child, "INT");
    // Standard error is read to its end, so that nobody waits for its reader.
    let rest = thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    let output = child.wait_with_output().unwrap();
    rest.join().unwrap().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let experiment = report(dir.path());
    assert!(experiment.about.interrupted && experiment.points.len() == 8);
    assert!(experiment.about.notes.iter().any(|note| note.contains("ended after")));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Ended before all runs were done"));
    check_nothing_left();
}

#[test]
fn a_second_signal_ends_it_at_once() {
    if !need_root_netns() {
        return;
    }
    let dir = TempDir::new();
    let (mut child, _lines) = under_way(dir.path());
    // Within half a second a second one is the same request (`timeout` signals a process and then its group).
    let status = loop {
        signal(&child, "TERM");
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        thread::park_timeout(Duration::from_millis(50));
    };
    assert_eq!(status.signal(), Some(15));
    check_nothing_left();
}

/// In a user namespace that may have 15 network namespaces: one experiment has up to nine at a time, so that two which
/// leave theirs behind would be the end of it.
#[test]
fn what_was_killed_leaves_nothing_behind() {
    if !need_root_netns() || !need_tool("unshare") {
        return;
    }
    let dir = TempDir::new();
    let mut command = Command::new(find_tool("unshare").unwrap());
    command.args(["--user", "--map-root-user", "sh", "-c", KILL_AND_START, WEIR]).arg(dir.path());
    run(&mut command);
    report(dir.path());
    check_nothing_left();
}

const KILL_AND_START: &str = r#"
set -e
# Room for three starts of six namespaces each, all of them still there, and not for a fourth.
echo 20 > /proc/sys/user/max_net_namespaces
small="lab udp-vs-tcp --quick --loss 0,20 --runs 1 --transports udp,tcp-cubic --out $1/report"
for round in 1 2 3; do
    "$0" $small --duration 600s --progress lines 2> "$1/log" & pid=$!
    until grep -q "round 1 of 1" "$1/log"; do kill -0 $pid; done
    kill -9 $pid
    wait $pid || true
done
# The kernel removes a namespace in its own time: a connection that nobody holds any more has its last segments to send.
for attempt in $(seq 40); do
    "$0" $small --duration 2s --progress off && exit 0
    sleep 1
done
exit 1
"#;

fn check_refused(limit: &str, drop: &str, code: i32, shows: &[&str]) {
    let dir = TempDir::new();
    let script = format!(
        "echo 0 > /proc/sys/user/{limit} && exec {drop} \"$0\" lab udp-vs-tcp --out \"$1\""
    );
    let output = Command::new(find_tool("unshare").unwrap())
        .args(["--user", "--map-root-user", "sh", "-c", &script, WEIR])
        .arg(dir.file("report"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in shows.iter().chain(&["`weir gen` and `weir verify`"]) {
        assert!(text.contains(word), "{word} is missing: {text}");
    }
    assert!(!dir.file("report").exists(), "a folder without a report");
}

#[test]
fn a_missing_privilege_is_named() {
    if !need_root_netns() || !need_tool("unshare") || !need_tool("setpriv") {
        return;
    }
    check_refused(
        "max_user_namespaces",
        "setpriv --securebits=+noroot --inh-caps=-all --bounding-set=-all --no-new-privs",
        77,
        &["user.max_user_namespaces is 0", "`sysctl -w user.max_user_namespaces=10000`"],
    );
    check_refused("max_net_namespaces", "", 69, &["the namespace of h1"]);
}

#[test]
fn what_makes_no_sense_is_a_mistake_of_usage() {
    for plan in ["--transports sctp", "--loss 100", "--quick --article", "--duration 1ms"] {
        let dir = TempDir::new();
        let mut command = Command::new(WEIR);
        add_plan(&mut command, plan, dir.path());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{plan}");
        assert!(!dir.file("report").exists());
    }
}
