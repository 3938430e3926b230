//! Namespaces that come and go during collection. Alone in its process, so that its descriptors, threads and memory are the
//! collector's. `WEIR_CHURN` is the number of namespaces, by default 2,000.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "sockets/support.rs"]
mod support;

use sockets::Scope;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Keep, Rows, Run, options};
use testkit::{Netns, need_root_netns, run as run_command, say};

#[test]
fn namespaces_that_come_and_go_leave_nothing_behind() {
    const NAMES: usize = 16;
    if !need_root_netns() {
        return;
    }
    let rounds: usize =
        std::env::var("WEIR_CHURN").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000);
    let home = Netns::new();
    // Other activity on this machine does not interfere, and names are reused at once.
    let name = |number: usize| format!("weir-churn-{}-{number}", std::process::id());
    let scope = Scope::Named((0..NAMES).map(name).collect());
    let mut options = options(Duration::from_millis(100), scope);
    options.table_entries_max = 10_000;
    let keep = Keep { rows: Rows::None, ..Keep::default() };
    let run = Run::start(&home, options, keep);
    let churn = |rounds: usize| {
        let script = format!(
            "i=0; while [ $i -lt {rounds} ]; do n={}$((i % {NAMES})); i=$((i + 1)); \
             ip netns add $n && ip -n $n link set lo up; ip netns del $n; done",
            name(0).trim_end_matches('0')
        );
        run_command(Command::new("sh").args(["-c", &script]));
    };
    churn(rounds / 10);
    let before = Usage::at_rest();
    let began = Instant::now();
    churn(rounds);
    let took = began.elapsed();
    run.poll();
    let after = Usage::at_rest();
    let polls = run.keep.told.lock().unwrap().polls;
    say(&format!(
        "{rounds} namespaces in {took:?}, {polls} polls: before {before:?}, after {after:?}"
    ));
    assert!(
        after.descriptors <= before.descriptors && after.threads <= before.threads,
        "{after:?}"
    );
    assert!(after.memory_kib <= before.memory_kib + 1_024, "{before:?} {after:?}");
    run.stop();
}

/// The resources that this process uses.
#[derive(Debug)]
struct Usage {
    descriptors: usize,
    threads: usize,
    memory_kib: u64,
}

impl Usage {
    /// Between two visits of a namespace: during one, a descriptor or two are open.
    fn at_rest() -> Usage {
        let samples = (0..200).map(|_| Usage::now());
        samples.min_by_key(|usage| usage.descriptors).unwrap()
    }

    fn now() -> Usage {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        Usage {
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            threads: std::fs::read_dir("/proc/self/task").unwrap().count(),
            memory_kib: anonymous.trim().trim_end_matches(" kB").parse().unwrap(),
        }
    }
}
