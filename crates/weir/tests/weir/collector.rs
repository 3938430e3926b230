//! The socket collector in a real daemon: what is polled arrives, what is lost has a name, and a reload or a stop loses
//! nothing in silence.

mod complete;
mod names;
mod privilege;
mod questions;
mod sinks;
use crate::support::{Ended, WEIR, Weir, hop};
use ledger::{Event, HopKind, HopSnapshot, Reason, Snapshot};
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::{DEADLINE, Netns, Peer, TempDir, need_root_netns, run, signal, try_get, wait_for};

/// A connection on loopback, both ends.
struct Connection {
    near: TcpStream,
    _far: TcpStream,
    /// The port that was listened on, which no other test uses.
    port: u16,
}

impl Connection {
    fn new() -> Connection {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        Connection { near, _far: far, port }
    }
}

/// A configuration: the section's keys, then its sinks.
fn write(dir: &TempDir, keys: &str, sinks: &[&str]) -> std::path::PathBuf {
    let mut text =
        format!("[daemon]\ndrain_grace = \"5s\"\n[sockets]\ninterval = \"100ms\"\n{keys}\n");
    for sink in sinks {
        text.push_str(&format!("[[sink]]\nfrom = [\"sockets\"]\n{sink}\n"));
    }
    let path = dir.file("weir.toml");
    fs::write(&path, text).unwrap();
    path
}

/// The sink of most tests: a file `out.jsonl` of the folder.
fn disk(dir: &TempDir) -> String {
    format!("name = \"disk\"\nto = \"file:{}\"", dir.text("out.jsonl"))
}

/// Every whole line of a file of JSON lines.
fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Waits for a record of the file that is as wanted.
fn wait_for_record(path: &Path, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    wait_for(
        || format!("{what}, among {} records in {}", records(path).len(), path.display()),
        || records(path).into_iter().find(&is_wanted),
    )
}

fn is_about(record: &Value, port: u16) -> bool {
    record["src_port"] == port || record["dst_port"] == port
}

fn poll_hop(ledger: &Snapshot) -> &HopSnapshot {
    hop(ledger, HopKind::Poll, "")
}

/// Waits until the collector has polled so often in all its lives.
fn wait_for_polls(weir: &Weir, count: u64) -> Snapshot {
    weir.wait_for(|ledger| {
        let polls = ledger.hops.iter().find(|hop| hop.hop == HopKind::Poll);
        polls.is_some_and(|hop| hop.events.get(&Event::Polls).is_some_and(|polls| *polls >= count))
    })
}

/// The law across the hops: every record that was made was offered to each sink, and with it the totals of each poll and
/// of what came after the last poll of each life of the collector.
fn assert_law(ended: &Ended, sinks: &[&str]) {
    let ledger = &ended.ledger;
    let polls = poll_hop(ledger).event(Event::Polls);
    let lives = 1 + ended.said.matches("socket collector started anew").count() as u64;
    for name in sinks {
        let sink = hop(ledger, HopKind::Sink, name);
        let totals = sink.received.count.checked_sub(made(ledger));
        let is_right = totals.is_some_and(|totals| (polls..=polls + lives).contains(&totals));
        assert!(
            is_right,
            "{name}: {totals:?} totals, {polls} polls, {lives} lives: {}",
            ended.said
        );
        assert_eq!(sink.in_flight.count, 0);
    }
}

/// Records of sockets and of closes that were made.
fn made(ledger: &Snapshot) -> u64 {
    poll_hop(ledger).delivered.count + hop(ledger, HopKind::Close, "").delivered.count
}

/// Everything that the sink `disk` delivered is in its file, and every record that was made is there once.
fn assert_file(ended: &Ended, path: &Path) {
    let lines = records(path);
    let delivered = hop(&ended.ledger, HopKind::Sink, "disk").delivered.count;
    assert_eq!(lines.len() as u64, delivered, "{}", ended.said);
    let of_sockets = lines.iter().filter(|line| line["record_kind"] != "totals").count();
    assert_eq!(of_sockets as u64, made(&ended.ledger), "{}", ended.said);
    complete::assert_complete(&lines);
}

#[test]
fn a_connection_is_in_the_file_while_it_lives_and_the_ledger_agrees() {
    let (dir, connection) = (TempDir::new(), Connection::new());
    let keys = format!(
        "namespaces = \"own\"\nfilter = \"sport = :{0} or dport = :{0}\"\nkeyframe_every = 2\ntags = {{ site = \"here\" }}",
        connection.port
    );
    let config = write(&dir, &keys, &[&disk(&dir), "name = \"none\"\nto = \"null:\""]);
    let weir = Weir::run(&config);
    let path = dir.file("out.jsonl");
    let record = wait_for_record(&path, "the connection", |record| {
        record["dst_port"] == connection.port && record["state"] == "established"
    });
    assert_eq!(record["src_port"], connection.near.local_addr().unwrap().port());
    assert_eq!(record["src_address"], "127.0.0.1");
    assert_eq!(record["tags"]["site"], "here");
    assert!(record["rtt_us"].is_u64() && record["boot_id"].is_string(), "{record}");
    wait_for_polls(&weir, 5);
    let text = run(Command::new(WEIR).args(["ledger", "--admin", &weir.url()]));
    assert!(text.contains("polled") && text.contains("-> disk"), "{text}");
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_law(&ended, &["disk", "none"]);
    let polled = poll_hop(&ended.ledger);
    assert!(polled.dropped_for(Reason::Unchanged).count > 0, "nothing moved: {}", ended.said);
    let lines = records(&path);
    assert_file(&ended, &path);
    assert!(
        lines.iter().all(|line| line["record_kind"] == "totals" || is_about(line, connection.port))
    );
}

#[test]
fn a_connection_between_two_polls_has_a_closing_record_at_once() {
    let dir = TempDir::new();
    let config = write(&dir, "namespaces = \"own\"", &[&disk(&dir)]);
    let long = fs::read_to_string(&config).unwrap().replace("\"100ms\"", "\"1h\"");
    fs::write(&config, long).unwrap();
    let weir = Weir::run(&config);
    wait_for_polls(&weir, 1);
    let connection = Connection::new();
    let port = connection.port;
    drop(connection);
    let path = dir.file("out.jsonl");
    let record = wait_for_record(&path, "the closing record", |record| {
        record["record_kind"] == "close" && is_about(record, port)
    });
    assert!(record["close_reason"].is_string(), "{record}");
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_law(&ended, &["disk"]);
    assert_file(&ended, &path);
}

#[test]
fn the_page_answers_questions_about_sockets() {
    let (dir, connection) = (TempDir::new(), Connection::new());
    let weir = Weir::run(&write(&dir, "namespaces = \"own\"", &["to = \"null:\""]));
    let ask = |query: &str| -> Value {
        let text = weir.page(&format!("/sockets{query}"), "application/json");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let mine = ask(&format!("?filter=state+established+and+dport+%3D+:{}", connection.port));
    assert_eq!((&mine["matched"], &mine["shown"]), (&1.into(), &1.into()), "{mine}");
    assert_eq!(mine["sockets"][0]["dst_port"], connection.port);
    // The port may be that of an earlier connection, of which one end stays in TIME-WAIT for a minute.
    let both = format!("state established and ( dport = :{0} or sport = :{0} )", connection.port);
    let both = both.replace(' ', "%20");
    let one = ask(&format!("?limit=1&filter={both}"));
    assert_eq!((&one["matched"], &one["shown"]), (&2.into(), &1.into()), "{one}");
    let wrong = |query: &str| try_get(weir.admin, &format!("/sockets{query}"), "*/*").unwrap_err();
    assert!(
        wrong("?filter=dprot+%3D+:1").starts_with("HTTP/1.0 400"),
        "{}",
        wrong("?filter=dprot")
    );
    assert!(wrong("?limit=no").starts_with("HTTP/1.0 400"));
    assert!(wrong("?page=2").starts_with("HTTP/1.0 400"));
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0));
    assert!(poll_hop(&ended.ledger).event(Event::Queries) >= 2);
}

#[test]
fn a_reload_starts_a_changed_collector_anew_and_keeps_its_counts() {
    let (dir, connection) = (TempDir::new(), Connection::new());
    let keys = format!(
        "namespaces = \"own\"\nskip_unchanged = false\nfilter = \"dport = :{}\"",
        connection.port
    );
    let config = write(&dir, &keys, &[&disk(&dir)]);
    let weir = Weir::run(&config);
    let before = wait_for_polls(&weir, 3);
    // The same file again: nothing happens to the collector.
    signal(weir.process(), "HUP");
    wait_for_reloads(&weir, 1);
    let path = dir.file("out.jsonl");
    let polls = wait_for_polls(&weir, poll_hop(&before).event(Event::Polls) + 3);
    let is_poll = |record: &Value, number: u64| record["poll"] == number;
    let number = poll_hop(&polls).event(Event::Polls);
    wait_for_record(&path, "the numbers going on", |record| is_poll(record, number));
    // Other fields: the sink is another, and the collector goes on.
    let keys = keys + "\nfields = [\"identity\", \"state\"]";
    write(&dir, &keys, &[&disk(&dir)]);
    signal(weir.process(), "HUP");
    let is_narrow =
        |record: &Value| record["state"] == "established" && record.get("rtt_us").is_none();
    let narrow = wait_for_record(&path, "a record with fewer fields", is_narrow);
    assert!(narrow.get("dst_port").is_none(), "{narrow}");
    assert!(narrow["poll"].as_u64() >= Some(number), "{narrow}");
    // Another collection: it starts anew, and poll 1 comes again.
    write(&dir, &(keys + "\nlisten_every = 2"), &[&disk(&dir)]);
    signal(weir.process(), "HUP");
    wait_for_record(&path, "a record of the new collector", |record| {
        is_poll(record, 1) && is_narrow(record)
    });
    let after = wait_for_polls(&weir, number + 3);
    assert!(poll_hop(&after).received.count >= poll_hop(&polls).received.count);
    // Without the section there is no collector and no page; the counts stay.
    fs::write(
        &config,
        "[[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.target]]\nto = \"null:\"\n",
    )
    .unwrap();
    signal(weir.process(), "HUP");
    wait_for_reloads(&weir, 4);
    wait_for(
        || "the page to go".to_owned(),
        || {
            try_get(weir.admin, "/sockets", "*/*")
                .is_err_and(|head| head.contains(" 404 "))
                .then_some(())
        },
    );
    assert!(
        try_get(weir.admin, "/healthz", "*/*").is_ok(),
        "a collector that has gone is not missed"
    );
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_law(&ended, &["disk"]);
    assert_file(&ended, &path);
    assert!(ended.said.contains("socket collector started anew"), "{}", ended.said);
    assert!(ended.said.contains("socket collector ended"), "{}", ended.said);
}

pub(crate) fn wait_for_reloads(weir: &Weir, count: u32) {
    let done = format!("weir_config_reloads_total {count}");
    wait_for(
        || format!("reload {count}: {}", weir.page("/metrics", "*/*")),
        || weir.page("/metrics", "*/*").lines().any(|line| line == done).then_some(()),
    );
}

#[test]
fn a_reload_with_a_mistake_changes_nothing() {
    let dir = TempDir::new();
    let config = write(&dir, "namespaces = \"own\"", &[&disk(&dir)]);
    let weir = Weir::run(&config);
    wait_for_polls(&weir, 1);
    write(&dir, "namespaces = \"own\"\ninterval = 5", &[&disk(&dir)]);
    signal(weir.process(), "HUP");
    let folder = "name = \"disk\"\nto = \"file:/no/such/folder/x\"";
    wait_for(
        || "the refusal".to_owned(),
        || {
            weir.page("/metrics", "*/*")
                .contains("weir_config_reload_failures_total 1")
                .then_some(())
        },
    );
    write(&dir, "namespaces = \"own\"", &[folder]);
    signal(weir.process(), "HUP");
    wait_for(
        || "the second refusal".to_owned(),
        || {
            weir.page("/metrics", "*/*")
                .contains("weir_config_reload_failures_total 2")
                .then_some(())
        },
    );
    let polls = poll_hop(&weir.ledger()).event(Event::Polls);
    wait_for_polls(&weir, polls + 2);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_law(&ended, &["disk"]);
    assert!(ended.said.contains("mkdir -p /no/such/folder"), "{}", ended.said);
}

#[test]
fn what_a_stuck_sink_has_not_taken_at_the_stop_is_counted_and_named() {
    let dir = TempDir::new();
    let connections: Vec<_> = (0..40).map(|_| Connection::new()).collect();
    let keys = "namespaces = \"own\"\nskip_unchanged = false";
    let sinks = ["name = \"pipe\"\nto = \"stdout:\"", "name = \"none\"\nto = \"null:\""];
    let config = write(&dir, keys, &sinks);
    let short = fs::read_to_string(&config).unwrap().replace("\"5s\"", "\"300ms\"");
    fs::write(&config, short).unwrap();
    let mut command = Command::new(WEIR);
    command.args(["run", "--admin", "127.0.0.1:0", "-c"]).arg(&config);
    // Nobody reads its standard output: the pipe fills, and the queue after it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut weir = Peer::start(&mut command);
    let mut said = std::io::BufReader::new(weir.0.stderr.take().unwrap());
    let admin = wait_for(
        || "the banner".to_owned(),
        || {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut said, &mut line).unwrap();
            let address = line.split_once("metrics on http://")?.1.trim().to_owned();
            address.parse::<SocketAddr>().ok()
        },
    );
    let ledger = || -> Snapshot {
        serde_json::from_str(&try_get(admin, "/ledger", "*/*").unwrap()).unwrap()
    };
    // More than a pipe takes (64 KiB) waits, and meanwhile the other sink has all that it was given: no sink holds another.
    let stuck = wait_for(
        || ledger::waterfall(&ledger()),
        || {
            let ledger = ledger();
            let in_flight = |name| hop(&ledger, HopKind::Sink, name).in_flight;
            let is_it = in_flight("pipe").bytes > 300_000 && in_flight("none").count == 0;
            is_it.then_some(ledger)
        },
    );
    assert_eq!(stuck.violations, 0);
    signal(&weir.0, "TERM");
    let code = wait_for(|| "its end".to_owned(), || weir.0.try_wait().unwrap()).code();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut said, &mut text).unwrap();
    assert_eq!(code, Some(75), "{text}");
    assert!(text.contains("of sockets that sink pipe had not delivered"), "{text}");
    assert!(text.ends_with("unaccounted: 0\n"), "{text}");
    drop(connections);
}

#[test]
fn records_and_the_last_ledger_do_not_share_standard_output() {
    let dir = TempDir::new();
    let config = write(&dir, "namespaces = \"own\"", &["name = \"out\"\nto = \"stdout:\""]);
    let output = Command::new(WEIR).args(["run", "--json", "-c"]).arg(&config).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("sink out") && said.contains("leave --json out"), "{said}");
    assert!(output.stdout.is_empty());
    let mut command = Command::new(WEIR);
    command.args(["run", "--admin", "off", "-c"]).arg(&config);
    let mut weir = Peer::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(weir.0.stdout.take().unwrap()));
    let record: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert!(record["record_kind"].is_string());
    signal(&weir.0, "TERM");
    // Whoever reads to the end gets everything.
    assert!(lines.all(|line| serde_json::from_str::<Value>(&line.unwrap()).is_ok()));
    assert_eq!(weir.0.wait().unwrap().code(), Some(0));
}

#[test]
fn datagrams_arrive_whole_and_a_sink_without_an_address_is_no_reason_to_wait() {
    let (dir, connection) = (TempDir::new(), Connection::new());
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(DEADLINE)).unwrap();
    let near = format!("name = \"near\"\nto = \"udp://{}\"", receiver.local_addr().unwrap());
    let far = "name = \"far\"\nto = \"udp://collector.invalid:6350\"";
    let keys = format!("namespaces = \"own\"\nfilter = \"dport = :{}\"", connection.port);
    let weir = Weir::run(&write(&dir, &keys, &[&near, far]));
    let mut buffer = vec![0; 65_536];
    let mut is_seen = false;
    while !is_seen {
        let len = receiver.recv(&mut buffer).expect("a datagram arrives");
        let datagram = record::decode_datagram(&buffer[..len]).unwrap();
        is_seen =
            datagram.records().any(|record| record.unwrap().dst_port == Some(connection.port));
    }
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_law(&ended, &["near", "far"]);
    let far = hop(&ended.ledger, HopKind::Sink, "far");
    assert_eq!(far.dropped_for(Reason::TargetUnresolved), far.received);
    assert!(far.received.count > 0);
    assert!(ended.said.contains("sink far"), "{}", ended.said);
}

/// A TCP listener in a namespace, by the one program that is surely here.
fn listen_in(netns: &Netns) -> Peer {
    let mut command = netns.command(WEIR);
    command.args(["relay", "--listen", "127.0.0.1:5514", "--to", "null:", "--progress", "off"]);
    command.args(["--admin", "127.0.0.1:9464"]);
    Peer::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
}

#[test]
fn namespaces_appear_and_vanish_while_it_runs() {
    if !need_root_netns() {
        return;
    }
    let dir = TempDir::new();
    let keys = "states = [\"listening\"]\nlisten_every = 1\nskip_unchanged = false\nfilter = \"sport = :9464\"";
    let weir = Weir::run(&write(&dir, keys, &[&disk(&dir)]));
    wait_for_polls(&weir, 2);
    let path = dir.file("out.jsonl");
    for _ in 0..3 {
        let netns = Netns::new();
        let name = netns.name.clone();
        let mut inside = listen_in(&netns);
        let record = wait_for_record(&path, "the listener in the namespace", |record| {
            record["netns_name"] == name.as_str() && record["src_port"] == 9_464
        });
        let inode = record["netns_inode"].as_u64().unwrap();
        assert_ne!(inode, own_namespace());
        inside.terminate();
        drop(netns);
        // Gone for good: the collector holds no descriptor of it, and goes on without it.
        let polls = poll_hop(&weir.ledger()).event(Event::Polls);
        wait_for_polls(&weir, polls + 2);
        let held = fs::read_dir(format!("/proc/{}/fd", weir.pid()))
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        let held: Vec<_> = held.filter(|to| to.to_string_lossy().starts_with("net:[")).collect();
        assert!(
            held.iter().all(|to| to.to_string_lossy() == format!("net:[{}]", own_namespace())),
            "{held:?}"
        );
    }
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_law(&ended, &["disk"]);
}

fn own_namespace() -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::metadata("/proc/self/ns/net").unwrap())
}
