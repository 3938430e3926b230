//! An experiment that never ran: its values resemble those measured on a real path, and are drawn with a
//! seed.

use lab::experiment::model::*;
use lab::{About, Machine};
use testkit::Random;

/// Path loss, TCP's rate per second and its median delay in milliseconds, approximately those of cubic over a
/// real path.
const TCP: [(f64, f64, f64); 9] = [
    (0.0, 98.5, 0.1),
    (0.02, 97.4, 0.15),
    (0.05, 96.8, 0.3),
    (0.08, 92.0, 4.0),
    (0.10, 84.0, 30.0),
    (0.12, 73.0, 160.0),
    (0.14, 39.0, 400.0),
    (0.16, 32.0, 550.0),
    (0.20, 7.1, 1_500.0),
];

/// Uniform between 0 and 1, both excluded.
fn share(random: &mut Random) -> f64 {
    (random.next() >> 11) as f64 / (1_u64 << 53) as f64 + 1e-17
}

/// Normally distributed with mean 0 and deviation 1.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| share(random)).sum::<f64>() - 6.0
}

/// Creates runs of `seconds` s each.
pub(crate) fn experiment(
    transports: &[&str],
    schedules: &[Schedule],
    runs: u32,
    seconds: f64,
) -> Experiment {
    let mut random = Random(42);
    let mut points = Vec::new();
    for schedule in schedules {
        for (place, name) in transports.iter().enumerate() {
            for shape in TCP {
                let runs = (0..runs).map(|_| run(&mut random, place, shape, seconds)).collect();
                points.push(Point {
                    transport: TransportName::new(name),
                    schedule: *schedule,
                    configured_loss: shape.0,
                    runs,
                });
            }
        }
    }
    Experiment {
        about: About {
            command: "weir lab udp-vs-tcp --quick --out \"a <folder> & more\"".to_owned(),
            version: "0.1.0".to_owned(),
            commit: "0123456789ab".to_owned(),
            began_unix_ns: 1_795_195_435_000_000_000,
            took_ns: 840_000_000_000,
            interrupted: false,
            machine: machine(),
            notes: vec!["tcp-quic-like: this kernel has none; left out.".to_owned()],
        },
        preset: "quick".to_owned(),
        settings: settings(transports, schedules, runs, seconds),
        points,
    }
}

fn run(
    random: &mut Random,
    place: usize,
    (loss, rate, delay_ms): (f64, f64, f64),
    seconds: f64,
) -> Run {
    let offered = (seconds * 100.0) as u64;
    let datagrams = place == 0;
    // Transports after the second deviate from TCP's values more and more, and each run differs from the
    // next.
    let kind = 1.0 / (1.0 + 0.6 * place.saturating_sub(1) as f64);
    let spread = (0.4 * normal(random) * (loss / 0.14).min(1.0).powi(3)).exp();
    let sent = if datagrams {
        offered * 98 / 100
    } else {
        ((rate * seconds) / spread.max(0.2)).min(seconds * 98.4) as u64
    };
    let mut delays_ns: Vec<u64> = Vec::new();
    for _ in 0..sent {
        let (tail, scale) = if datagrams {
            (0.3, 0.09)
        } else {
            (0.3 + (loss * 14.0).min(1.4), delay_ms * kind * spread)
        };
        if !(datagrams && share(random) < loss) {
            delays_ns.push((scale * 1e6 * (tail * normal(random)).exp()) as u64);
        }
    }
    delays_ns.sort_unstable();
    let stuck = if datagrams || loss < 0.12 { 0 } else { (loss * 20.0) as usize };
    let censored_ns = delays_ns.split_off(delays_ns.len().saturating_sub(stuck));
    let mut age_ns: Vec<u64> = (0..(seconds * 100.0) as u64)
        .map(|_| {
            (share(random) * 1e7 / (1.0 - loss)) as u64
                + delays_ns[(share(random) * delays_ns.len() as f64) as usize]
        })
        .collect();
    age_ns.sort_unstable();
    let packets = 20_000;
    let lost = (0..packets).filter(|_| share(random) < loss).count() as u64;
    let retransmits = (sent as f64 * loss) as u64;
    Run {
        seed: random.0,
        began_unix_ns: 1_795_195_435_000_000_000,
        duration_ns: (seconds * 1e9) as u64,
        offered,
        sent,
        delivered: delays_ns.len() as u64,
        measured_loss: Some(MeasuredLoss { packets, lost }),
        delays_ns,
        censored_ns,
        age_ns,
        tcp: (!datagrams).then(|| TcpSummary {
            congestion_control: "cubic".to_owned(),
            retransmits,
            ..TcpSummary::default()
        }),
        ..Run::default()
    }
}

fn machine() -> Machine {
    Machine {
        kernel: "Linux 6.18.5".to_owned(),
        architecture: "x86_64".to_owned(),
        processor: "Example CPU @ 2.0 GHz".to_owned(),
        processors: 2,
        memory_bytes: 8 << 30,
        congestion_control_default: "bbr".to_owned(),
        congestion_controls: ["reno", "cubic", "bbr"].map(str::to_owned).to_vec(),
        load_before: Some(0.1),
        load_after: Some(0.6),
        sysctls: [
            ("net.ipv4.tcp_rto_max_ms", "120000"),
            ("net.ipv4.tcp_retries2", "15"),
            ("net.ipv4.tcp_wmem", "4096\t16384\t4194304"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
    }
}

fn settings(transports: &[&str], schedules: &[Schedule], runs: u32, seconds: f64) -> Settings {
    Settings {
        message_bytes: 1_000,
        rate_per_sec: 100.0,
        duration_s: seconds,
        runs,
        loss_is: LossIs::PerPath,
        schedules: schedules.to_vec(),
        transports: transports.iter().map(|name| TransportName::new(name)).collect(),
        age_sample_interval_ms: 10.0,
        injector: "clsact ingress, classic BPF, both ends of each link".to_owned(),
        privilege: "root".to_owned(),
        round_trip_ms: 0.0,
        path_bits_per_sec: None,
        loss_burst_packets: None,
        mtu_bytes: 1_500,
        gso_max_segs: None,
        parallel_runs: 2,
        transport_options: Vec::new(),
    }
}
