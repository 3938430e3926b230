//! The content of `/metrics`: every family, every reason, both formats, and documentation that equals the table.

use crate::support::{busy_hops, idle_hops, state};
use admin::metrics::{FAMILIES, Family, Kind};
use admin::{AdminState, router};
use axum::body::{Body, to_bytes};
use axum::http::Request;
use ledger::{Amount, DelayHistogram, Event, Gauge, HopBuilder, HopKind, Reason, RejectClass};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use testkit::generated_part;
use tower::ServiceExt;

fn render(state: &Arc<AdminState>, accept: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let request = Request::get("/metrics").header("host", "localhost").header("accept", accept);
        let request = request.body(Body::empty()).unwrap();
        let response = router(Arc::clone(state)).oneshot(request).await.unwrap();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    })
}

fn prometheus() -> String {
    render(&Arc::new(busy()), "text/plain")
}

fn open_metrics() -> String {
    render(&Arc::new(busy()), "application/openmetrics-text")
}

/// A busy relay on a host whose counters can all be read.
fn busy() -> AdminState {
    let mut state = state(busy_hops(), "127.0.0.1");
    let root = testkit::root().join("crates/admin/tests/host");
    state.host = admin::host::Reader::at(&root.join("proc"), &root.join("sys"));
    state.flows = Some(crate::flows::shown(crate::flows::figures(Vec::new())));
    state
}

/// A family in the text.
#[derive(Default)]
struct Shown {
    kind: String,
    help: String,
    /// Each series: its name with suffix, its labels, its value.
    series: Vec<(String, BTreeMap<String, String>, String)>,
}

/// Parses an exposition; the fixture's label values need no escapes.
fn parse(text: &str) -> BTreeMap<String, Shown> {
    let mut shown: BTreeMap<String, Shown> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!shown.contains_key(name), "{name} is there twice");
            name.clone_into(&mut current);
            shown.entry(current.clone()).or_default().help = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current);
            shown.get_mut(name).unwrap().kind = kind.to_owned();
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            assert!(name.starts_with(&current), "{line} below {current}");
            let labels = labels.strip_suffix('}').unwrap();
            let label = |pair: &str| {
                let (name, value) = pair.split_once('=').unwrap();
                (name.to_owned(), value.trim_matches('"').to_owned())
            };
            let labels = labels.split(',').filter(|pair| !pair.is_empty()).map(label).collect();
            let series = (name.to_owned(), labels, value.to_owned());
            shown.get_mut(&current).unwrap().series.push(series);
        }
    }
    shown
}

fn check_family(family: &Family, name: &str, shown: &Shown) {
    assert_eq!(shown.kind, family.kind.label(), "{name}");
    assert_eq!(shown.help, family.help, "{name}");
    assert!(!shown.series.is_empty(), "{name}");
    let mut expected: BTreeSet<&str> = family.labels.iter().copied().collect();
    let mut seen = BTreeSet::new();
    for (series, labels, value) in &shown.series {
        if family.kind == Kind::Histogram && series.ends_with("_bucket") {
            expected.insert("le");
        } else {
            expected.remove("le");
        }
        assert_eq!(
            labels.keys().map(String::as_str).collect::<BTreeSet<_>>(),
            expected,
            "{series}"
        );
        assert!(seen.insert((series, labels)), "{series} {labels:?} is there twice");
        assert!(value.parse::<f64>().is_ok(), "{series} {value}");
    }
}

#[test]
fn every_family_is_shown_as_the_table_says() {
    let mut shown = parse(&prometheus());
    for family in FAMILIES {
        let family_shown = shown.remove(family.name);
        check_family(
            family,
            family.name,
            &family_shown.unwrap_or_else(|| panic!("{}", family.name)),
        );
    }
    assert!(shown.is_empty(), "not in the table: {:?}", shown.keys());
}

#[test]
fn open_metrics_names_counters_without_total() {
    let text = open_metrics();
    assert!(text.ends_with("\n# EOF\n"));
    let mut shown = parse(&text);
    for family in FAMILIES {
        let name = family.name.strip_suffix("_total").unwrap_or(family.name);
        let family_shown = shown.remove(name).unwrap_or_else(|| panic!("{name}"));
        check_family(family, name, &family_shown);
        if family.kind == Kind::Counter {
            assert!(family_shown.series.iter().all(|(series, ..)| series == family.name), "{name}");
        }
    }
    assert!(shown.is_empty(), "not in the table: {:?}", shown.keys());
}

#[test]
fn every_reason_is_shown_at_every_hop_where_it_can_occur() {
    let text = prometheus();
    let mut missing: BTreeSet<Reason> = Reason::ALL.iter().copied().collect();
    for hop in HopKind::ALL {
        for reason in Reason::at(hop) {
            missing.remove(&reason);
            let reason = reason.label();
            let series = match hop {
                HopKind::Socket => format!(
                    "weir_relay_socket_dropped_datagrams_total{{origin=\"syslog\",reason=\"{reason}\"}} 1\n"
                ),
                HopKind::Receive => format!(
                    "weir_relay_dropped_datagrams_total{{origin=\"syslog\",reason=\"{reason}\"}} 1\n"
                ),
                HopKind::Member => format!(
                    "weir_relay_member_dropped_datagrams_total{{origin=\"syslog\",socket=\"0\",reason=\"{reason}\"}} 1\n"
                ),
                HopKind::Target => format!(
                    "weir_relay_target_dropped_datagrams_total{{origin=\"syslog\",target=\"old\",reason=\"{reason}\"}} 1\n"
                ),
                HopKind::Egress => format!(
                    "weir_relay_target_returned_datagrams_total{{origin=\"syslog\",target=\"old\",reason=\"{reason}\"}} 1\n"
                ),
                HopKind::Receiver => "weir_relay_target_receiver_dropped_datagrams_total{origin=\"syslog\",target=\"old\"} 1\n"
                    .to_owned(),
                HopKind::Poll => {
                    format!("weir_sockets_dropped_records_total{{reason=\"{reason}\"}} 1\n")
                }
                HopKind::Close => {
                    format!("weir_sockets_dropped_close_records_total{{reason=\"{reason}\"}} 1\n")
                }
                HopKind::Analysis => {
                    format!("weir_flows_dropped_datagrams_total{{reason=\"{reason}\"}} 1\n")
                }
                HopKind::Sink => format!(
                    "weir_sink_dropped_records_total{{origin=\"sockets\",sink=\"kept\",reason=\"{reason}\"}} 1\n"
                ),
            };
            assert!(text.contains(&series), "{series}");
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn values() {
    let text = prometheus();
    let target = "origin=\"syslog\",target=\"old\"";
    let sink = "origin=\"sockets\",sink=\"kept\"";
    for line in [
        "weir_relay_socket_dropped_datagrams_total{origin=\"syslog\",reason=\"socket_buffer\"} 1"
            .to_owned(),
        "weir_relay_receive_buffer_bytes{origin=\"syslog\"} 425984".to_owned(),
        "weir_relay_received_bytes_total{origin=\"syslog\"} 200000".to_owned(),
        "weir_relay_accepted_datagrams_total{origin=\"syslog\"} 994".to_owned(),
        "weir_relay_receive_errors_total{origin=\"syslog\"} 2".to_owned(),
        format!("weir_relay_target_offered_datagrams_total{{{target}}} 1000"),
        format!("weir_relay_target_sent_datagrams_total{{{target}}} 982"),
        format!("weir_relay_target_queue_oldest_age_seconds{{{target}}} 1.5"),
        format!("weir_relay_target_ring_held_ratio{{{target}}} 0.25"),
        format!("weir_relay_target_send_errors_total{{{target},errno=\"ENOBUFS\"}} 4"),
        format!("weir_relay_target_send_errors_total{{{target},errno=\"other\"}} 1"),
        format!("weir_relay_target_icmp_errors_total{{{target},code=\"3/3\"}} 5"),
        format!("weir_relay_target_icmp_errors_total{{{target},code=\"other\"}} 6"),
        format!("weir_relay_target_delay_seconds_bucket{{{target},le=\"5e-05\"}} 900"),
        format!("weir_relay_target_delay_seconds_bucket{{{target},le=\"5\"}} 900"),
        format!("weir_relay_target_delay_seconds_bucket{{{target},le=\"+Inf\"}} 985"),
        format!("weir_relay_target_delay_seconds_count{{{target}}} 985"),
        "weir_component_state{component=\"target/syslog/old\",state=\"degraded\"} 1".to_owned(),
        "weir_config_info{hash=\"c0ffee\",generation=\"1\"} 1".to_owned(),
        "weir_host_udp_errors_total{family=\"ipv4\",cause=\"RcvbufErrors\"} 13".to_owned(),
        "weir_host_udp_errors_total{family=\"ipv6\",cause=\"MemErrors\"} 26".to_owned(),
        "weir_host_softnet_dropped_total 12".to_owned(),
        "weir_host_interface_receive_missed_total{device=\"eth0\"} 7".to_owned(),
        "weir_sockets_polls_total 12".to_owned(),
        "weir_sockets_phase_seconds_total{phase=\"walk\"} 0.25".to_owned(),
        "weir_sockets_phase_seconds_total{phase=\"open\"} 0".to_owned(),
        "weir_sockets_open{state=\"time_wait\",family=\"ipv6\"} 17".to_owned(),
        "weir_sockets_namespace_errors_total{cause=\"permission\"} 3".to_owned(),
        "weir_sockets_closed_total{how=\"peer_reset\"} 4".to_owned(),
        "weir_sockets_closed_total{how=\"refused\"} 0".to_owned(),
        format!("weir_sink_queue_bytes{{{sink}}} 512"),
        format!("weir_sink_pending_records{{{sink}}} 928"),
        format!("weir_sink_rejected_records_total{{{sink},class=\"too_large\"}} 1"),
        format!("weir_sink_rejected_records_total{{{sink},class=\"other\"}} 6"),
        format!("weir_sink_uncertain_records_total{{{sink}}} 40"),
        format!("weir_sink_kept_records_total{{{sink}}} 11"),
        format!("weir_sink_unclosed_spools_total{{{sink}}} 2"),
        format!("weir_sink_spool_cut_bytes_total{{{sink}}} 77"),
        format!("weir_sink_possible_duplicate_records_total{{{sink}}} 8"),
        format!("weir_sink_oldest_record_age_seconds{{{sink}}} 2.5"),
        format!("weir_sink_last_acknowledged_timestamp_seconds{{{sink}}} 1700000000.25"),
        "process_cpu_seconds_total 1.75".to_owned(),
        "process_start_time_seconds 1700000042".to_owned(),
        "process_max_fds 1024".to_owned(),
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
}

#[test]
fn what_loses_datagrams_is_degraded_and_nothing_else() {
    let mut hops = idle_hops();
    for hop in hops.iter_mut().filter(|hop| matches!(hop.hop, HopKind::Target | HopKind::Sink)) {
        hop.gauges.insert(Gauge::Up, 1);
    }
    let state = state(hops, "127.0.0.1");
    let component = |name: &str, word: &str| {
        format!("weir_component_state{{component=\"{name}\",state=\"{word}\"}} 1\n")
    };
    let all = ["daemon", "listener/syslog", "target/syslog/old", "sink/sockets/kept"];
    let state = Arc::new(state);
    let text = render(&state, "");
    assert!(all.iter().all(|name| text.contains(&component(name, "ok"))), "{text}");
    for losing in &all[1..] {
        state.health.set_losing([(*losing).to_owned()].into());
        let text = render(&state, "");
        for name in all {
            let word = if name == *losing { "degraded" } else { "ok" };
            assert!(text.contains(&component(name, word)), "{name} {word}: {text}");
        }
    }
}

#[test]
fn an_idle_listener_has_every_reason_at_0_and_an_idle_target_only_the_sum() {
    let idle = render(&Arc::new(state(idle_hops(), "127.0.0.1")), "");
    for reason in Reason::at(HopKind::Receive) {
        let series = format!("origin=\"syslog\",reason=\"{}\"}} 0\n", reason.label());
        assert!(idle.contains(&series), "{series}");
    }
    let sum = "weir_relay_target_unsent_datagrams_total{origin=\"syslog\",target=\"old\"} 0\n";
    assert!(idle.contains(sum), "{idle}");
    let is_of_target = |line: &&str| line.contains("target=\"old\"");
    assert!(!idle.lines().filter(is_of_target).any(|line| line.contains("reason=")), "{idle}");
    let all: u64 = Reason::at(HopKind::Target).count() as u64;
    let sum = sum.replace(" 0\n", &format!(" {all}\n"));
    assert!(prometheus().contains(&sum), "{sum}");
}

#[test]
fn a_target_that_loses_nothing_takes_less_than_two_kilobytes() {
    let page = |targets: usize| {
        let delay = DelayHistogram::default();
        [40, 90, 200, 450, 900].into_iter().for_each(|us| delay.add(us, 1_000));
        let target = |at| {
            let name = format!("collector-{at:04}");
            let amount = Amount { count: 123_456_789, bytes: 24_691_357_800 };
            let target = HopBuilder::new(HopKind::Target, "syslog", Some(&name), amount)
                .delivered(amount)
                .capacity(90_000)
                .event(Event::SendCalls, 2_345_678)
                .gauge(Gauge::OldestAgeMs, 0)
                .gauge(Gauge::Gso, 1)
                .gauge(Gauge::Up, 1)
                .delay(&delay)
                .finish(amount);
            let egress = HopBuilder::new(HopKind::Egress, "syslog", Some(&name), amount);
            [target, egress.delivered(amount).finish(amount)]
        };
        let hops = (0..targets).flat_map(target).collect();
        render(&Arc::new(state(hops, "127.0.0.1")), "").len()
    };
    let each = (page(1_010) - page(10)) / 1_000;
    assert!(each <= 2_000, "{each} bytes");
}

#[test]
fn a_hostile_name_cannot_add_a_line() {
    let mut hops = idle_hops();
    for hop in &mut hops {
        hop.origin = "a\"} 1\nb\\".to_owned();
    }
    let text = render(&Arc::new(state(hops, "127.0.0.1")), "");
    assert!(
        text.contains(r#"weir_relay_received_datagrams_total{origin="a\"} 1\nb\\"} 0"#),
        "{text}"
    );
    assert!(!text.lines().any(|line| line.starts_with('b')));
}

#[test]
fn host_figures_that_cannot_be_read_are_absent() {
    let mut blind = state(busy_hops(), "127.0.0.1");
    let nowhere = Path::new("/nonexistent");
    blind.host = admin::host::Reader::at(nowhere, nowhere);
    let text = render(&Arc::new(blind), "");
    assert!(!text.contains("weir_host_"), "{text}");
    assert!(!text.contains("\nprocess_"), "{text}");
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let Some(promtool) = find_promtool() else {
        assert_ne!(std::env::var("REQUIRE_ALL").as_deref(), Ok("1"), "promtool is not installed");
        // Written directly to the descriptor: the test harness captures `eprintln!` in passing tests.
        writeln!(std::io::stderr(), "skipped: promtool is not installed; `make tools` installs it")
            .unwrap();
        return;
    };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(prometheus().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn find_promtool() -> Option<PathBuf> {
    let named = std::env::var_os("WEIR_TOOLS").map(PathBuf::from);
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().map(|target| target.join("tools"));
    let tools = named.into_iter().chain(own).map(|dir| dir.join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    tools.chain(std::env::split_paths(&path)).map(|dir| dir.join("promtool")).find(|p| p.is_file())
}

/// The part of docs/metrics.md that is generated from the table.
fn documented() -> String {
    let mut text = String::new();
    let mut put = |args: std::fmt::Arguments<'_>| text.write_fmt(args).unwrap();
    put(format_args!("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n"));
    for Family { name, kind, labels, help, .. } in FAMILIES {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        let (kind, labels) = (kind.label(), labels.join(", "));
        put(format_args!("| `{name}` | {kind} | {labels} | {help} |\n"));
    }
    put(format_args!(
        "\n## What hops count and measure outside the law\n\nIn `GET /ledger` and `weir ledger --json`, as `events` and `gauges` of a hop; \
         events that never happened are absent. `*` is a label.\n\n| Name | Unit | Meaning |\n|---|---|---|\n"
    ));
    let events = Event::ROWS.iter().map(|row| (row.row_name(), row.unit(), row.meaning()));
    let gauges = Gauge::ROWS.iter().map(|row| (row.row_name(), row.unit(), row.meaning()));
    for (name, unit, meaning) in events.chain(gauges) {
        put(format_args!("| `{name}` | {} | {meaning} |\n", unit.label()));
    }
    put(format_args!(
        "\n## Reasons\n\n| `reason` | Where | Lost because | What helps |\n|---|---|---|---|\n"
    ));
    for reason in Reason::ALL {
        let hops: Vec<_> = reason.places().iter().map(|hop| hop.label()).collect();
        let (label, cause, advice) = (reason.label(), reason.cause(), reason.advice());
        put(format_args!("| `{label}` | {} | {cause} | {advice} |\n", hops.join(", ")));
    }
    put(format_args!(
        "\n## Rejections\n\nWhy a store refused rows permanently.\n\n\
         | `class` | Refused because | What helps |\n|---|---|---|\n"
    ));
    for class in RejectClass::ALL {
        let (label, cause, advice) = (class.label(), class.cause(), class.advice());
        put(format_args!("| `{label}` | {cause} | {advice} |\n"));
    }
    text
}

#[test]
fn the_generated_documentation_is_the_table() {
    const MARKS: [&str; 2] = ["<!-- table: begin -->\n", "<!-- table: end -->"];
    generated_part("docs/metrics.md", MARKS, &documented());
}

#[test]
fn the_documentation_gives_the_server_s_limits() {
    let path = testkit::root().join("docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap();
    for limit in [
        format!("{} connections", admin::CONNECTIONS_MAX),
        format!("{} s", admin::HEAD_TIMEOUT.as_secs()),
        format!("{} s", admin::CONNECTION_LIFETIME_MAX.as_secs()),
        format!("{} KiB", admin::HEAD_BYTES_MAX / 1024),
        format!("{} header lines", admin::HEADERS_MAX),
        format!("{} bytes", admin::statsd::DATAGRAM_BYTES_MAX),
        format!("{} interfaces", admin::host::Reader::INTERFACES_MAX),
    ] {
        assert!(text.contains(&limit), "{limit}");
    }
}
