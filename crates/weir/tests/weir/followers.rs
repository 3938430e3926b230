//! `GET /records?follow` of a real daemon under load, by curl: a client that reads has what a file has, one that does not loses
//! what is counted, and neither costs anybody else a record.

use crate::support::{Ended, Weir, hop};
use ledger::{Gauge, HopKind, HopSnapshot, Reason, Snapshot};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Peer, TempDir, need_tool, run, signal, wait_for};

/// Established connections on loopback, both ends.
pub(crate) struct Load {
    _ends: Vec<(TcpStream, TcpStream)>,
    pub(crate) port: u16,
}

impl Load {
    pub(crate) fn new(connections: usize) -> Load {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let connect = |_| (TcpStream::connect(addr).unwrap(), listener.accept().unwrap().0);
        Load { _ends: (0..connections).map(connect).collect(), port: addr.port() }
    }
}

/// A configuration that records these connections ten times a second, with more keys under `[admin]` and `[sockets]`.
fn write(dir: &TempDir, load: &Load, admin: &str, sockets: &str) -> PathBuf {
    let text = format!(
        "[daemon]\ndrain_grace = \"10s\"\n[admin]\n{admin}\n\
         [sockets]\ninterval = \"100ms\"\nnamespaces = \"own\"\nskip_unchanged = false\n\
         filter = \"sport = :{0} or dport = :{0}\"\n{sockets}\n\
         [[sink]]\nname = \"disk\"\nfrom = [\"sockets\"]\nto = \"file:{1}\"\n",
        load.port,
        dir.text("disk.jsonl"),
    );
    let path = dir.file("weir.toml");
    fs::write(&path, text).unwrap();
    path
}

/// curl, which writes what it reads to a file.
struct Follower {
    curl: Peer,
    path: PathBuf,
}

impl Follower {
    fn start(dir: &TempDir, name: &str, url: &str, more: &[&str]) -> Follower {
        let path = dir.file(name);
        let mut command = Command::new("curl");
        command.args(["--silent", "--no-buffer", "--globoff", "--output"]).arg(&path);
        Follower { curl: Peer::start(command.args(more).arg(url)), path }
    }

    fn lines(&self) -> Vec<String> {
        whole_lines(&self.path)
    }

    /// Waits until it has lines.
    fn wait_for_lines(&self) {
        let what = || format!("lines in {}", self.path.display());
        wait_for(what, || (!self.lines().is_empty()).then_some(()));
    }

    /// Waits for the end of the stream: its records, what it says was lost, and its last line.
    fn finish(self) -> Stream {
        let Follower { mut curl, path } = self;
        let what = || format!("the end of {}: {:?}", path.display(), whole_lines(&path).last());
        let status = wait_for(what, || curl.0.try_wait().unwrap());
        assert!(status.success(), "curl: {status}");
        let mut stream = Stream::default();
        for line in whole_lines(&path) {
            let json: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            match &json["follower"] {
                Value::Null => stream.records.push(line),
                about => {
                    assert!(stream.last.is_null(), "nothing follows the last line: {line}");
                    stream.lost += about["lost"]["queue_full"].as_u64().unwrap_or_default();
                    if about["ended"].is_string() {
                        stream.last = about.clone();
                    }
                }
            }
        }
        stream
    }
}

fn whole_lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}

#[derive(Debug, Default)]
struct Stream {
    records: Vec<String>,
    lost: u64,
    last: Value,
}

impl Stream {
    /// The law in the last line: all that was received has a fate, and what was delivered has arrived.
    fn check(&self, ended: &str) {
        let last = &self.last;
        assert_eq!(last["ended"], ended, "{last}");
        let count = |value: &Value| value.as_u64().unwrap();
        let dropped: u64 = last["dropped"].as_object().unwrap().values().map(count).sum();
        assert_eq!(count(&last["received"]), count(&last["delivered"]) + dropped, "{last}");
        assert_eq!(last["uncertain"], 0, "{last}");
        assert_eq!(count(&last["delivered"]), self.records.len() as u64, "{last}");
        assert_eq!(last["dropped"]["queue_full"].as_u64().unwrap_or_default(), self.lost, "{last}");
    }
}

/// The followers in a ledger that still follow.
pub(crate) fn following(ledger: &Snapshot) -> Vec<&HopSnapshot> {
    let is_live = |hop: &&HopSnapshot| {
        let is_follower = hop.target.as_deref().is_some_and(|name| name.starts_with("follower "));
        is_follower && hop.gauges.contains_key(&Gauge::Up)
    };
    ledger.hops.iter().filter(is_live).collect()
}

/// Every follower's account is closed, the law held at every moment, and the file lost nothing.
pub(crate) fn assert_law(ended: &Ended) {
    assert_eq!((ended.code, ended.ledger.violations), (Some(0), 0), "{}", ended.said);
    let sinks = ended.ledger.hops.iter().filter(|hop| hop.hop == HopKind::Sink);
    for sink in sinks {
        assert_eq!((sink.in_flight.count, sink.unaccounted), (0, 0), "{}", ended.said);
        let left = sink.undelivered().map(|(_, amount)| amount.count).sum::<u64>();
        assert_eq!(sink.received.count, sink.delivered.count + left, "{}", ended.said);
    }
    let disk = hop(&ended.ledger, HopKind::Sink, "disk");
    assert_eq!(disk.delivered, disk.received, "{}", ended.said);
}

#[test]
fn a_client_that_reads_has_the_same_records_as_a_file() {
    if !need_tool("curl") {
        return;
    }
    let (dir, load) = (TempDir::new(), Load::new(50));
    let tags = "tags = { site = '<img src=x onerror=\"a\">\\', other = '\u{2028}\u{202e}{\"follower\":{}}' }";
    let weir = Weir::run(&write(&dir, &load, "", tags));
    let url = format!("{}/records?follow&from=sockets", weir.url());
    let for_a_time = Follower::start(&dir, "time", &format!("{url}&for=2s"), &[]);
    let limited = Follower::start(&dir, "limit", &format!("{url}&limit=777"), &[]);
    // More than two polls have, so that what does not pass comes between.
    let filtered = format!("{url}&limit=120&filter=sport+=+:{}+and+rtt+%3E=+0us", load.port);
    let filtered = Follower::start(&dir, "filter", &filtered, &[]);

    let streams = [for_a_time.finish(), limited.finish(), filtered.finish()];
    streams[0].check("time");
    streams[1].check("limit");
    streams[2].check("limit");
    assert_eq!((streams[1].records.len(), streams[2].records.len()), (777, 120));
    assert!(streams[2].last["dropped"]["filtered"].as_u64().is_some(), "{}", streams[2].last);

    let ended = weir.stop();
    assert_law(&ended);
    let on_disk = whole_lines(&dir.file("disk.jsonl"));
    for stream in &streams[..2] {
        // The file's lines, each once, in their order, from the first to the last.
        let first = on_disk.iter().position(|line| *line == stream.records[0]);
        let same = &on_disk[first.expect("the first record")..][..stream.records.len()];
        assert!(stream.records == same, "{} records", same.len());
        assert_eq!(stream.lost, 0);
    }
    let on_disk: BTreeSet<_> = on_disk.iter().collect();
    for line in &streams[2].records {
        assert!(on_disk.contains(line), "{line}");
        let record: Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["src_port"], load.port, "{line}");
        assert_eq!(record["tags"]["site"], "<img src=x onerror=\"a\">\\");
    }
}

#[test]
fn a_client_that_stops_reading_loses_what_is_counted_and_others_nothing() {
    if !need_tool("curl") {
        return;
    }
    // Long records, so that its queue is full soon.
    let (dir, load) = (TempDir::new(), Load::new(50));
    let long = "x".repeat(200);
    let tags: Vec<_> = (0..16).map(|at| format!("t{at} = '{long}'")).collect();
    let config = write(&dir, &load, "", &format!("tags = {{ {} }}", tags.join(", ")));
    // So that the file misses nothing on a busy machine.
    let text = fs::read_to_string(&config).unwrap() + "queue_size = \"1GiB\"\n";
    fs::write(&config, text).unwrap();
    let weir = Weir::run(&config);
    let url = format!("{}/records?follow&limit=6000", weir.url());
    let paused = Follower::start(&dir, "paused", &url, &[]);
    paused.wait_for_lines();
    signal(&paused.curl.0, "STOP");
    let loses = |hop: &&HopSnapshot| !hop.dropped_for(Reason::QueueFull).is_zero();
    weir.wait_for(|ledger| following(ledger).iter().any(loses));
    signal(&paused.curl.0, "CONT");

    let stream = paused.finish();
    stream.check("limit");
    assert_eq!(stream.records.len(), 6_000);
    assert!(stream.lost > 0, "{}", stream.last);
    // What is missing between its records is what was lost.
    let numbers = stream.records.iter().filter_map(|line| {
        let record: Value = serde_json::from_str(line).unwrap();
        record["sequence"].as_u64()
    });
    let numbers: Vec<_> = numbers.collect();
    let missing = numbers.last().unwrap() - numbers[0] + 1 - numbers.len() as u64;
    assert!(0 < missing && missing <= stream.lost, "{missing} of {}", stream.lost);

    let ended = weir.stop();
    assert_law(&ended);
    let hop = hop(&ended.ledger, HopKind::Sink, "follower 1");
    assert_eq!(hop.dropped_for(Reason::QueueFull).count, stream.lost, "{}", ended.said);
    assert_eq!(hop.delivered.count, 6_000, "{}", ended.said);
}

#[test]
fn four_may_follow_and_one_that_is_killed_makes_room() {
    if !need_tool("curl") {
        return;
    }
    let (dir, load) = (TempDir::new(), Load::new(5));
    let config = write(&dir, &load, "", "");
    let weir = Weir::run(&config);
    let url = format!("{}/records?follow", weir.url());
    let mut four: Vec<_> =
        (0..4).map(|at| Follower::start(&dir, &format!("f{at}"), &url, &[])).collect();
    four.iter().for_each(Follower::wait_for_lines);

    let fifth = run(Command::new("curl").args(["--silent", "--include", &url]));
    assert!(fifth.starts_with("HTTP/1.1 503 ") && fifth.contains("retry-after: 1"), "{fifth}");
    assert!(fifth.contains("4 clients follow records already"), "{fifth}");
    // They are not among the 64 connections of which the oldest is closed.
    let crowd: Vec<_> = (0..70).map(|_| TcpStream::connect(weir.admin).unwrap()).collect();
    wait_for("an answer in the crowd", || {
        weir.page("/metrics", "*/*").contains("weir_").then_some(())
    });
    drop(crowd);

    signal(&four[0].curl.0, "KILL");
    weir.wait_for(|ledger| following(ledger).len() == 3);
    let next = Follower::start(&dir, "next", &format!("{url}&limit=3"), &[]);
    let stream = next.finish();
    stream.check("limit");

    // A reload ends the others, and so does the end.
    signal(weir.process(), "HUP");
    for reloaded in four.drain(1..) {
        reloaded.finish().check("reload");
    }
    let last = Follower::start(&dir, "last", &url, &[]);
    last.wait_for_lines();
    let ended = weir.stop();
    last.finish().check("stop");
    assert_law(&ended);
}

#[test]
fn a_client_that_has_all_places_gives_one_to_the_next_whether_it_reads_or_not() {
    if !need_tool("curl") {
        return;
    }
    let (dir, load) = (TempDir::new(), Load::new(5));
    let socket = dir.text("admin.sock");
    let config = write(&dir, &load, &format!("socket = \"{socket}\""), "");
    let weir = Weir::run(&config);
    let url = format!("{}/records?follow", weir.url());
    let mut four: Vec<_> =
        (0..4).map(|at| Follower::start(&dir, &format!("f{at}"), &url, &[])).collect();
    four.iter().for_each(Follower::wait_for_lines);

    // To the server all of 127.0.0.1 is one client, and this user of the unix socket is another.
    let local = ["--unix-socket", socket.as_str()];
    let other = "http://localhost/records?follow&limit=3";
    Follower::start(&dir, "other", other, &local).finish().check("limit");
    let ended = wait_for("the end of one", || {
        four.iter_mut().position(|one| one.curl.0.try_wait().unwrap().is_some())
    });
    four.remove(ended).finish().check("given");

    // The place is free again, and is taken. Now nobody reads.
    let again = Follower::start(&dir, "again", &url, &[]);
    again.wait_for_lines();
    four.push(again);
    four.iter().for_each(|one| signal(&one.curl.0, "STOP"));
    Follower::start(&dir, "another", other, &local).finish().check("limit");
    weir.wait_for(|ledger| following(ledger).len() == 3);

    four.iter().for_each(|one| signal(&one.curl.0, "CONT"));
    let ended = weir.stop();
    assert_law(&ended);
}

#[test]
fn who_may_not_see_sockets_may_not_follow_them() {
    if !need_tool("curl") {
        return;
    }
    let (dir, load) = (TempDir::new(), Load::new(5));
    let socket = dir.text("admin.sock");
    let config = write(&dir, &load, &format!("socket = \"{socket}\""), "");
    let text = fs::read_to_string(&config).unwrap();
    let weir = Weir::run(&config);
    let url = format!("{}/records?follow&limit=2", weir.url());
    let status = |args: &[&str]| {
        let command = ["--silent", "--globoff", "--write-out", "%{http_code} %{content_type}"];
        let mut curl = Command::new("curl");
        let curl = curl.args(command).args(["--output", &dir.text("answer")]).args(args);
        // A reload that takes the right away ends an answer that has begun, which to curl is an error.
        String::from_utf8(curl.output().unwrap().stdout).unwrap()
    };

    assert_eq!(status(&[&url]), "200 application/x-ndjson");
    assert_eq!(status(&["--head", &url]), "200 application/x-ndjson");
    assert!(status(&["--request", "POST", &url]).starts_with("405 "));
    assert!(status(&["--header", "Host: evil.example", &url]).starts_with("403 "));
    assert!(status(&["--header", "Origin: http://evil.example", &url]).starts_with("403 "));
    assert!(status(&[&format!("{}/records", weir.url())]).starts_with("400 "));
    assert!(status(&[&format!("{url}&from=flows")]).starts_with("400 "));

    // Sockets of other namespaces: for known users of the unix socket.
    fs::write(&config, text.replace("namespaces = \"own\"", "namespaces = \"all\"")).unwrap();
    signal(weir.process(), "HUP");
    wait_for("the refusal", || status(&[&url]).starts_with("403 ").then_some(()));
    assert!(status(&[&format!("{url}&from=%73ockets")]).starts_with("403 "));
    let local = ["--unix-socket", &socket, "http://localhost/records?follow&limit=2"];
    assert_eq!(status(&local), "200 application/x-ndjson");
    assert_eq!(whole_lines(&dir.file("answer")).len(), 3);

    let ended = weir.stop();
    assert_law(&ended);
}

#[test]
fn flows_and_events_are_followed_where_no_sink_takes_them() {
    if !need_tool("curl") {
        return;
    }
    let dir = TempDir::new();
    let text = "[[listener]]\nname = \"sflow\"\nlisten = \"127.0.0.1:0\"\n[flows]\nfrom = [\"sflow\"]\nexport_every = \"1s\"\n\
                [[flow]]\nname = \"sources\"\nkeys = [\"src\"]\nsmoothing = \"1s\"\n\
                [[threshold]]\nname = \"heavy\"\nflow = \"sources\"\nlimit = \"3Gbit/s\"\n";
    fs::write(dir.file("weir.toml"), text).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    let url = format!("{}/records?follow", weir.url());
    let flows = Follower::start(&dir, "flows", &format!("{url}&from=flows&limit=5"), &[]);
    let events = Follower::start(&dir, "events", &format!("{url}&from=events&limit=1"), &[]);
    weir.wait_for(|ledger| following(ledger).len() == 2);

    let args = ["--traffic", "10Gbit", "--duration", "3s", "--agents", "1"];
    run(Command::new(crate::support::WEIR)
        .args(["gen", "sflow", "--to", weir.listen()])
        .args(args));
    let (flows, events) = (flows.finish(), events.finish());
    flows.check("limit");
    events.check("limit");
    let kind = |line: &String| serde_json::from_str::<Value>(line).unwrap()["record_kind"].clone();
    assert_eq!(kind(&events.records[0]), "datagram", "{events:?}");
    assert!(flows.records.iter().any(|line| kind(line) == "flow"), "{flows:?}");
    assert_eq!(weir.stop().code, Some(0));
}

#[cfg(feature = "tls")]
#[test]
fn records_are_followed_over_tls_with_the_token() {
    use testkit::servers::{Certificate, Certificates};
    if !need_tool("curl") {
        return;
    }
    let (dir, load) = (TempDir::new(), Load::new(5));
    let Some(certificates) = Certificates::make(dir.path()) else { return };
    let token = "a-token-of-a-test-and-no-other";
    fs::write(dir.file("token"), format!("{token}\n")).unwrap();
    let admin = format!(
        "listen = '127.0.0.1:0'\ntoken_file = '{}'\ntls_cert = '{}'\ntls_key = '{}'",
        dir.text("token"),
        certificates.certificate(Certificate::Valid),
        certificates.key(Certificate::Valid),
    );
    let config = write(&dir, &load, &admin, "");
    let mut command = Command::new(crate::support::WEIR);
    let mut weir = testkit::Process::start({
        command.args(["run", "-c"]).arg(config);
        command
    });
    let address = weir.hear("ledger and metrics on https://").remove(0);
    let url = format!("https://{address}/records?follow&limit=500");
    let ca = certificates.ca();
    let authorization = format!("Authorization: Bearer {token}");
    let with_token = ["--cacert", &ca, "--header", &authorization];
    let stream = Follower::start(&dir, "tls", &url, &with_token).finish();
    stream.check("limit");
    assert_eq!(stream.records.len(), 500);
    let refused = run(Command::new("curl").args(["--silent", "--include", "--cacert", &ca, &url]));
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    weir.signal("TERM");
    let (status, said) = weir.finish();
    assert!(status.success(), "{said}");
}
