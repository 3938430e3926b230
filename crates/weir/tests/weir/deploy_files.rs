//! What stands in `deploy` fits together, and is understood by those that it is for: the topics by Kafka.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use testkit::servers::Server;
use testkit::{TempDir, find_tool, root, run};

#[test]
fn the_tables_of_the_dashboard_are_the_queries() {
    let text = fs::read_to_string(root().join("deploy/grafana/sockets.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut compared = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        let Some(file) = panel["description"].as_str() else { continue };
        let query = fs::read_to_string(root().join(file)).unwrap();
        let lines: Vec<&str> = query.lines().filter(|line| !line.starts_with("--")).collect();
        let mut query = lines.join("\n").trim().trim_end_matches(';').to_owned();
        // Grafana's own choice of a time takes the place of the last hour.
        for column in ["time", "minute"] {
            let hour = format!("{column} >= now() - INTERVAL 1 HOUR");
            query = query.replace(&hour, &format!("$__timeFilter({column})"));
        }
        assert_eq!(panel["targets"][0]["rawSql"], query, "{file}");
        compared += 1;
    }
    assert!(compared >= 10, "{compared}");
}

#[test]
fn a_broker_takes_the_settings_of_the_topics() {
    let Some(mut broker) = Server::Kafka.start() else { return };
    let dir = TempDir::new();
    let python = find_tool("weir-python").unwrap();
    let script = root().join("crates/weir/tests/weir/deploy_files/kafka_topics.py");
    let program = format!("#!/bin/sh\nexec '{}' '{}' \"$@\"\n", python.display(), script.display());
    fs::write(dir.file("kafka-topics.sh"), program).unwrap();
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(dir.file("kafka-topics.sh"), mode).unwrap();

    let mut topics = Command::new("sh");
    topics.arg(root().join("deploy/kafka/topics.sh")).args([&broker.addr().to_string(), "1"]);
    let made = run(topics.env("KAFKA_TOPICS", dir.file("kafka-topics.sh")));
    broker.kill();
    let made: Vec<Value> = made.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = made.iter().map(|topic| topic["topic"].as_str().unwrap()).collect();
    assert_eq!(names, ["weir.sockets", "weir.polls", "weir.datagrams", "weir.flows"]);
    assert!(made.iter().all(|topic| topic["config"]["compression.type"] == "producer"));
}
