//! What `deploy/grafana` and `deploy/prometheus` ask, asked of a Prometheus that scrapes daemons under load.

mod collector;
mod dashboard;
#[cfg(feature = "store")]
mod fleet;
mod flows;
mod relay;
mod sinks;
mod unplotted;

use crate::link::key;
use crate::prometheus::Prometheus;
use crate::support::{Generator, Place, WEIR, Weir};
use dashboard::Dashboard;
use load::sflow::{Agent, AgentOptions, TrueFlow};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;
use testkit::{
    LossyWay, Process, TempDir, free_port, generated, need_root, need_tool, receiver, root,
    wait_for, wait_for_up_to,
};
use unplotted::UNPLOTTED;

/// The dashboard of a fleet, which asks ClickHouse.
const FLEET: &str = "fleet";

static DASHBOARDS: [Dashboard; 4] =
    [relay::RELAY, collector::COLLECTOR, sinks::SINKS, flows::FLOWS];

/// Expressions without a result under this load: a part that only they have, and why.
const EMPTY: &[(&str, &str)] = &[
    ("weir_relay_target_link_lost_in_crash_total", "no link had a crash before"),
    ("weir_sockets_namespace_errors_total", "every namespace was visited"),
    ("max_over_time(weir_build_info", "both daemons answer"),
    ("increase(weir_ledger_violations_total[15m])", "the ledger balances"),
    ("weir_config_last_reload_successful == 0", "nothing was reloaded"),
    ("weir_listener_heartbeat_age_seconds > 10", "every listener moves"),
    ("increase(weir_relay_socket_dropped_datagrams_total[15m])", "the load is light"),
    ("increase(weir_relay_dropped_datagrams_total{reason", "all that is read is offered"),
    ("> 0.6", "the load is light"),
    (
        "increase(weir_relay_target_uncertain_datagrams_total[15m])",
        "the other Weir keeps its memory",
    ),
    (
        "increase(weir_sockets_dropped_close_records_total{reason",
        "the buffer of close events is large",
    ),
    ("0.01 * increase(weir_sockets_closes_total", "every close is heard"),
    ("0.1 * increase(weir_sockets_polls_total", "polls of one namespace are short"),
    ("increase(weir_sockets_polls_total[15m]) == 0", "polls go on"),
    ("increase(weir_sockets_dropped_records_total{reason", "the kernel's messages are whole"),
    ("weir_sockets_left_out_namespaces > 0", "there is one namespace"),
    ("increase(weir_sockets_table_evicted_total[15m])", "there are few sockets"),
    ("increase(weir_flows_collector_dropped_datagrams_total[15m])", "the load is light"),
    (
        "increase(weir_flows_agent_dropped_samples_total[15m])",
        "the agents say that they lose nothing",
    ),
    ("max_over_time(weir_flow_agents[1h])", "no agent falls silent"),
    (
        "increase(weir_flows_dropped_datagrams_total{reason",
        "all that comes while Prometheus looks is sFlow",
    ),
    ("increase(weir_flows_missed_events_total[15m])", "there is no threshold"),
    ("increase(weir_sink_rejected_records_total[15m])", "the sinks' destinations refuse nothing"),
    (
        "increase(weir_sink_uncertain_records_total{sink!~\"follower [0-9]\"}[15m])",
        "the sinks' destinations answer",
    ),
    ("weir_sink_oldest_record_age_seconds > 300", "no sink is old enough"),
    ("predict_linear(weir_sink_spool_bytes", "no spool is a tenth full"),
];

#[test]
fn the_generated_dashboards_are_those_of_the_tables() {
    for dashboard in &DASHBOARDS {
        generated(&format!("deploy/grafana/{}.json", dashboard.file), &dashboard.json());
    }
}

#[cfg(feature = "store")]
#[test]
fn the_generated_dashboard_of_a_fleet_is_that_of_the_named_questions() {
    generated(&format!("deploy/grafana/{FLEET}.json"), &fleet::json());
}

/// A file of the repository.
fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// A dashboard as it is committed.
fn committed(file: &str) -> Value {
    serde_json::from_str(&text(&format!("deploy/grafana/{file}.json"))).unwrap()
}

/// Every panel of a dashboard as it is committed.
fn panels(file: &str) -> Vec<Value> {
    let json = committed(file);
    let panels = json["panels"].as_array().unwrap().iter();
    panels.filter(|panel| panel["type"] != "row").cloned().collect()
}

/// Every expression of the dashboards, with Grafana's variables.
fn expressions() -> Vec<String> {
    let panels = DASHBOARDS.iter().flat_map(|dashboard| panels(dashboard.file));
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap().clone());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// The words of a text that are names of metrics of ours.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'));
    let ours = words.filter(|word| word.starts_with("weir_") || word.starts_with("process_"));
    ours.map(|word| word.strip_suffix("_bucket").unwrap_or(word)).collect()
}

#[test]
fn dashboards_and_rules_name_metrics_that_there_are() {
    let documented = text("docs/metrics.md");
    let asked = expressions().join("\n") + &text("deploy/prometheus/weir.rules.yaml");
    let names = metrics(&asked);
    assert!(names.len() > 80, "{names:?}");
    let unknown = names.iter().find(|name| !documented.contains(&format!("| `{name}` |")));
    assert_eq!(unknown, None);
}

#[test]
fn each_metric_is_in_a_panel_or_has_a_reason_not_to_be() {
    let documented = text("docs/metrics.md");
    let names = documented.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let names: BTreeSet<&str> = names.filter(|name| !metrics(name).is_empty()).collect();
    let asked = expressions().join("\n");
    let unplotted: BTreeSet<&str> = names.difference(&metrics(&asked)).copied().collect();
    let exempt: BTreeSet<&str> = UNPLOTTED.iter().map(|(name, _)| *name).collect();
    assert!(names.len() > 150, "{names:?}");
    assert_eq!(unplotted, exempt);
}

#[test]
fn every_panel_has_a_question_a_unit_and_a_place_of_its_own() {
    for file in DASHBOARDS.iter().map(|dashboard| dashboard.file).chain([FLEET]) {
        let mut cells = BTreeSet::new();
        let source = committed(file)["templating"]["list"][0].clone();
        assert_eq!(source["type"], "datasource", "{file}");
        for panel in panels(file) {
            let title = panel["title"].as_str().unwrap();
            assert!(!title.is_empty(), "{file}: {panel}");
            let description = panel["description"].as_str().unwrap();
            assert!(description.ends_with('.'), "{title}: {description}");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}");
            let uid = format!("${{{}}}", source["name"].as_str().unwrap());
            for asks in panel["targets"].as_array().unwrap().iter().chain([&panel]) {
                assert_eq!(asks["datasource"]["type"], source["query"], "{title}");
                assert_eq!(asks["datasource"]["uid"], uid, "{title}");
            }

            let [x, y, w, h] =
                ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
            assert!(x + w <= 24, "{title}");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(cells.insert(cell), "{title} covers another panel");
            }
        }
    }
}

#[test]
fn no_dashboard_takes_the_place_of_another() {
    let mut uids = BTreeSet::new();
    for entry in fs::read_dir(root().join("deploy/grafana")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let board = committed(name.strip_suffix(".json").unwrap());
        assert!(uids.insert(board["uid"].as_str().unwrap().to_owned()), "{name}");
        let ids: Vec<&Value> =
            board["panels"].as_array().unwrap().iter().map(|panel| &panel["id"]).collect();
        let different: BTreeSet<u64> = ids.iter().map(|id| id.as_u64().unwrap()).collect();
        assert_eq!(ids.len(), different.len(), "{name}");
    }
    assert!(uids.len() >= 6, "{uids:?}");
}

/// Two daemons, one of which sends to the other, with what fails and loses, and their load.
struct Rig {
    near: Weir,
    far: Weir,
    _lossy: LossyWay,
    /// Is not read, so that its buffer fills.
    _receiver: UdpSocket,
    _load: [Process; 2],
    _dir: TempDir,
}

impl Rig {
    fn start() -> Rig {
        let dir = TempDir::new();
        let key = key(&dir, "near");
        let listen = format!("weir://127.0.0.1:0?name=in&keys={}", key.display());
        let far = Weir::relay(&["--listen", &listen, "--to", "null:"]);
        let far_address = far.listen().trim_start_matches("weir://").parse().unwrap();
        let lossy = LossyWay::to(far_address, 50);

        let (receiver, receives) = receiver();
        let free = || SocketAddr::from(([127, 0, 0, 1], free_port()));
        let [listen, sflow, link] = [free(), free(), lossy.addr];
        let config = format!(
            "[[listener]]\nname = \"in\"\nlisten = \"{listen}\"\n\
             [[listener.target]]\nname = \"full\"\nto = \"{receives}\"\n\
             [[listener.target]]\nname = \"closed\"\nto = \"127.0.0.1:9\"\n\
             [[listener.target]]\nname = \"disk\"\nto = \"file:/dev/full\"\n\
             [[listener.target]]\nname = \"some\"\nto = \"null:\"\nsample = 3\n\
             [[listener.target]]\nname = \"far\"\nto = \"weir://{link}\"\nbandwidth = \"10Mbit/s\"\nkey = \"{}\"\n\
             [[listener]]\nname = \"sflow\"\nlisten = \"{sflow}\"\n\
             [flows]\nfrom = [\"sflow\"]\n\
             [[flow]]\nname = \"pairs\"\nkeys = [\"src\", \"dst\"]\nmetrics = true\n\
             [[flow]]\nname = \"frames\"\nkeys = [\"src\"]\nvalue = \"frames\"\nmetrics = true\n\
             [[flow]]\nname = \"samples\"\nkeys = [\"src\"]\nvalue = \"samples\"\nmetrics = true\n\
             [sockets]\ninterval = \"200ms\"\nnamespaces = \"own\"\n\
             [[sink]]\nname = \"archive\"\nfrom = [\"sockets\"]\nto = \"file:{}\"\nspool = \"{}\"\n\
             [[sink]]\nname = \"nowhere\"\nfrom = [\"sockets\"]\nto = \"udp://127.0.0.1:9\"\n\
             [[sink]]\nname = \"down\"\nfrom = [\"sockets\"]\nto = \"tcp://127.0.0.1:9\"\n",
            key.display(),
            dir.text("sockets.jsonl"),
            dir.text("spool"),
        );
        fs::write(dir.file("weir.toml"), config).unwrap();
        let near = Weir::run(&dir.file("weir.toml"));

        send_broken_sflow(sflow);
        let steady = ["--rate", "500", "--duration", "10m"];
        let datagrams = Generator::start(&Place::Here, &listen.to_string(), &steady).0;
        let mut agents = Command::new(WEIR);
        agents.args(["gen", "sflow", "--to", &sflow.to_string(), "--agents", "2"]);
        agents.args(["--traffic", "1Gbit", "--loss", "20", "--duration", "10m"]);
        let load = [datagrams, Process::start(agents)];
        Rig { near, far, _lossy: lossy, _receiver: receiver, _load: load, _dir: dir }
    }
}

/// The first half of a datagram: its header is sound, and its samples are cut off.
fn send_broken_sflow(to: SocketAddr) {
    let flow = TrueFlow {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(198, 51, 100, 1),
        protocol: 17,
        src_port: 53,
        dst_port: 40_000,
        frame_bytes: 1_000,
        frames_per_s: 1e6,
    };
    let options = AgentOptions { counters_every: Duration::MAX, ..AgentOptions::default() };
    let mut bytes = Vec::new();
    Agent::new(options, vec![flow], 1).next_datagram(&mut bytes);
    bytes.truncate(bytes.len() / 2);
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&bytes, to).unwrap();
}

/// What Grafana asks when every instance, origin, target, sink and flow is chosen.
fn substituted(expression: &str) -> String {
    let mut asked = expression.replace("$__rate_interval", "1m").replace("$__range", "10m");
    for label in ["instance", "origin", "target", "sink", "flow"] {
        asked = asked.replace(&format!("${label}\""), ".*\"");
    }
    assert!(!asked.contains('$'), "{asked}");
    // A figure that says 0 where there is nothing would hide that there is nothing.
    asked.trim_end_matches(" or vector(0)").to_owned()
}

/// Whether a query has a number for an answer. Any error fails the test.
fn is_answered(prometheus: &Prometheus, query: &str) -> bool {
    let answer = prometheus.try_query(query).unwrap_or_else(|error| panic!("{query}: {error}"));
    let values = answer["result"].as_array().unwrap();
    values.iter().any(|one| one["value"][1].as_str().is_some_and(|value| value != "NaN"))
}

/// Waits until Prometheus has evaluated every rule, and returns their expressions.
fn rules(prometheus: &Prometheus) -> Vec<String> {
    let all = || -> Vec<Value> {
        let groups = prometheus.ask("/api/v1/rules").unwrap();
        let groups = groups["groups"].as_array().unwrap().iter();
        groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    };
    let rules = wait_for("every rule is evaluated", || {
        Some(all()).filter(|rules| rules.iter().all(|rule| rule["health"] != "unknown"))
    });
    assert!(rules.len() >= 30, "{rules:?}");
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule:#}");
    }
    rules.iter().map(|rule| rule["query"].as_str().unwrap().to_owned()).collect()
}

/// The vectors that an expression reads, without what it makes of them.
fn selectors(expression: &str) -> Vec<String> {
    metrics(expression)
        .into_iter()
        .flat_map(|name| expression.match_indices(name))
        .map(|(at, name)| {
            let rest = &expression[at + name.len()..];
            let labels = rest.starts_with('{').then(|| rest.split_inclusive('}').next().unwrap());
            format!("{name}{}", labels.unwrap_or(""))
        })
        .collect()
}

#[test]
fn every_query_of_dashboards_and_rules_has_a_result_in_a_prometheus() {
    if !need_tool("prometheus") || !need_root("hearing closes") {
        return;
    }
    let rig = Rig::start();
    let rules_file = root().join("deploy/prometheus/weir.rules.yaml").canonicalize().unwrap();
    let targets = [rig.near.admin, rig.far.admin];
    let prometheus = Prometheus::with_rules(&targets, "500ms", &rules_file);
    prometheus.until("sum(up)", |up| up == 2.0);

    let choices = DASHBOARDS.iter().flat_map(|dashboard| dashboard.choices);
    let choices = choices.map(|(label, metric)| format!("{metric}{{{label}!=\"\"}}"));
    let rules = rules(&prometheus);
    let read = rules.iter().flat_map(|rule| selectors(rule));
    let shown = expressions().into_iter().map(|expression| substituted(&expression));
    let all: BTreeSet<String> =
        shown.chain(choices).chain(read).chain(rules.iter().cloned()).collect();
    assert!(all.len() > 150, "{}", all.len());

    for (part, why) in EMPTY {
        assert!(all.iter().any(|query| query.contains(part)), "{why}: nothing has {part}");
    }
    let may_be_empty = |query: &str| EMPTY.iter().any(|(part, _)| query.contains(part));
    let unanswered = RefCell::new(all.iter().collect::<Vec<_>>());
    wait_for_up_to(
        Duration::from_secs(180),
        || format!("a result for each of {:#?}", unanswered.borrow()),
        || {
            let lacks = |query: &str| !is_answered(&prometheus, query) && !may_be_empty(query);
            unanswered.borrow_mut().retain(|query| lacks(query));
            unanswered.borrow().is_empty().then_some(())
        },
    );
    let ledger = rig.near.ledger();
    assert_eq!(ledger.violations, 0, "{}", ledger::waterfall(&ledger));
}
