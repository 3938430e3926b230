//! Namespaces that come and go during collection. Alone in its process, so that its descriptors, threads and memory are the
//! collector's. `WEIR_CHURN` is the number of namespaces, 2,000 without it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use sockets::Scope;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Keep, Netns, Rows, Run, need_root_netns, options, run as run_command, tell};

#[test]
fn namespaces_that_come_and_go_leave_nothing_behind() {
    if !need_root_netns() {
        return;
    }
    let rounds: usize =
        std::env::var("WEIR_CHURN").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000);
    let home = Netns::new();
    let mut options = options(Duration::from_millis(100), Scope::All);
    options.table_entries_max = 10_000;
    let keep = Keep { rows: Rows::None, ..Keep::default() };
    let run = Run::start(&home, options, keep);
    let churn = |rounds: usize| {
        let script = format!(
            "i=0; while [ $i -lt {rounds} ]; do ip netns add wc{0}-$i && ip -n wc{0}-$i link set lo up; ip netns del wc{0}-$i; i=$((i+1)); done",
            std::process::id()
        );
        run_command(Command::new("sh").args(["-c", &script]));
    };
    churn(rounds / 10);
    let before = Usage::now();
    let began = Instant::now();
    churn(rounds);
    let took = began.elapsed();
    run.poll();
    let after = Usage::now();
    let polls = run.keep.told.lock().unwrap().polls;
    tell(&format!(
        "{rounds} namespaces in {took:?}, {polls} polls: before {before:?}, after {after:?}"
    ));
    assert!(after.descriptors <= before.descriptors && after.threads <= before.threads);
    assert!(after.rss_kib <= before.rss_kib + 1_024, "{before:?} {after:?}");
    run.stop();
}

/// What this process uses.
#[derive(Debug)]
struct Usage {
    descriptors: usize,
    threads: usize,
    rss_kib: u64,
}

impl Usage {
    fn now() -> Usage {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        Usage {
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            threads: std::fs::read_dir("/proc/self/task").unwrap().count(),
            rss_kib: rss.trim().trim_end_matches(" kB").parse().unwrap(),
        }
    }
}
