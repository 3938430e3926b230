//! The PyPI clients `statsd` and `datadog` to two real statsd_exporters through the relay, and what Weir pushes itself.

use crate::support::{Weir, hop};
use ledger::{HopKind, Reason};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use testkit::{
    Peer, TempDir, find_tool, free_port, need_python_module, need_tool, receive, receiver, sender,
    try_get, wait_for,
};

/// A statsd_exporter of the test's own.
struct Exporter {
    _process: Peer,
    statsd: String,
    web: SocketAddr,
}

impl Exporter {
    fn start() -> Exporter {
        let statsd = format!("127.0.0.1:{}", free_port());
        let web = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = Command::new(find_tool("statsd_exporter").unwrap());
        command.arg(format!("--statsd.listen-udp={statsd}")).arg("--statsd.listen-tcp=");
        command.arg(format!("--web.listen-address={web}")).arg("--statsd.read-buffer=4194304");
        command.args(["--statsd.event-flush-interval=10ms", "--log.level=warn"]);
        let process = Peer::start(command.stdin(Stdio::null()));
        let exporter = Exporter { _process: process, statsd, web };
        wait_for(|| "statsd_exporter".to_owned(), || exporter.scrape());
        exporter
    }

    /// Every series by name and labels, as it stands in the text.
    fn scrape(&self) -> Option<BTreeMap<String, f64>> {
        let text = try_get(self.web, "/metrics", "text/plain").ok()?;
        let series = text.lines().filter(|line| !line.starts_with('#'));
        Some(series.filter_map(|line| line.rsplit_once(' ')).map(parse_sample).collect())
    }

    fn value(&self, series: &str) -> f64 {
        self.scrape().unwrap().get(series).copied().unwrap_or(0.0)
    }

    fn wait_for(&self, series: &str, value: f64) {
        let describe = || format!("{series} is {}, not {value}", self.value(series));
        wait_for(describe, || (self.value(series) >= value).then_some(()));
    }

    /// Fails if it could not read every line.
    fn check_no_bad_lines(&self) {
        let series = self.scrape().unwrap();
        let is_error = |name: &str| name.contains("sample_errors") || name.contains("tag_errors");
        let bad: Vec<_> =
            series.iter().filter(|(name, value)| is_error(name) && **value != 0.0).collect();
        assert!(bad.is_empty(), "{bad:?}");
    }

    /// The series that the clients made.
    fn clients_series(&self) -> BTreeMap<String, f64> {
        let mut series = self.scrape().unwrap();
        series.retain(|name, _| name.starts_with("shop_") || name.starts_with("dog_"));
        series
    }
}

fn parse_sample((name, value): (&str, &str)) -> (String, f64) {
    (name.to_owned(), value.parse().unwrap())
}

/// Sends a round of metrics for each line that it reads, and answers each with how many datagrams that were.
const CLIENTS: &str = r#"
import sys
import statsd
from datadog.dogstatsd import DogStatsd
port = int(sys.argv[1])
plain = statsd.StatsClient("127.0.0.1", port, prefix="shop")
dog = DogStatsd(host="127.0.0.1", port=port, disable_buffering=True, disable_telemetry=True)
for line in sys.stdin:
    n = int(line)
    for i in range(25):
        plain.incr("orders")
        plain.incr("bytes", 1000 + i)
        plain.gauge("queue", n * 100 + i)
        plain.timing("latency", i)
        dog.increment("dog.hits", tags=["region:eu", "shard:%d" % (i % 3)])
        dog.gauge("dog.depth", n + i, tags=["region:eu"])
        dog.timing("dog.wait", 20 + i, tags=["region:us"])
        dog.histogram("dog.size", i)
    with plain.pipeline() as pipe:
        for i in range(10):
            pipe.incr("piped")
    print(8 * 25 + 1, flush=True)
"#;

/// Rounds of 201 datagrams: few enough for a small receive buffer, each waited for before the next.
const ROUNDS: u64 = 20;

#[test]
fn python_clients_reach_two_exporters_with_equal_numbers() {
    if !need_tool("statsd_exporter") || !need_python_module("statsd, datadog") {
        return;
    }
    let ends = [Exporter::start(), Exporter::start()];
    let to: Vec<_> = ["old", "new"]
        .iter()
        .zip(&ends)
        .map(|(name, end)| format!("udp://{}?name={name}", end.statsd))
        .collect();
    let weir = Weir::relay(&["--listen", "127.0.0.1:0", "--to", &to[0], "--to", &to[1]]);
    let mut python = Command::new(find_tool("weir-python").unwrap());
    python.args(["-c", CLIENTS, &weir.address().port().to_string()]);
    let mut python = Peer::start(python.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut rounds = python.0.stdin.take().unwrap();
    let mut answers = BufReader::new(python.0.stdout.take().unwrap()).lines();
    let mut datagrams: u64 = 0;
    for round in 0..ROUNDS {
        writeln!(rounds, "{round}").unwrap();
        datagrams += answers.next().unwrap().unwrap().parse::<u64>().unwrap();
        for end in &ends {
            end.wait_for("statsd_exporter_udp_packets_total", datagrams as f64);
        }
    }
    drop(rounds);
    assert!(python.0.wait().unwrap().success());
    let lines = datagrams + 9 * ROUNDS;
    for end in &ends {
        // Lines are read first, then flushed as events: the last event is what to wait for.
        end.wait_for("statsd_exporter_lines_total", lines as f64);
        end.wait_for("shop_piped", (10 * ROUNDS) as f64);
        end.check_no_bad_lines();
        assert_eq!(end.value("statsd_exporter_udp_packets_total"), datagrams as f64);
        assert_eq!(end.value("statsd_exporter_udp_packet_drops_total"), 0.0);
        check_clients_series(end);
    }
    assert_eq!(ends[0].clients_series(), ends[1].clients_series());
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(hop(&ended.ledger, HopKind::Socket, "").delivered.count, datagrams);
    for name in ["old", "new"] {
        assert_eq!(hop(&ended.ledger, HopKind::Egress, name).delivered.count, datagrams);
    }
}

fn check_clients_series(end: &Exporter) {
    let rounds = ROUNDS as f64;
    let last_gauge = ((ROUNDS - 1) * 100 + 24) as f64;
    let per_shard = [9.0, 8.0, 8.0];
    let mut expected = vec![
        ("shop_orders".to_owned(), 25.0 * rounds),
        ("shop_bytes".to_owned(), (25_000.0 + 300.0) * rounds),
        ("shop_queue".to_owned(), last_gauge),
        ("shop_latency_count".to_owned(), 25.0 * rounds),
        ("shop_latency_sum".to_owned(), 0.3 * rounds),
        ("shop_piped".to_owned(), 10.0 * rounds),
        ("dog_depth{region=\"eu\"}".to_owned(), (ROUNDS - 1 + 24) as f64),
        ("dog_wait_count{region=\"us\"}".to_owned(), 25.0 * rounds),
        ("dog_wait_sum{region=\"us\"}".to_owned(), 0.8 * rounds),
        ("dog_size_count".to_owned(), 25.0 * rounds),
        ("dog_size_sum".to_owned(), 300.0 * rounds),
    ];
    for (shard, hits) in per_shard.iter().enumerate() {
        let name = format!("dog_hits{{region=\"eu\",shard=\"{shard}\"}}");
        expected.push((name, hits * rounds));
    }
    let series = end.clients_series();
    for (name, value) in expected {
        let got = series.get(&name).copied().unwrap_or(f64::NAN);
        // Sums of fractions of seconds are not exact.
        assert!((got - value).abs() < 1e-6, "{name}: {got}, not {value}: {series:#?}");
    }
}

#[test]
fn own_figures_are_taken_by_statsd_exporter_with_the_ledgers_totals() {
    if !need_tool("statsd_exporter") {
        return;
    }
    let end = Exporter::start();
    let (target, to) = receiver();
    let dir = TempDir::new();
    let text = format!(
        "[metrics.statsd]\nto = \"{}\"\nprefix = \"own\"\ninterval = \"100ms\"\n\
         [[listener]]\nname = \"in.put\"\nlisten = \"127.0.0.1:0\"\ndeny_sources = [\"127.0.0.2\"]\n\
         [[listener.target]]\nname = \"a\"\nto = \"{to}\"\n\
         [[listener.target]]\nname = \"a-tenth\"\nto = \"null:\"\nsample = 10\n",
        end.statsd
    );
    let config = dir.file("weir.toml");
    std::fs::write(&config, text).unwrap();
    let weir = Weir::run(&config);
    let denied = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
    let admitted = sender(weir.address());
    for n in 0..1_000_u32 {
        admitted.send(&n.to_be_bytes()).unwrap();
        assert_eq!(receive(&target), n.to_be_bytes());
        if n % 100 == 0 {
            denied.send_to(b"denied", weir.address()).unwrap();
        }
    }
    weir.wait_for_rest(1_010);
    // Pushed while it runs, and once more at the end: nothing twice.
    end.wait_for("own_relay_received_datagrams_in_put", 1_010.0);
    admitted.send(b"last").unwrap();
    receive(&target);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let tenth = hop(&ended.ledger, HopKind::Target, "a-tenth");
    let sampled = tenth.dropped_for(Reason::Sampled).count;
    assert_eq!(tenth.delivered.count + sampled, 1_001);
    end.wait_for("own_relay_received_datagrams_in_put", 1_011.0);
    let expected = [
        ("own_relay_received_datagrams_in_put", 1_011),
        ("own_relay_accepted_datagrams_in_put", 1_001),
        ("own_relay_dropped_datagrams_in_put_source_denied", 10),
        ("own_relay_target_offered_datagrams_in_put_a", 1_001),
        ("own_relay_target_sent_datagrams_in_put_a", 1_001),
        ("own_relay_target_sent_bytes_in_put_a", 4_004),
        ("own_relay_target_sent_datagrams_in_put_a_tenth", tenth.delivered.count),
        ("own_relay_target_dropped_datagrams_in_put_a_tenth_sampled", sampled),
        ("own_relay_target_queue_datagrams_in_put_a", 0),
        ("own_ledger_violations", 0),
    ];
    for (name, value) in expected {
        let describe = || format!("{name}: {value}, not {}: {:#?}", end.value(name), end.scrape());
        wait_for(describe, || (end.value(name) == value as f64).then_some(()));
    }
    end.check_no_bad_lines();
}
