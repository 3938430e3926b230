//! What a scrape of a running daemon says is well formed, and is what the ledger says.

use crate::support::Weir;
use ledger::{HopKind, HopSnapshot, Reason, Snapshot, Way};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::process::{Command, Stdio};
use testkit::{TempDir, find_tool, need_tool, sender, wait_for};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0";

/// A daemon at rest that has delivered, dropped at every hop, failed and retried.
fn daemon(dir: &TempDir) -> Weir {
    let config = format!(
        "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\ndeny_sources = [\"127.0.0.2\"]\n\
         [[listener.target]]\nname = \"file\"\nto = \"file:{}\"\n\
         [[listener.target]]\nname = \"nobody\"\nto = \"127.0.0.1:11\"\n\
         [[listener.target]]\nname = \"closed\"\nto = \"127.0.0.1:9\"\n\
         [[listener.target]]\nname = \"some\"\nto = \"null:\"\nsample = 3\n\
         [[listener.target]]\nname = \"full-\u{fc}\"\nto = \"file:/dev/full\"\n",
        dir.text("copy"),
    );
    std::fs::write(dir.file("weir.toml"), config).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    let client = sender(weir.address());
    let denied = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
    for n in 1..=1_000_u64 {
        client.send(&vec![b'x'; (n % 300) as usize]).unwrap();
        denied.send_to(b"denied", weir.address()).unwrap();
        if n % 100 == 0 {
            weir.wait_for_rest(2 * n);
        }
    }
    weir
}

fn check_by_promtool(text: &str) {
    let mut promtool = Command::new(find_tool("promtool").unwrap())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said =
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// The samples of a page, whose every line must be a comment or a sample.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        (series.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
    };
    let list: Vec<_> = lines.map(sample).collect();
    let count = list.len();
    let map: BTreeMap<_, _> = list.into_iter().collect();
    assert_eq!(map.len(), count, "a series stands on the page twice");
    map
}

/// Every counter of a hop under its name in the metrics.
fn expected(hop: &HopSnapshot) -> Vec<(String, u64)> {
    let origin = &hop.origin;
    let mut series = Vec::new();
    let mut add = |name: &str, extra: &str, value: u64| {
        let labels = match &hop.target {
            Some(target) => format!("origin=\"{origin}\",target=\"{target}\"{extra}"),
            None => format!("origin=\"{origin}\"{extra}"),
        };
        series.push((format!("weir_relay_{name}_total{{{labels}}}"), value));
    };
    let (through, dropped) = match hop.hop.label() {
        "socket" => (vec![("received_datagrams", hop.delivered.count)], "socket_dropped_datagrams"),
        "receive" => (vec![("accepted_datagrams", hop.delivered.count)], "dropped_datagrams"),
        "target" => (
            vec![
                ("target_offered_datagrams", hop.received.count),
                ("target_sent_datagrams", hop.delivered.count),
                ("target_sent_bytes", hop.delivered.bytes),
            ],
            "target_dropped_datagrams",
        ),
        _ => (vec![], "target_returned_datagrams"),
    };
    for (name, value) in through {
        add(name, "", value);
    }
    for drop in &hop.dropped {
        add(dropped, &format!(",reason=\"{}\"", drop.reason.label()), drop.amount.count);
    }
    series
}

#[test]
fn both_formats_are_well_formed_and_equal_the_ledger() {
    if !need_tool("promtool") {
        return;
    }
    let dir = TempDir::new();
    let weir = daemon(&dir);
    let counts = |ledger: &Snapshot| ledger.hops.iter().flat_map(expected).collect::<Vec<_>>();
    // What comes back from where nobody listens is counted when it is read, which may be after all else has ended.
    let (ledger, plain, open) = wait_for("two looks at the same counts", || {
        let ledger = weir.ledger();
        let plain = weir.page("/metrics", "text/plain");
        let open = weir.page("/metrics", OPENMETRICS);
        (counts(&weir.ledger()) == counts(&ledger)).then_some((ledger, plain, open))
    });
    check_by_promtool(&plain);
    assert!(open.ends_with("# EOF\n") && !plain.contains("# EOF"));
    let mut checked = 0;
    for (page, name) in [(&plain, "Prometheus"), (&open, "OpenMetrics")] {
        let samples = samples(page);
        for (series, value) in ledger.hops.iter().flat_map(expected) {
            let shown = samples.get(&series).copied();
            assert_eq!(shown, Some(value as f64), "{series} in {name}");
            checked += 1;
        }
        assert_eq!(samples["weir_ledger_violations_total"], 0.0);
    }
    // Five targets with three series each, socket and receive, and at least one drop of each kind, in two formats.
    assert!(checked >= 2 * (5 * 3 + 2 + 5), "{checked}");
    let lost: Vec<_> = ledger.losses().iter().map(|loss| loss.way).collect();
    for reason in [Reason::SourceDenied, Reason::Refused, Reason::Sampled, Reason::WriteError] {
        assert!(lost.contains(&Way::Dropped(reason)), "{reason:?}: {lost:?}");
    }
    assert_eq!(weir.stop().code, Some(0));
}

#[test]
fn openmetrics_families_are_typed_named_and_unbroken() {
    let dir = TempDir::new();
    let weir = daemon(&dir);
    let page = weir.page("/metrics", OPENMETRICS);
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut current = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (family, kind) = rest.split_once(' ').unwrap();
            assert!(kinds.insert(family, kind).is_none(), "{family} begins twice");
            current = family;
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let suffixes: &[&str] = match kinds[current] {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_count", "_sum"],
                "info" => &["_info"],
                _ => &[""],
            };
            let is_of_family = |suffix: &&str| name.strip_suffix(*suffix) == Some(current);
            assert!(suffixes.iter().any(is_of_family), "{line} in {current}");
        }
    }
    assert!(kinds.len() > 20, "{kinds:?}");
    assert_eq!(page.matches("# EOF").count(), 1);
    drop(weir);
}

#[test]
fn what_a_page_says_of_a_sink_adds_up_at_every_moment() {
    let dir = TempDir::new();
    let mut config = "[sockets]\ninterval = \"100ms\"\nnamespaces = \"own\"\n".to_owned();
    for (name, to) in [
        ("kept", format!("file:{}", dir.text("out.jsonl"))),
        ("full", "file:/dev/full".to_owned()),
        ("nowhere", "udp://127.0.0.1:9".to_owned()),
    ] {
        writeln!(config, "[[sink]]\nname = \"{name}\"\nfrom = [\"sockets\"]\nto = \"{to}\"")
            .unwrap();
    }
    std::fs::write(dir.file("weir.toml"), config).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));

    let sum = |samples: &BTreeMap<String, f64>, family: &str, sink: &str| -> f64 {
        let start = format!("weir_sink_{family}{{origin=\"sockets\",sink=\"{sink}\"");
        samples
            .iter()
            .filter(|(series, _)| series.starts_with(&start))
            .map(|(_, value)| value)
            .sum()
    };
    let busy = wait_for(
        || "every sink has received and been tried".to_owned(),
        || {
            let samples = samples(&weir.page("/metrics", "text/plain"));
            for sink in ["kept", "full", "nowhere"] {
                let left: f64 = [
                    "delivered_records_total",
                    "dropped_records_total",
                    "rejected_records_total",
                    "uncertain_records_total",
                    "kept_records_total",
                    "pending_records",
                ]
                .map(|family| sum(&samples, family, sink))
                .into_iter()
                .sum();
                assert_eq!(left, sum(&samples, "offered_records_total", sink), "{sink}");
            }
            let is_busy = sum(&samples, "delivered_records_total", "kept") > 0.0
                && sum(&samples, "pending_records", "full") > 0.0
                && sum(&samples, "up", "full") == 0.0
                && sum(&samples, "dropped_records_total", "nowhere") > 0.0;
            is_busy.then_some(samples)
        },
    );
    assert!(sum(&busy, "errors_total", "full") > 0.0);
    assert!(sum(&busy, "last_acknowledged_timestamp_seconds", "kept") > 1.7e9);

    let ledger = weir.ledger();
    let full = ledger.hop(HopKind::Sink, "sockets", Some("full")).unwrap();
    assert!(full.trouble.as_ref().unwrap().what.contains("/dev/full"), "{full:?}");
    drop(weir);
}
