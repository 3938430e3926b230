//! One listener to one UDP target, to two, to one and a receiver of rows, and to one and a receiver that never has room: the rate at
//! the UDP targets, and the relay's CPU time for a datagram, in turns within the same minutes. `cargo bench -p bench --bench rows`; the relay and the
//! load have a processor each. Without `--bench` it runs once, for a moment.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]
#![expect(clippy::print_stdout, reason = "a bench prints what it finds")]

use ledger::{HopKind, Ledger};
use load::Address;
use load::spin::{self, Offer, Outcome, Receiver, Sizes, Times};
use relay::{
    Datagram, Flushed, Gso, Listener, ListenerOptions, Path, RowTarget, Schedule, SocketOwner,
    SourceAddress, Taken, TargetKind, TargetOptions,
};
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::poll::EventFd;
use sys::socket::{LocalAddress, SendOptions, connect_udp, listen_udp, local_address};

/// Rounds, of which the median counts, and how long each case has in one.
const FULL: (usize, Duration) = (15, Duration::from_millis(500));
const MOMENT: (usize, Duration) = (1, Duration::from_millis(20));
const RELAY_CPU: &str = "0";
const LOAD_CPU: &str = "1";
/// The first is what no relay of one processor takes.
const RATES: [f64; 2] = [900_000.0, 20_000.0];
const CHUNK_BYTES: usize = 64 * 1024;

/// Copies as a sink does: payload, source and time one behind the other, a new chunk whenever one is full.
struct Copies {
    chunk: Vec<u8>,
    room: Room,
    ready: EventFd,
    /// CPU time of the thread that it runs on, once it ends.
    used_ns: Arc<AtomicU64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    Always,
    Never,
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.used_ns.store(sys::clock::thread_cpu_ns(), Ordering::Release);
    }
}

impl RowTarget for Copies {
    fn take(&mut self, datagram: &Datagram<'_>) -> Taken {
        if self.room == Room::Never {
            return Taken::Full;
        }
        if self.chunk.len() + datagram.bytes.len() > CHUNK_BYTES {
            self.chunk = Vec::with_capacity(CHUNK_BYTES + 64 * 1024);
        }
        self.chunk.extend_from_slice(&datagram.received_unix_ns.to_le_bytes());
        self.chunk.extend_from_slice(datagram.source.ip_bytes().unwrap_or(&[0; 16]));
        self.chunk.extend_from_slice(&datagram.source.port().to_le_bytes());
        self.chunk.extend_from_slice(&(datagram.bytes.len() as u32).to_le_bytes());
        self.chunk.extend_from_slice(datagram.bytes);
        Taken::Yes
    }

    fn flush(&mut self) -> Flushed {
        self.chunk.clear();
        Flushed::Yes
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ready.as_fd())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    OneUdp,
    /// A filter that lets all pass: sources are recorded, as they are for rows.
    OneUdpWithSources,
    TwoUdp,
    UdpAndRows,
    UdpAndFull,
}

/// What one run showed.
#[derive(Clone, Copy, Debug)]
struct Run {
    delivered_per_sec: f64,
    /// CPU time of all its threads but that of the rows.
    relay_ns: f64,
    rows_ns: f64,
    rows_share: f64,
}

fn udp_to(receiver: &Receiver) -> TargetKind {
    let Address::Udp(addr) = receiver.address() else { panic!() };
    let socket = connect_udp(*addr, &SendOptions::default()).unwrap();
    let path = Path::fixed(&sys::route::egress(addr.ip()).unwrap());
    TargetKind::Udp { socket, gso: Gso::Auto, source_address: SourceAddress::Own, path }
}

fn named(name: &str) -> TargetOptions {
    TargetOptions { name: name.into(), ..TargetOptions::default() }
}

fn start(
    case: Case,
    receivers: &[Receiver],
    used_ns: &Arc<AtomicU64>,
    ledger: &Arc<Ledger>,
) -> (Listener, SocketAddr) {
    let mut targets: Vec<_> =
        receivers.iter().zip(["a", "b"]).map(|(to, name)| (named(name), udp_to(to))).collect();
    if case == Case::OneUdpWithSources {
        targets[0].0.only_sources = vec!["0.0.0.0/0".parse().unwrap()];
    }
    let room = match case {
        Case::OneUdp | Case::OneUdpWithSources | Case::TwoUdp => None,
        Case::UdpAndRows => Some(Room::Always),
        Case::UdpAndFull => Some(Room::Never),
    };
    if let Some(room) = room {
        let (ready, used_ns) = (EventFd::new().unwrap(), Arc::clone(used_ns));
        let copies = Copies { chunk: Vec::new(), room, ready, used_ns };
        targets.push((named("rows"), TargetKind::Rows(Box::new(copies))));
    }
    let options = ListenerOptions {
        name: "in".into(),
        ring_bytes: 8 << 20,
        schedule: Schedule::Inline,
        allow_sources: vec![],
        deny_sources: vec![],
        socket_owner: SocketOwner::Relay,
        trust_header_from: Vec::new(),
        cpus: Default::default(),
        sockets_max: 1,
        link: None,
        balance: sys::socket::Balance::default(),
        order: relay::Order::default(),
        gather: None,
    };
    let socket = listen_udp("127.0.0.1:0".parse().unwrap(), &Default::default()).unwrap();
    sys::socket::set_receive_buffer(socket.as_fd(), 64 << 20).unwrap();
    let Some(LocalAddress::Inet(addr)) = local_address(socket.as_fd()) else { panic!() };
    (Listener::start(options, socket, targets, ledger).unwrap(), addr)
}

/// Threads of this process whose name begins so.
fn threads(prefix: &str) -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().file_name());
    let tasks = tasks.map(|task| task.into_string().unwrap());
    let is_it = |task: &String| {
        fs::read_to_string(format!("/proc/self/task/{task}/comm"))
            .is_ok_and(|name| name.starts_with(prefix))
    };
    tasks.filter(is_it).collect()
}

fn pin(threads: &[String], cpu: &str) {
    for thread in threads {
        let mut taskset = Command::new("taskset");
        let status = taskset.args(["-p", "-c", cpu, thread]).stdout(Stdio::null()).status();
        assert!(status.unwrap().success());
    }
}

fn run(case: Case, sizes: Sizes, rate_per_sec: f64, duration: Duration) -> Run {
    let count = if case == Case::TwoUdp { 2 } else { 1 };
    let any = Address::Udp("127.0.0.1:0".parse().unwrap());
    let mut receivers: Vec<_> = (0..count).map(|_| Receiver::open(&any, 2_048).unwrap()).collect();
    let ledger = Arc::new(Ledger::new("bench".into()));
    let used_ns = Arc::default();
    let (listener, addr) = start(case, &receivers, &used_ns, &ledger);
    pin(&[threads("rx-"), threads("tx-")].concat(), RELAY_CPU);

    let burst = ((rate_per_sec * 50e-6) as usize).clamp(1, sizes.burst());
    let offer = Offer {
        to: Address::Udp(addr),
        flows: 1,
        rate_per_sec,
        duration,
        sizes,
        burst,
        quiet: Duration::from_millis(100),
        times: Times::Ignore,
    };
    let others_ns = || sys::clock::process_cpu_ns() - sys::clock::thread_cpu_ns();
    let before_ns = others_ns();
    let run_id = sys::clock::realtime_ns() as u32;
    let stop = AtomicBool::new(false);
    let outcome: Outcome = spin::run(&offer, run_id, &mut receivers, &stop).unwrap();

    listener.begin_stop(Instant::now() + Duration::from_millis(100));
    listener.finish_stop();
    let relay_ns = others_ns() - before_ns;
    let rows_ns = used_ns.load(Ordering::Acquire);
    let last = ledger.check();
    assert!(last.is_balanced() && last.unaccounted() == 0);
    let received = last.received_at(HopKind::Receive).count as f64;
    let rows = last.hop(HopKind::Target, "in", Some("rows")).map_or(0, |hop| hop.delivered.count);
    Run {
        delivered_per_sec: outcome.delivered_per_sec,
        relay_ns: (relay_ns - rows_ns) as f64 / received,
        rows_ns: rows_ns as f64 / received,
        rows_share: rows as f64 / received,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (rounds, duration) = if is_bench { FULL } else { MOMENT };
    pin(&[std::process::id().to_string()], LOAD_CPU);

    let sizes = [Sizes::Equal(200), Sizes::Varying { min: 64, max: 336 }];
    for (sizes, rate) in sizes.into_iter().flat_map(|sizes| RATES.map(|rate| (sizes, rate))) {
        let cases = [
            Case::OneUdp,
            Case::OneUdpWithSources,
            Case::TwoUdp,
            Case::UdpAndRows,
            Case::UdpAndFull,
        ];
        let mut runs = cases.map(|_| Vec::new());
        for _ in 0..rounds {
            for (case, runs) in cases.iter().zip(&mut runs) {
                runs.push(run(*case, sizes, rate, duration));
            }
        }

        println!("{sizes:?}, {rate:.0} offered a second");
        for (case, runs) in cases.iter().zip(&runs) {
            let of = |figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
            println!(
                "  {case:?}: {:.0}/s at the slowest receiver, {:.0} ns a datagram and {:.0} ns for rows, of which {:.3} taken",
                of(|run| run.delivered_per_sec),
                of(|run| run.relay_ns),
                of(|run| run.rows_ns),
                of(|run| run.rows_share),
            );
        }
    }
}
