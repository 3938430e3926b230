//! `weir sink check`: one test record, step by step, without a daemon.

use crate::support::WEIR;
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Output};
use testkit::servers::{Certificate, Server, unique};
use testkit::{TempDir, free_port};

fn write(dir: &TempDir, sinks: &str) {
    fs::write(dir.file("weir.toml"), format!("[sockets]\n{sinks}")).unwrap();
}

fn sink(name: &str, to: &str) -> String {
    format!("[[sink]]\nname = \"{name}\"\nfrom = [\"sockets\"]\nto = \"{to}\"\n")
}

fn check(dir: &TempDir, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(WEIR);
    command.args(["sink", "check", "-c", &dir.text("weir.toml")]).args(args);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_test_record_arrives_marked_as_one() {
    let dir = TempDir::new();
    let file = sink("disk", &format!("file:{}", dir.text("out.jsonl")));
    write(&dir, &(file + "fields = [\"state\"]\n" + &sink("void", "null:")));

    let (code, out, err) = check(&dir, &["disk"]);
    assert_eq!(code, Some(0), "{out}{err}");
    for step in ["write", "prepare", "send", "read back"] {
        assert!(out.contains(step), "{out}");
    }
    let line = fs::read_to_string(dir.file("out.jsonl")).unwrap();
    let record: Value = serde_json::from_str(&line).unwrap();
    let id = record["tags"]["weir_check"].as_str().unwrap_or_else(|| panic!("{record}"));
    assert!(out.contains(id), "{out}");

    let (code, out, _) = check(&dir, &["void", "--json"]);
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &result["ok"]), (Some(0), &Value::Bool(true)), "{out}");
    assert_eq!(result["steps"].as_array().unwrap().len(), 4);
}

#[test]
fn what_is_wrong_is_said_with_what_fixes_it() {
    let dir = TempDir::new();
    write(&dir, &sink("disk", "file:/no/such/folder/out.jsonl"));
    // The only sink needs no name.
    let (code, out, _) = check(&dir, &[]);
    assert_eq!(code, Some(69), "{out}");
    assert!(out.contains("FAILED") && out.contains("/no/such/folder/out.jsonl"), "{out}");
    assert!(out.contains("  Fix: "), "{out}");

    let (code, _, err) = check(&dir, &["other"]);
    assert_eq!(code, Some(64), "{err}");
    assert!(err.contains("there is no sink \"other\". Fix: weir sink check disk"), "{err}");

    write(&dir, &sink("disk", "nowhere:/x"));
    assert_eq!(check(&dir, &[]).0, Some(78));
}

/// A sink that cannot work: its destination with its keys, words of what is said to be wrong, and of what fixes it.
type Wrong = (String, String, &'static [&'static str], &'static str);

/// Whether this build has the kind that stands before the colon.
fn is_built(to: &str) -> bool {
    const FEATURES: &[(&[&str], bool)] = &[
        (&["kafka", "kafkas"], cfg!(feature = "kafka")),
        (&["redis", "rediss"], cfg!(feature = "redis")),
        (&["nats", "jetstream", "jetstreams"], cfg!(feature = "nats")),
        (&["http", "otlp", "clickhouse"], cfg!(feature = "http")),
        (&["s3"], cfg!(feature = "s3")),
    ];
    let kind = to.split(':').next().unwrap();
    FEATURES.iter().all(|(schemes, is_built)| *is_built || !schemes.contains(&kind))
}

/// The server that all tests share, if this build has the kind of sink that goes with it.
fn shared(server: Server, scheme: &str) -> Option<SocketAddr> {
    is_built(scheme).then(|| server.shared()).flatten()
}

/// Each is refused with its address, its cause and its cure, and without the secret.
fn check_wrong(wrong: &[Wrong]) {
    let dir = TempDir::new();
    for (to, keys, words, fix) in wrong.iter().filter(|(to, ..)| is_built(to)) {
        write(&dir, &(sink("wrong", to) + keys));
        let (code, out, err) = check(&dir, &["--json"]);
        assert_eq!(code, Some(69), "{to}: {out}{err}");
        let result: Value = serde_json::from_str(&out).unwrap();
        let steps = result["steps"].as_array().unwrap();
        let failed =
            steps.iter().find(|step| step["ok"] == false).unwrap_or_else(|| panic!("{out}"));
        for word in *words {
            assert!(failed["says"].as_str().unwrap().contains(word), "{to}: {word}: {out}");
        }
        assert!(failed["fix"].as_str().unwrap().contains(fix), "{to}: {fix}: {out}");
        assert!(!out.contains("geheim") && !err.contains("geheim"), "{out}{err}");
    }
}

#[test]
fn a_host_where_nobody_listens_is_named_for_every_kind() {
    let port = free_port();
    let at = |scheme: &str, rest: &str| format!("{scheme}://127.0.0.1:{port}{rest}");
    let none = String::new;
    let refused: &[&str] = &["refused", "127.0.0.1"];
    check_wrong(&[
        (at("tcp", ""), none(), refused, "start the receiver"),
        (at("nsq", "/t"), none(), refused, "nobody listens"),
        (at("kafka", "/t"), none(), refused, "kcat -b"),
        (at("redis", "/t"), none(), refused, "start"),
        (at("nats", "/t"), none(), refused, "start the server"),
        (at("jetstream", "/t"), none(), refused, "start the server"),
        (at("http", "/in"), none(), refused, "curl"),
        (at("otlp", ""), none(), refused, "curl"),
        (at("clickhouse", "/weir"), none(), refused, "curl"),
    ]);
}

#[test]
fn what_a_server_does_not_have_is_named() {
    let none = String::new;
    let topic = unique("missing");
    let mut wrong: Vec<Wrong> = Vec::new();
    if let Some(addr) = shared(Server::Kafka, "kafka") {
        let to = format!("kafka://{addr}/{topic}");
        wrong.push((to, none(), &["nknown topic"], "kafka-topics.sh"));
    }
    if let Some(addr) = shared(Server::Nats, "nats") {
        let to = format!("jetstream://{addr}/{topic}");
        wrong.push((to, none(), &["no stream"], "nats stream add"));
    }
    if let Some(addr) = shared(Server::ClickHouse, "clickhouse") {
        let to = format!("clickhouse://{addr}/{topic}");
        wrong.push((to, none(), &["UNKNOWN_DATABASE"], "CREATE DATABASE"));
    }
    let dir = TempDir::new();
    fs::write(dir.file("secret"), "any").unwrap();
    if let Some(addr) = shared(Server::S3, "s3") {
        let keys = format!(
            "endpoint = \"http://{addr}\"\nuser = \"weir\"\npassword_file = \"{}\"\n",
            dir.text("secret")
        );
        wrong.push(("s3://no-such-bucket".to_owned(), keys, &["NoSuchBucket"], "make the bucket"));
    }
    check_wrong(&wrong);
}

#[test]
fn a_user_who_is_not_let_in_is_told() {
    let dir = TempDir::new();
    fs::write(dir.file("password"), "geheim").unwrap();
    let login =
        |user: &str| format!("user = \"{user}\"\npassword_file = \"{}\"\n", dir.text("password"));
    let mut wrong: Vec<Wrong> = Vec::new();
    let mut servers = Vec::new();
    let kinds = [
        (Server::Redis, "rediss", "/x", "password_file"),
        (Server::Nats, "jetstreams", "/x", "correct user"),
        (Server::Kafka, "kafkas", "/x", "password_file"),
    ];
    for (kind, scheme, rest, fix) in kinds {
        let server = is_built(scheme).then(|| kind.start_secured(Certificate::Valid));
        if let Some(server) = server.flatten() {
            let keys = format!("{}tls_ca = \"{}\"\n", login("weir"), server.ca().unwrap());
            wrong.push((format!("{scheme}://{}{rest}", server.addr()), keys, &["127.0.0.1"], fix));
            servers.push(server);
        }
    }
    if let Some(addr) = shared(Server::ClickHouse, "clickhouse") {
        let to = format!("clickhouse://{addr}/weir");
        wrong.push((to, login("weir"), &["AUTHENTICATION_FAILED"], "password_file"));
    }
    if let Some(addr) = shared(Server::S3, "s3") {
        let keys = format!("endpoint = \"http://{addr}\"\n{}", login("somebody"));
        wrong.push((
            "s3://no-such-bucket".to_owned(),
            keys,
            &["InvalidAccessKeyId"],
            "correct user (the id of the access key)",
        ));
    }
    check_wrong(&wrong);
}
