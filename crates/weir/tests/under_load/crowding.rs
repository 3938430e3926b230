//! `sockets = "auto"`: a socket more where reading is the bottleneck and a processor is idle, and none where nothing is.

use crate::support::Weir;
use ledger::{HopKind, Reason, Snapshot};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{TempDir, need_root, skip, wait_for, wait_for_up_to};

/// Where the first version of control groups is, which can hold back a single thread of a process.
const CPU_GROUPS: &str = "/sys/fs/cgroup/cpu";
/// What a thread that reads gets of each period: a 25th of a processor.
const QUOTA_US: &str = "2000";
const PERIOD_US: &str = "50000";

/// For how long other programs may keep the machine busy: a socket is added only where a processor is idle.
const BUSY_MAX: Duration = Duration::from_secs(300);

/// How much a sender sends.
struct Rate {
    /// Datagrams per second at first: fewer than one thread that is held back can read.
    first: f64,
    /// Whether it grows, by a seventh each second. Where it does so until datagrams are dropped, it is somewhat more than that thread can read.
    grows: AtomicBool,
    is_over: AtomicBool,
}

impl Rate {
    fn from(first: f64) -> Rate {
        Rate { first, grows: AtomicBool::new(true), is_over: AtomicBool::new(false) }
    }
}

/// For how long nothing has been dropped.
struct Quiet {
    dropped: u64,
    since: Instant,
}

impl Quiet {
    fn from_now(weir: &Weir) -> Quiet {
        Quiet { dropped: dropped(&weir.ledger()), since: Instant::now() }
    }

    fn is_a_second(&mut self, weir: &Weir) -> bool {
        let dropped = dropped(&weir.ledger());
        if dropped > self.dropped {
            *self = Quiet { dropped, since: Instant::now() };
        }
        self.since.elapsed() > Duration::from_secs(1)
    }
}

fn need_thread_quotas() -> bool {
    let has_them = fs::exists(format!("{CPU_GROUPS}/cpu.cfs_quota_us")).unwrap_or(false);
    need_root("a quota for a thread")
        && (has_them || skip("no control groups of version 1 with cpu.cfs_quota_us here", &[]))
}

/// Holds back each thread of a process that receives, as slower processors would: each has a quota of its own.
struct Quotas {
    pid: u32,
    groups: Vec<(String, PathBuf)>,
}

impl Quotas {
    /// Holds back the first. A thread has its name from the moment on at which it first runs, which may be later than the relay's
    /// first log line on a busy machine.
    fn hold_back_the_first(&mut self) {
        wait_for("a thread that reads", || {
            self.hold_back();
            (!self.groups.is_empty()).then_some(())
        });
    }

    /// Holds back those that have begun since the last call. The one that merges stays as it is: it does less.
    fn hold_back(&mut self) {
        for task in fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap() {
            let task = task.unwrap();
            let id = task.file_name().into_string().unwrap();
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if !name.starts_with("rx-") || self.groups.iter().any(|(held, _)| *held == id) {
                continue;
            }
            let group = PathBuf::from(format!("{CPU_GROUPS}/weir-test-{id}"));
            fs::create_dir(&group).unwrap();
            fs::write(group.join("cpu.cfs_period_us"), PERIOD_US).unwrap();
            fs::write(group.join("cpu.cfs_quota_us"), QUOTA_US).unwrap();
            // It may have ended meanwhile.
            let _ = fs::write(group.join("tasks"), &id);
            self.groups.push((id, group));
        }
    }
}

impl Drop for Quotas {
    fn drop(&mut self) {
        for (id, group) in &self.groups {
            let _ = fs::write(format!("{CPU_GROUPS}/tasks"), id);
            let _ = fs::remove_dir(group);
        }
    }
}

/// Ends a load when it is dropped, as it is when a test fails: the threads that make it are waited for.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One of the tests wants an idle processor, the other none.
static TURN: Mutex<()> = Mutex::new(());

/// A relay with `sockets = "auto"`, under a flood until `f` returns.
fn under_flood(f: impl FnOnce(&Weir, &mut Quotas, &Rate)) {
    let folder = TempDir::new();
    let path = folder.file("weir.toml");
    let text = "[admin]\nlisten = '127.0.0.1:0'\n\
                [[listener]]\nname = 'in'\nlisten = '127.0.0.1:0'\nsockets = 'auto'\nschedule = 'inline'\n\
                receive_buffer = '8MiB'\n\
                [[listener.target]]\nname = 'out'\nto = 'null:'\n";
    fs::write(&path, text).unwrap();
    let weir = Weir::run(&path);
    let mut quotas = Quotas { pid: weir.pid(), groups: Vec::new() };
    let rate = Rate::from(20_000.0);

    thread::scope(|scope| {
        let (to, rate) = (weir.address(), &rate);
        let _ends = Ends(&rate.is_over);
        scope.spawn(move || send(to, rate));
        f(&weir, &mut quotas, rate);
    });
    drop(quotas);
    let ended = weir.stop();
    assert_eq!(ended.ledger.unaccounted(), 0);
}

fn send(to: SocketAddr, rate: &Rate) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    let mut per_sec = rate.first;
    let mut before = Instant::now();
    let mut due = 0.0;

    while !rate.is_over.load(Ordering::Relaxed) {
        let elapsed_s = before.elapsed().as_secs_f64();
        before = Instant::now();
        // What a busy machine keeps from being sent in time is not made up for at once.
        due = (due + elapsed_s * per_sec).min(per_sec / 10.0);
        if rate.grows.load(Ordering::Relaxed) {
            per_sec *= 1.15_f64.powf(elapsed_s);
        }

        while due >= 1.0 {
            socket.send(&[0; 200]).unwrap();
            due -= 1.0;
        }
        thread::park_timeout(Duration::from_millis(1));
    }
}

fn dropped(snapshot: &Snapshot) -> u64 {
    let hop = snapshot.hop(HopKind::Socket, "in", None).unwrap();
    hop.dropped_for(Reason::SocketBuffer).count
}

#[test]
fn a_socket_is_added_where_reading_is_the_bottleneck_and_then_nothing_is_dropped() {
    if !need_thread_quotas() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    under_flood(|weir, quotas, rate| {
        quotas.hold_back_the_first();
        let mut quiet = Quiet::from_now(weir);
        let line = wait_for_up_to(BUSY_MAX, "a second socket", || {
            rate.grows.store(quiet.is_a_second(weir), Ordering::Relaxed);
            weir.line("2 sockets now")
        });
        rate.grows.store(false, Ordering::Relaxed);
        assert!(
            line.contains(
                "listener in: 2 sockets now, because reading was the bottleneck: the kernel"
            ),
            "{line}"
        );
        assert!(line.contains("% for a processor"), "{line}");

        // Two can take it, held back as the one was.
        let mut quiet = Quiet::from_now(weir);
        wait_for_up_to(BUSY_MAX, "a second without a drop", || {
            quotas.hold_back();
            quiet.is_a_second(weir).then_some(())
        });
    });
}

#[test]
fn none_is_added_where_no_processor_is_idle_and_the_log_says_why() {
    if !need_thread_quotas() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&is_over);
        // Two each, so that programs of a lower priority, which count as idle, get little.
        for _ in 0..2 * sys::process::cpu_count() {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        under_flood(|weir, quotas, _| {
            quotas.hold_back_the_first();
            let line = weir.wait_for_line("no socket is added");
            testkit::say(&line);
            assert!(line.contains("its thread would find no idle processor"), "{line}");
            assert!(weir.ledger().hops.iter().all(|hop| hop.hop != HopKind::Member));
        });
    });
}
