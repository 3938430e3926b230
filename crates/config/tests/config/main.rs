//! Valid and invalid files, with every message as users read it.

mod addresses;
mod documentation;
mod sources;

use config::{
    AdminListen, Body, Config, ConfigError, ENV_ADMIN_LISTEN, ENV_DRAIN_GRACE, ENV_LOG_FORMAT,
    ENV_LOG_LEVEL, LogFormat, LogLevel, Namespaces, NullSink, Overrides, Sink, Source, StdoutSink,
    Target, Written,
};
use record::Encoding;
use relay::{FileFormat, Gso, Sample, SampleBy, Schedule, SocketOwner};
use std::time::Duration;

fn messages(errors: &[ConfigError]) -> String {
    errors.iter().map(|error| format!("{error}\n")).collect()
}

/// The cases of `wrong.txt`: a name, a file, and after `---` every message, which includes the fix.
#[test]
fn generated_answers_to_wrong_files() {
    let cases: Vec<&str> = include_str!("wrong.txt").split("=== ").skip(1).collect();
    assert!(cases.len() >= 50, "the cases are found: {}", cases.len());
    let mut all = String::new();
    for case in cases {
        let (name, rest) = case.split_once('\n').expect("a case has a name");
        let (text, _) = rest.split_once("\n---\n").expect("a case has a file and messages");
        let errors = Config::parse(text, "t").expect_err(text);
        let told = messages(&errors);
        for mistake in errors.iter().filter(|error| !error.message.contains("Fix: ")) {
            assert!(mistake.message.contains("this is not TOML"), "{name}: {mistake}");
        }
        all += &format!("=== {name}\n{text}\n---\n{told}\n");
    }
    testkit::generated("crates/config/tests/config/wrong.txt", &all);
}

fn good(text: &str) -> Config {
    let config = Config::parse(text, "t").unwrap_or_else(|errors| panic!("{}", messages(&errors)));
    let shown = config.to_toml(None);
    let again = Config::parse(&shown, "shown");
    let again = again.unwrap_or_else(|errors| panic!("{}\n{shown}", messages(&errors)));
    assert_eq!(again, config, "what is shown reads as the same:\n{shown}");
    config
}

const FULL: &str = r#"
[admin]
listen = "127.0.0.1:9464"
[daemon]
drain_grace = "10s"
log_level = "info"
[metrics.statsd]
to = "127.0.0.1:8125"
prefix = "weir"
interval = "10s"
[[listener]]
name = "syslog"
listen = "udp://127.0.0.1:5514"
receive_buffer = "16MiB"
ring_size = "9MiB"
schedule = "threaded"
allow_sources = ["10.0.0.0/8", "2001:db8::/32"]
deny_sources = ["10.1.2.3"]
[[listener.target]]
name = "old"
to = "udp://10.0.0.1:514"
send_buffer = "208KiB"
source_address = "10.0.0.5"
source_port = 56565
ttl = 64
dscp = 46
gso = "off"
rate_limit = 10000
sample = 10
sample_by = "source"
only_sources = ["10.1.0.0/16"]
resolve_interval = "1m"
[[listener.target]]
to = "file:/var/log/all.pcap"
format = "pcap"
rotate_size = "64MiB"
rotate_keep = 7
[[listener]]
listen = "udp://239.1.2.3:5514"
multicast_interface = "eth0"
[[listener.target]]
to = "udp://[ff02::1]:514"
multicast_interface = "eth1"
[[listener.target]]
to = "unix:/dev/log"
[[listener]]
listen = "unix:/run/weir.sock"
[[listener.target]]
to = "null:"
[sockets]
interval = "5s"
jitter = "0s"
namespaces = ["blue", "green"]
namespaces_max = 250
states = ["established", "listening"]
filter = "dport = :443"
closes = false
skip_unchanged = false
keyframe_every = 10
sample = 100
listen_every = 2
fields = ["identity", "tcp_info"]
table_entries_max = 4096
event_buffer = "1MiB"
processes = true
admin_connections = true
host = "web-17.example.net"
host_id = "rack-7/slot-3"
helper = "/run/weir/helper.sock"
[sockets.tags]
site = "fra1"
"rack/row" = 'a "quoted" b'
[flows]
from = ["syslog"]
[[flow]]
name = "victims"
keys = ["dst"]
[[threshold]]
name = "victims"
flow = "victims"
limit = "2Gbit/s"
above_for = "1s"
filter = "dst in 192.0.2.0/24"
[[threshold]]
name = "uplinks"
interface = "in_use"
limit = "90%"
clear = "72.5%"
clear_after = "10s"
above_for = "2s"
judge = "sure"
agents = ["192.0.2.0/24", "2001:db8::1"]
raised_max = 100
[[threshold]]
name = "gone"
agent = "silent"
limit = "30s"
[[mitigation]]
name = "edge"
thresholds = ["victims"]
speaker = "exabgp:/run/weir/exabgp.sock"
own_networks = ["192.0.2.0/24", "2001:db8::/32"]
action = "blackhole"
dry_run = false
next_hops = ["192.0.2.254", "2001:db8::fe"]
communities = ["65535:666", "64500:1"]
allow = ["192.0.2.53", "2001:db8::53"]
shortest_v4 = 24
shortest_v6 = 64
routes_max = 5
new_routes_per_minute = 3
hold = "30s"
expire_after = "30m"
withdraw_after = "20s"
on_stop = "keep"
audit_log = "/var/log/weir/mitigation.jsonl"
[[mitigation]]
name = "limit"
thresholds = ["victims"]
speaker = "exabgp:/run/weir/exabgp.sock"
own_networks = ["192.0.2.0/24"]
action = "flowspec"
rate_limit = "10Mbit/s"
[[sink]]
from = ["sockets"]
name = "disk"
to = "file:/var/log/sockets.csv"
queue_size = "1MiB"
fields = ["tcp_info"]
rotate_size = "64MiB"
rotate_interval = "1d"
rotate_keep = 7
[[sink]]
from = ["sockets"]
to = "udp://10.0.0.9:6350"
[[sink]]
from = ["sockets"]
to = "stdout:"
format = "protobuf"
[[sink]]
from = ["sockets"]
to = "null:"
"#;

#[test]
fn every_key_is_read() {
    let config = good(FULL);
    assert_eq!(config.admin.listen, AdminListen::On("127.0.0.1:9464".parse().unwrap()));
    assert_eq!(config.daemon.drain_grace, Duration::from_secs(10));
    assert_eq!(config.statsd.as_ref().unwrap().to.to_string(), "127.0.0.1:8125");
    let syslog = &config.listeners[0];
    assert_eq!(syslog.ring_bytes, 16 << 20, "rounded up to a power of two");
    assert_eq!(syslog.udp().unwrap().receive_buffer_bytes, 16 << 20);
    assert_eq!(syslog.schedule, Schedule::Threaded);
    assert_eq!(syslog.listener_options(SocketOwner::Relay).allow_sources.len(), 2);
    let old = &syslog.targets[0];
    let udp = old.udp().unwrap();
    assert_eq!(udp.source_address, Some("10.0.0.5".parse().unwrap()));
    assert_eq!(udp.source_port, Some(56_565));
    assert_eq!((udp.ttl, udp.dscp), (Some(64), Some(46)));
    assert_eq!(udp.send_buffer_bytes, Some(212_992));
    assert_eq!(udp.gso, Gso::Off);
    let one_in = 10.try_into().unwrap();
    assert_eq!(old.target_options().sample, Some(Sample { one_in, by: SampleBy::Source }));
    assert_eq!(old.rate_limit_per_sec, 10_000.try_into().ok());
    assert_eq!(udp.resolve_interval, Duration::from_secs(60));
    let Target::File(file) = &syslog.targets[1].to else { panic!("{:?}", syslog.targets) };
    let file = file.file_options();
    assert_eq!(file.format, FileFormat::Pcap);
    assert_eq!((file.rotate_bytes, file.rotate_keep), (Some(64 << 20), 7));
    assert_eq!(syslog.targets[1].name, "file:/var/log/all.pcap", "the address is the name");
    assert_eq!(config.listeners[2].targets[0].to, Target::Null);
}

#[test]
fn every_key_of_the_collector_is_read() {
    let config = good(FULL).sockets.unwrap();
    assert_eq!((config.interval, config.jitter), (Duration::from_secs(5), Duration::ZERO));
    assert_eq!(config.namespaces, Namespaces::Named(vec!["blue".to_owned(), "green".to_owned()]));
    assert_eq!(config.namespaces_max, 250);
    assert_eq!(config.states, ["established", "listening"]);
    assert_eq!(config.filter.as_deref(), Some("dport = :443"));
    assert!(!config.closes && !config.skip_unchanged);
    assert_eq!((config.keyframe_every.get(), config.listen_every.get()), (10, 2));
    assert_eq!(config.sample.get(), 100);
    assert_eq!(config.fields, ["identity", "tcp_info"]);
    assert_eq!((config.table_entries_max, config.event_buffer_bytes), (4_096, 1 << 20));
    assert!(config.processes);
    assert_eq!(config.host.as_deref(), Some("web-17.example.net"));
    assert_eq!(config.host_id.as_deref(), Some("rack-7/slot-3"));
    assert_eq!(config.tags["site"], "fra1");
    assert_eq!(config.tags["rack/row"], "a \"quoted\" b");
    assert_eq!(config.helper.unwrap().to_str(), Some("/run/weir/helper.sock"));
}

#[test]
fn every_key_of_a_sink_is_read() {
    let sinks = good(FULL).sinks;
    let [disk, udp, stdout, null] = &sinks[..] else { panic!("{sinks:?}") };
    let Sink::File(file) = &disk.to else { panic!("{disk:?}") };
    assert!(sinks.iter().all(|sink| sink.from == [Source::Sockets]));
    assert_eq!((disk.name.as_str(), disk.to.encoding()), ("disk", Encoding::Csv));
    assert_eq!((disk.queue_bytes, file.rotate_bytes), (1 << 20, Some(64 << 20)));
    assert_eq!((file.rotate_interval, file.rotate_keep), (Some(Duration::from_secs(86_400)), 7));
    assert_eq!(disk.fields, ["tcp_info"]);
    assert_eq!(udp.name, "udp://10.0.0.9:6350");
    assert_eq!(
        stdout.to,
        Sink::Stdout(StdoutSink(Written { format: Encoding::Protobuf, body: Body::Record }))
    );
    assert_eq!(
        null.to,
        Sink::Null(NullSink(Written { format: Encoding::Jsonl, body: Body::Record }))
    );
}

#[test]
fn a_collector_needs_no_listener_and_little_else() {
    let config = good("[sockets]\n[[sink]]\nfrom = ['sockets']\nto = 'file:x'");
    assert!(config.listeners.is_empty());
    let sink = &config.sinks[0];
    let Sink::File(file) = &sink.to else { panic!("{sink:?}") };
    assert_eq!((sink.name.as_str(), sink.to.encoding()), ("file:x", Encoding::Jsonl));
    assert_eq!((sink.queue_bytes, file.rotates()), (32 << 20, false));
    let config = config.sockets.unwrap();
    assert_eq!((config.interval.as_secs(), config.jitter.as_secs()), (10, 1));
    assert_eq!((config.namespaces, config.namespaces_max), (Namespaces::All, 4_096));
    assert_eq!(config.states, ["connected"]);
    assert!(config.closes && config.skip_unchanged);
    assert_eq!((config.keyframe_every.get(), config.listen_every.get()), (30, 6));
    assert_eq!((config.sample.get(), config.table_entries_max), (1, 131_072));
    assert_eq!(config.event_buffer_bytes, 8 << 20);
    assert!(config.fields.is_empty() && config.tags.is_empty());
    assert_eq!((&config.host, &config.host_id, config.processes), (&None, &None, false));
    let quick = good("[sockets]\ninterval = '100ms'\n[[sink]]\nfrom = ['sockets']\nto = 'null:'")
        .sockets
        .unwrap();
    assert_eq!(quick.jitter, Duration::from_millis(10), "it never makes polls overtake each other");
}

#[test]
fn a_file_name_says_how_records_are_written() {
    let check = |file: &str, format: Encoding| {
        let text = format!("[sockets]\n[[sink]]\nfrom = ['sockets']\nto = 'file:{file}'");
        assert_eq!(good(&text).sinks[0].to.encoding(), format, "{file}");
    };
    check("a.jsonl", Encoding::Jsonl);
    check("a.log", Encoding::Jsonl);
    check("a", Encoding::Jsonl);
    check("a.pb", Encoding::Protobuf);
    check("a.txtpb", Encoding::Prototext);
    check("a.protojson", Encoding::Protojson);
    check("a.msgpack", Encoding::MessagePack);
    check("a.csv", Encoding::Csv);
    check("a.b/c.tsv", Encoding::Tsv);
}

#[test]
fn a_filter_is_read_without_asking_the_network() {
    // The host, the interface and the group are only looked up when the collector starts.
    good(
        "[sockets]\nfilter='dst no-such-host.invalid and dev nosuch0 and dport = :https'\n[[sink]]\nfrom = ['sockets']\nto='null:'",
    );
}

#[test]
fn a_sink_has_fields_of_the_collector_only() {
    let text = "[sockets]\nfields = ['tcp_info']\n[[sink]]\nfrom = ['sockets']\nto = 'null:'\nname = 'all'\n\
                [[sink]]\nfrom = ['sockets']\nto = 'null:'\nname = 'two'\nfields = ['rtt_us', 'cookie']";
    let config = good(text);
    let sockets = config.sockets.unwrap();
    let all = sockets.fields_of(&config.sinks[0]);
    assert!(all.has("rtt_us") && all.has("min_rtt_us") && !all.has("cookie"));
    let two: Vec<_> =
        sockets.fields_of(&config.sinks[1]).fields().map(|field| field.name).collect();
    assert_eq!(two, ["rtt_us"]);
}

#[test]
fn fields_that_cost_the_kernel_more_than_they_tell_are_a_choice() {
    let check = |fields: &str, sink: &str, has: &[&str], lacks: &[&str]| {
        let text =
            format!("[sockets]\n{fields}\n[[sink]]\nfrom = ['sockets']\nto = 'null:'\n{sink}\n");
        let config = good(&text);
        let set = config.sockets.unwrap().fields_of(&config.sinks[0]);
        let context = format!("{fields} {sink}");
        assert!(has.iter().all(|name| set.has(name)), "{context}");
        assert!(!lacks.iter().any(|name| set.has(name)), "{context}");
    };
    let usual = ["cookie", "rtt_us", "drops", "congestion_algorithm", "tcp_info_tail"];
    let rare =
        ["type_of_service", "traffic_class", "class_id", "bbr_bw_bytes_per_sec", "dctcp_alpha"];
    check("", "", &usual, &rare);
    check("fields = ['all']", "", &rare, &[]);
    check("fields = ['-raw']", "", &usual[..4], &["tcp_info_tail", "class_id"]);
    check(
        "fields = ['tcp_info', 'class_id']",
        "",
        &["rtt_us", "class_id"],
        &["cookie", "bbr_tail"],
    );
    check("", "fields = ['-raw']", &usual[..4], &["tcp_info_tail", "class_id"]);
    check("", "fields = ['congestion']", &["bbr_tail"], &["cookie", "class_id"]);
    check("fields = ['all']", "fields = ['-raw']", &["class_id"], &["tcp_info_tail"]);
    check("fields = ['tcp_info']", "fields = ['congestion', 'rtt_us']", &["rtt_us"], &["bbr_tail"]);
}

#[test]
fn what_is_shown_as_json_has_the_collector() {
    let (config, origins) = Config::parse_with_origins(FULL, "t").unwrap();
    let json = config.to_json(&origins);
    let sockets = &json["sockets"];
    assert_eq!(sockets["tags"]["value"]["site"], "fra1", "{sockets:#}");
    assert_eq!(sockets["closes"]["value"], false);
    assert_eq!(sockets["keyframe_every"]["value"], 10);
    assert_eq!(sockets["states"]["value"][1], "listening");
    assert_eq!(json["sink"][0]["rotate_interval"]["value"], "1d");
    assert_eq!(json["sink"][1]["format"], serde_json::Value::Null, "not for UDP");
    let without = Config::parse("[[listener]]\nlisten=':1'\n[[listener.target]]\nto='null:'", "t");
    assert!(without.unwrap().to_json(&origins)["sockets"].is_null());
}

#[test]
fn what_is_not_said_is_the_default() {
    let config = good("[[listener]]\nlisten=':514'\n[[listener.target]]\nto='h.example:514'");
    assert_eq!(config.admin.listen, AdminListen::On("127.0.0.1:9464".parse().unwrap()));
    assert_eq!(config.daemon.log_level, LogLevel::Info);
    assert_eq!(config.daemon.log_format, LogFormat::Auto);
    assert_eq!(config.statsd, None);
    let listener = &config.listeners[0];
    assert_eq!(listener.name, "udp://0.0.0.0:514");
    assert_eq!(listener.ring_bytes, 8 << 20);
    assert_eq!(listener.udp().unwrap().receive_buffer_bytes, 16 << 20);
    assert_eq!(listener.schedule, Schedule::Auto);
    let target = &listener.targets[0];
    let udp = target.udp().unwrap();
    assert_eq!(udp.resolve_interval, Duration::from_secs(30));
    assert_eq!(target.sample_one_in, None);
    assert_eq!(udp.gso, Gso::Auto);

    let file = good("[[listener]]\nlisten=':514'\n[[listener.target]]\nto='file:/log'");
    let Target::File(file) = &file.listeners[0].targets[0].to else { panic!("{file:?}") };
    assert_eq!(file.rotate_bytes, None, "nothing is deleted unasked");
}

#[test]
fn flags_and_environment_come_before_the_file() {
    let environment = |name: &str| match name {
        ENV_ADMIN_LISTEN => Some("off".to_owned()),
        ENV_LOG_LEVEL => Some("debug".to_owned()),
        ENV_LOG_FORMAT => Some("json".to_owned()),
        ENV_DRAIN_GRACE => Some("1m".to_owned()),
        _ => None,
    };
    let overrides = Overrides::from_environment(environment).unwrap();
    let config = good(FULL).overridden_by(&overrides);
    assert_eq!(config.admin.listen, AdminListen::Off);
    assert_eq!(config.daemon.log_level, LogLevel::Debug);
    assert_eq!(config.daemon.log_format, LogFormat::Json);
    assert_eq!(config.daemon.drain_grace, Duration::from_secs(60));
    assert_eq!(good(FULL).overridden_by(&Overrides::default()), good(FULL));
    let errors = Overrides::from_environment(|_| Some("2h".to_owned())).unwrap_err();
    assert_eq!(
        messages(&errors),
        "environment: WEIR_ADMIN_LISTEN: \"2h\": it is not an IP address and port. Fix: write 127.0.0.1:9464 or off\n\
         environment: WEIR_LOG_LEVEL: \"2h\": it is none of these words. Fix: write one of error, warn, info, debug\n\
         environment: WEIR_LOG_FORMAT: \"2h\": it is none of these words. Fix: write one of auto, text, json, journald\n\
         environment: WEIR_DRAIN_GRACE: \"2h\": it is too much. Fix: write 1h or less\n"
    );
}

#[test]
fn what_is_shown_says_where_it_came_from() {
    let text = "[[listener]]\nlisten=':514'\n[[listener.target]]\nto='10.0.0.1:514'\nttl=3";
    let (config, origins) = Config::parse_with_origins(text, "weir.toml").unwrap();
    let overrides = Overrides { log_level: Some(LogLevel::Warn), ..Overrides::default() };
    let shown = config.overridden_by(&overrides).to_toml(Some(&origins.overridden_by(&overrides)));
    let origin = |key: &str| {
        let line =
            shown.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{shown}"));
        line.split_once(" # ").unwrap().1.to_owned()
    };
    assert_eq!(origin("drain_grace = "), "default");
    assert_eq!(origin("log_level = \"warn\""), "environment WEIR_LOG_LEVEL");
    assert_eq!(origin("to = "), "weir.toml:4");
    assert_eq!(origin("ttl = 3"), "weir.toml:5");
    assert_eq!(origin("# dscp is not set"), "0");
    assert!(Config::parse(&shown, "shown").is_ok(), "{shown}");
}

#[test]
fn listeners_are_compared_with_and_without_their_targets() {
    let before = &good(FULL).listeners[0];
    let mut after = before.clone();
    after.targets.pop();
    assert_ne!(*before, after);
    assert!(before.is_same_listener(&after));
    after.ring_bytes *= 2;
    assert!(!before.is_same_listener(&after));
}

#[test]
fn the_budget_adds_up() {
    let budget = good(FULL).budget();
    let first = &budget.listeners[0];
    assert_eq!(first.ring_bytes, 16 << 20);
    assert_eq!(first.kernel_bytes(), (16 << 20) + 212_992);
    assert_eq!(budget.listeners[2].kernel_receive_bytes, 0);
    let sockets = budget.sockets.as_ref().unwrap();
    let sinks = || budget.sinks.iter();
    assert_eq!(sinks().map(|sink| sink.queue_bytes).sum::<u64>(), (1 << 20) + 3 * (32 << 20));
    assert_eq!(sockets.kernel_bytes(), 0, "it hears no events");
    let listeners: u64 = budget.listeners.iter().map(|listener| listener.process_bytes()).sum();
    let of_sinks: u64 = sinks().map(|sink| sink.process_bytes()).sum();
    let flows = budget.flows.as_ref().unwrap().process_bytes();
    let admin = budget.admin.as_ref().unwrap().process_bytes();
    let collected = sockets.process_bytes() + flows;
    assert_eq!(budget.process_bytes(), listeners + collected + of_sinks + admin);
    let small = good("[sockets]\n[[sink]]\nfrom = ['sockets']\nto = 'null:'").budget();
    let sockets = small.sockets.as_ref().unwrap();
    let (held, cgroups) = (sockets.held_bytes, sockets.cgroup_bytes);
    assert!(held > 4 << 20 && cgroups > 4 << 20, "{held} {cgroups}");
    // One batch waits, one is in flight, and the encoder holds two.
    let sink = (32 << 20) + (680 << 10) + 4 * (64 << 10);
    let rest = held + cgroups + (13 << 20) + small.admin.as_ref().unwrap().process_bytes();
    assert_eq!(small.process_bytes(), 131_072 * 228 + sink + rest);
    assert_eq!((small.kernel_bytes(), small.disk_bytes()), (8 << 20, 0));
}

#[test]
fn what_may_look_like_twice_and_is_not() {
    good(
        "[[listener]]\nlisten='127.0.0.1:0'\nname='a'\n[[listener.target]]\nto='null:'\n\
         [[listener]]\nlisten='127.0.0.1:0'\nname='b'\n[[listener.target]]\nto='null:'",
    );
    good(
        "[[listener]]\nlisten='239.0.0.1:5'\n[[listener.target]]\nto='null:'\n\
         [[listener]]\nlisten='0.0.0.0:5'\n[[listener.target]]\nto='null:'",
    );
    good("[[listener]]\nlisten=':514'\n[[listener.target]]\nto='127.0.0.1:515'");
    good("[[listener]]\nlisten=':514'\n[[listener.target]]\nto='10.0.0.1:514'");
}

#[test]
fn a_name_made_of_a_path_is_a_name() {
    let long = "x".repeat(200);
    let text = format!("[[listener]]\nlisten=':1'\n[[listener.target]]\nto=\"file:/a b'/{long}\"");
    let name = good(&text).listeners[0].targets[0].name.clone();
    assert!(name.starts_with("file:/a_b_/xxx"), "{name}");
    assert_eq!(name.len(), 128);
}
