//! gRPC of a real daemon under load, by grpcurl, which knows nothing but what reflection says: it gets what a file has, loses what
//! is counted, and is refused where HTTP refuses.

use crate::followers::{Load, assert_law, following};
use crate::support::{WEIR, Weir, hop};
use ledger::{HopKind, Reason};
use serde_json::Value;
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use testkit::{Peer, TempDir, find_tool, free_port, need_tool, run, signal, wait_for};

const FOLLOW: &str = "weir.v1.Records/Follow";
const WATCH: &str = "weir.v1.Ledger/Watch";
/// What grpcurl adds to the number of a status for its exit code.
const EXIT_BASE: i32 = 64;
const INVALID_ARGUMENT: i32 = 3;
const UNIMPLEMENTED: i32 = 12;
const UNAVAILABLE: i32 = 14;

/// A daemon with gRPC that records the connections of a load ten times a second, into a file as well.
struct Daemon {
    dir: TempDir,
    weir: Weir,
    grpc: String,
}

impl Daemon {
    fn start(load: &Load, sockets: &str) -> Daemon {
        let dir = TempDir::new();
        let grpc = format!("127.0.0.1:{}", free_port());
        let text = format!(
            "[daemon]\ndrain_grace = \"10s\"\n[admin]\ngrpc = \"{grpc}\"\n\
             [sockets]\ninterval = \"100ms\"\nnamespaces = \"own\"\nskip_unchanged = false\n\
             filter = \"sport = :{0} or dport = :{0}\"\n{sockets}\n\
             [[sink]]\nname = \"disk\"\nfrom = [\"sockets\"]\nto = \"file:{1}\"\nformat = \"protojson\"\n\
             queue_size = \"1GiB\"\n",
            load.port,
            dir.text("disk.jsonl"),
        );
        fs::write(dir.file("weir.toml"), text).unwrap();
        let weir = Weir::run(&dir.file("weir.toml"));
        Daemon { dir, weir, grpc }
    }

    /// Begins a call whose answer goes to a file.
    fn call(&self, name: &str, method: &str, request: &str) -> Call {
        let path = self.dir.file(name);
        let mut command = grpcurl(&["-plaintext", "-d", request, &self.grpc, method]);
        command.stdout(File::create(&path).unwrap()).stderr(Stdio::piped());
        Call { process: Peer::start(&mut command), path }
    }
}

fn grpcurl(args: &[&str]) -> Command {
    let mut command = Command::new(find_tool("grpcurl").unwrap());
    command.args(args);
    command
}

fn output(args: &[&str]) -> Output {
    grpcurl(args).output().unwrap()
}

struct Call {
    process: Peer,
    path: PathBuf,
}

impl Call {
    fn wait_for_messages(&self) {
        let what = || format!("messages in {}", self.path.display());
        wait_for(what, || (fs::metadata(&self.path).unwrap().len() > 0).then_some(()));
    }

    /// Waits for its end, by this status.
    fn finish(self, status: i32) -> Stream {
        let Call { mut process, path } = self;
        let what = || format!("the end of {}", path.display());
        let ended = wait_for(what, || process.0.try_wait().unwrap());
        let mut said = String::new();
        std::io::Read::read_to_string(&mut process.0.stderr.take().unwrap(), &mut said).unwrap();
        let expected = if status == 0 { 0 } else { EXIT_BASE + status };
        assert_eq!(ended.code(), Some(expected), "{said}");
        Stream { said, ..Stream::read(&fs::read_to_string(path).unwrap()) }
    }
}

#[derive(Debug, Default)]
struct Stream {
    sockets: Vec<Value>,
    others: u64,
    lost: u64,
    ended: Value,
    said: String,
}

fn count(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

impl Stream {
    fn read(text: &str) -> Stream {
        let mut stream = Stream::default();
        for message in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
            let message = message.unwrap();
            assert!(stream.ended.is_null(), "nothing follows the last message: {message}");
            for (row, value) in message.as_object().unwrap() {
                match row.as_str() {
                    "socket" => stream.sockets.push(value.clone()),
                    "lost" => stream.lost += count(&value["dropped"]["queue_full"]),
                    "ended" => stream.ended = value.clone(),
                    _ => stream.others += 1,
                }
            }
        }
        stream
    }

    /// The law in the last message: all that was received has a fate, and what was delivered has arrived.
    fn check(&self, why: &str) {
        let ended = &self.ended;
        assert_eq!(ended["why"], why, "{ended}");
        let dropped = ended["dropped"].as_object().map_or(0, |all| all.values().map(count).sum());
        assert_eq!(count(&ended["received"]), count(&ended["delivered"]) + dropped, "{ended}");
        assert_eq!(count(&ended["uncertain"]), 0, "{ended}");
        assert_eq!(count(&ended["delivered"]), self.sockets.len() as u64 + self.others, "{ended}");
        assert_eq!(count(&ended["dropped"]["queue_full"]), self.lost, "{ended}");
    }
}

#[test]
fn grpcurl_needs_no_files_and_has_the_same_records_as_a_file() {
    if !need_tool("grpcurl") {
        return;
    }
    let load = Load::new(50);
    let daemon = Daemon::start(&load, "tags = { site = '<\"\u{202e}>' }");
    let grpc = daemon.grpc.as_str();
    let listed = run(&mut grpcurl(&["-plaintext", grpc, "list"]));
    assert_eq!(
        listed.split_whitespace().collect::<Vec<_>>(),
        ["weir.v1.Ledger", "weir.v1.Records"]
    );
    let described = run(&mut grpcurl(&["-plaintext", grpc, "describe", "weir.v1.SocketRecord"]));
    assert!(described.contains("rtt_us"), "{described}");
    let unknown = output(&["-plaintext", grpc, "describe", "weir.v1.Nothing"]);
    assert!(!unknown.status.success());

    let for_a_time = daemon.call("time", FOLLOW, "{\"from\": [\"sockets\"], \"for\": \"2s\"}");
    let limited = daemon.call("limit", FOLLOW, "{\"limit\": 777}");
    let filter =
        format!("{{\"limit\": 120, \"filter\": \"sport = :{} and rtt >= 0us\"}}", load.port);
    let filtered = daemon.call("filter", FOLLOW, &filter).finish(0);
    let streams = [for_a_time.finish(0), limited.finish(0)];
    streams[0].check("time");
    streams[1].check("limit");
    filtered.check("limit");
    assert!(streams[0].sockets.len() > 200 && streams[0].others > 2, "{:?}", streams[0].ended);
    assert_eq!(
        (streams[1].sockets.len() as u64 + streams[1].others, filtered.sockets.len()),
        (777, 120)
    );
    assert!(count(&filtered.ended["dropped"]["filtered"]) > 0, "{}", filtered.ended);

    let ended = daemon.weir.stop();
    assert_law(&ended);
    let text = fs::read_to_string(daemon.dir.file("disk.jsonl")).unwrap();
    let on_disk: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let on_disk: Vec<_> = on_disk.iter().filter(|record| record["totals"].is_null()).collect();
    for stream in &streams {
        // The file's records, each once, in their order, from the first to the last.
        let first = on_disk.iter().position(|record| **record == stream.sockets[0]);
        let same = &on_disk[first.expect("the first record")..][..stream.sockets.len()];
        assert!(stream.sockets.iter().eq(same.iter().copied()), "{} records", same.len());
        assert_eq!(stream.lost, 0);
    }
    assert!(filtered.sockets.iter().all(|record| record["srcPort"] == load.port));
}

#[test]
fn a_client_that_stops_reading_loses_what_is_counted_and_others_nothing() {
    if !need_tool("grpcurl") {
        return;
    }
    // Long records, so that its queue is full soon.
    let load = Load::new(50);
    let long = "x".repeat(200);
    let tags: Vec<_> = (0..16).map(|at| format!("t{at} = '{long}'")).collect();
    let daemon = Daemon::start(&load, &format!("tags = {{ {} }}", tags.join(", ")));
    let paused = daemon.call("paused", FOLLOW, "{\"limit\": 8000}");
    paused.wait_for_messages();
    signal(&paused.process.0, "STOP");
    let loses = |hop: &&ledger::HopSnapshot| !hop.dropped_for(Reason::QueueFull).is_zero();
    daemon.weir.wait_for(|ledger| following(ledger).iter().any(loses));
    signal(&paused.process.0, "CONT");

    let stream = paused.finish(0);
    stream.check("limit");
    assert!(stream.lost > 0, "{}", stream.ended);
    let ended = daemon.weir.stop();
    assert_law(&ended);
    let hop = hop(&ended.ledger, HopKind::Sink, "follower 1");
    assert_eq!(hop.dropped_for(Reason::QueueFull).count, stream.lost, "{}", ended.said);
    assert_eq!(hop.delivered.count, 8_000, "{}", ended.said);
}

#[test]
fn four_may_follow_and_streams_end_with_a_status() {
    if !need_tool("grpcurl") {
        return;
    }
    let load = Load::new(5);
    let daemon = Daemon::start(&load, "");
    let mut four: Vec<_> = (0..4).map(|at| daemon.call(&format!("f{at}"), FOLLOW, "{}")).collect();
    four.iter().for_each(Call::wait_for_messages);
    let fifth = daemon.call("fifth", FOLLOW, "{}").finish(UNAVAILABLE);
    assert!(fifth.said.contains("4 clients follow records already"), "{}", fifth.said);
    // Those that follow are not among the connections of which the oldest is closed.
    let crowd: Vec<_> = (0..40).map(|_| TcpStream::connect(&daemon.grpc).unwrap()).collect();
    let listed = run(&mut grpcurl(&["-plaintext", &daemon.grpc, "list"]));
    assert!(listed.contains("weir.v1.Records"), "{listed}");
    drop(crowd);

    signal(&four[0].process.0, "KILL");
    daemon.weir.wait_for(|ledger| following(ledger).len() == 3);
    daemon.call("next", FOLLOW, "{\"limit\": 3}").finish(0).check("limit");
    for (request, words) in [
        ("{\"from\": [\"flows\"]}", "the configuration has no [flows]"),
        ("{\"filter\": \"sprot = 1\"}", "filter: `sprot`"),
        ("{\"for\": \"x\"}", "for: "),
    ] {
        let refused = daemon.call("refused", FOLLOW, request).finish(INVALID_ARGUMENT);
        assert!(refused.said.contains(words), "{}", refused.said);
    }

    // A reload ends the others, and so does the end, which ends those that watch as well.
    let watcher = daemon.call("watcher", WATCH, "{\"interval_ms\": 100}");
    signal(daemon.weir.process(), "HUP");
    for reloaded in four.drain(1..) {
        let stream = reloaded.finish(UNAVAILABLE);
        stream.check("reload");
        assert!(stream.said.contains("the stream ended: reload"), "{}", stream.said);
    }
    let last = daemon.call("last", FOLLOW, "{}");
    last.wait_for_messages();
    let ended = daemon.weir.stop();
    last.finish(UNAVAILABLE).check("stop");
    let Call { process: mut watching, .. } = watcher;
    let what = "the end of the watcher";
    let code = wait_for(what, || watching.0.try_wait().unwrap()).code();
    assert_eq!(code, Some(EXIT_BASE + UNAVAILABLE));
    assert_law(&ended);
}

#[test]
fn the_ledger_is_watched_with_the_counts_of_the_page() {
    if !need_tool("grpcurl") {
        return;
    }
    let dir = TempDir::new();
    let grpc = format!("127.0.0.1:{}", free_port());
    let text = format!(
        "[admin]\ngrpc = \"{grpc}\"\n[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n\
         [[listener.target]]\nname = \"out\"\nto = \"null:\"\n"
    );
    fs::write(dir.file("weir.toml"), text).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    let sent = crate::support::generate(&["--to", weir.listen(), "--count", "1000"]).all();
    let page = weir.wait_for(|ledger| hop(ledger, HopKind::Target, "out").delivered.count == sent);

    let answer =
        output(&["-plaintext", "-max-time", "2", "-d", "{\"interval_ms\": 100}", &grpc, WATCH]);
    let text = String::from_utf8(answer.stdout).unwrap();
    let snapshots = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let snapshots: Vec<_> = snapshots.map(Result::unwrap).collect();
    assert!((5..=20).contains(&snapshots.len()), "{} snapshots in 2 s", snapshots.len());
    for snapshot in &snapshots {
        assert_eq!(snapshot["runId"], page.run_id);
        let hops = snapshot["hops"].as_array().unwrap();
        assert_eq!(hops.len(), page.hops.len(), "{snapshot}");
        for (hop, of_page) in hops.iter().zip(&page.hops) {
            assert_eq!(hop["hop"], of_page.hop.label());
            assert_eq!(hop["origin"], of_page.origin);
            assert_eq!(hop["target"].as_str(), of_page.target.as_deref());
            assert_eq!(count(&hop["received"]["count"]), of_page.received.count);
            assert_eq!(count(&hop["delivered"]["bytes"]), of_page.delivered.bytes);
        }
    }
    let too_often = output(&["-plaintext", "-d", "{\"interval_ms\": 99}", &grpc, WATCH]);
    assert_eq!(too_often.status.code(), Some(EXIT_BASE + INVALID_ARGUMENT));
    // Followers need records, and there are none here.
    let follow = output(&["-plaintext", &grpc, FOLLOW]);
    assert_eq!(follow.status.code(), Some(EXIT_BASE + INVALID_ARGUMENT));
    let unknown = output(&[
        "-plaintext",
        "-import-path",
        "tests/weir",
        "-proto",
        "grpc/other.proto",
        &grpc,
        "weir.v1.Config/Set",
    ]);
    assert_eq!(unknown.status.code(), Some(EXIT_BASE + UNIMPLEMENTED), "{unknown:?}");
    assert_eq!(weir.stop().code, Some(0));
}

#[cfg(feature = "tls")]
#[test]
fn the_token_and_tls_are_those_of_the_admin_server() {
    use testkit::servers::{Certificate, Certificates};
    const UNAUTHENTICATED: i32 = 16;
    if !need_tool("grpcurl") {
        return;
    }
    let dir = TempDir::new();
    let Some(certificates) = Certificates::make(dir.path()) else { return };
    let token = "a-token-of-a-test-and-no-other";
    fs::write(dir.file("token"), format!("{token}\n")).unwrap();
    let grpc = format!("127.0.0.1:{}", free_port());
    let text = format!(
        "[admin]\nlisten = '127.0.0.1:0'\ngrpc = '{grpc}'\ntoken_file = '{}'\ntls_cert = '{}'\ntls_key = '{}'\n\
         [[listener]]\nlisten = '127.0.0.1:0'\n[[listener.target]]\nto = 'null:'\n",
        dir.text("token"),
        certificates.certificate(Certificate::Valid),
        certificates.key(Certificate::Valid),
    );
    fs::write(dir.file("weir.toml"), text).unwrap();
    let mut command = Command::new(WEIR);
    command.args(["run", "-c"]).arg(dir.file("weir.toml"));
    let mut weir = testkit::Process::start(command);
    weir.hear("ledger and metrics on https://");

    let ca = certificates.ca();
    let call = |header: &str, args: &[&str]| {
        let authorization = format!("Authorization: {header}");
        output(&[&["-cacert", &ca, "-max-time", "20", "-H", &authorization, &grpc], args].concat())
    };
    let known = call(&format!("Bearer {token}"), &["list"]);
    assert!(known.status.success(), "{known:?}");
    for wrong in ["Bearer a-token-of-a-test-and-no-othe", "Bearer x", "Basic eDp4"] {
        // With the files at hand, so that it is the call that is refused.
        let protos = testkit::root().join("proto");
        let refused = output(&[
            "-cacert",
            &ca,
            "-H",
            &format!("Authorization: {wrong}"),
            "-import-path",
            &protos.display().to_string(),
            "-proto",
            "weir_grpc.proto",
            &grpc,
            WATCH,
        ]);
        assert_eq!(refused.status.code(), Some(EXIT_BASE + UNAUTHENTICATED), "{refused:?}");
        assert!(!call(wrong, &["list"]).status.success());
    }
    let plain = output(&["-plaintext", "-connect-timeout", "2", &grpc, "list"]);
    assert!(!plain.status.success(), "{plain:?}");
    weir.signal("TERM");
    let (status, said) = weir.finish();
    assert!(status.success(), "{said}");
}

#[test]
fn an_address_that_others_reach_needs_the_token_and_tls() {
    let dir = TempDir::new();
    let refused = |grpc: &str, words: &str| {
        let text = format!(
            "[admin]\ngrpc = '{grpc}'\n[[listener]]\nlisten = '127.0.0.1:0'\n[[listener.target]]\nto = 'null:'\n"
        );
        fs::write(dir.file("weir.toml"), text).unwrap();
        let mut check = Command::new(WEIR);
        let answer = check.args(["config", "check"]).arg(dir.file("weir.toml")).output().unwrap();
        let said =
            [answer.stdout, answer.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert_eq!(answer.status.code(), Some(1), "{said}");
        assert!(said.contains("weir.toml:2: admin.grpc: ") && said.contains(words), "{said}");
        assert!(said.contains("Fix: "), "{said}");
    };
    refused("0.0.0.0:9092", "only over TLS to who has the token");
    refused("127.0.0.1:9464", "is the address of listen");
    refused("9092", "not an IP address and port");
}

/// What protoc makes of the files is what reflection serves.
#[test]
fn the_descriptors_are_generated() {
    if !testkit::need_python_module("grpc_tools") {
        return;
    }
    let (root, dir) = (testkit::root(), TempDir::new());
    run(Command::new(find_tool("weir-python").unwrap())
        .args(["-m", "grpc_tools.protoc", "--include_imports", "weir_grpc.proto"])
        .arg(format!("-I{}", root.join("proto").display()))
        .arg(format!("--descriptor_set_out={}", dir.text("descriptors"))));
    let made = fs::read(dir.file("descriptors")).unwrap();
    let committed = root.join("crates/admin/src/grpc/descriptors.bin");
    if std::env::var_os("UPDATE_GENERATED").is_some_and(|value| value == "1") {
        fs::write(&committed, &made).unwrap();
    }
    assert!(
        made == fs::read(&committed).unwrap(),
        "descriptors.bin is stale, `make generated` writes it"
    );
}
