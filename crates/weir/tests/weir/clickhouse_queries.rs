//! The queries of `deploy/clickhouse`, asked in the real engine of what two collectors wrote about connections whose figures are
//! known: each answer is the right one.

mod scene;
mod sflow;

use scene::{CONTAINER, FAR, LATE, LOSSY, Scene};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use testkit::readback::make_kafka_topic;
use testkit::servers::{Server, unique};
use testkit::{find_tool, need_python_module, need_root_netns, need_tool, root, run};

/// The rows that a query answered.
struct Answers(Value);

impl Answers {
    #[track_caller]
    fn rows(&self, query: &str) -> &[Value] {
        self.0[query].as_array().unwrap_or_else(|| panic!("no answer to {query}"))
    }

    /// The only row that has all of these values.
    #[track_caller]
    fn row(&self, query: &str, with: &Value) -> &Value {
        let has = |row: &Value| {
            let wanted = with.as_object().unwrap();
            wanted.iter().all(|(name, value)| &row[name] == value)
        };
        let rows = self.rows(query);
        let mut found = rows.iter().filter(|row| has(row));
        match (found.next(), found.next()) {
            (Some(row), None) => row,
            _ => panic!("not one row with {with} among {rows:#?}"),
        }
    }
}

#[test]
fn the_queries_that_people_ask_first_have_right_answers() {
    if !need_python_module("chdb") || !need_root_netns() || !need_tool("ss") || !need_tool("socat")
    {
        return;
    }
    let Some(scene) = Scene::play() else { return };
    let answers = ask(&scene.files());

    volumes(&answers, &scene);
    limits(&answers, &scene);
    ends(&answers, &scene);
    hosts(&answers);
    datagrams(&answers);
    let granules = &answers.rows("granules_of_an_hour");
    assert!(granules[0].as_u64() < Some(granules[1].as_u64().unwrap() / 10), "{granules:?}");
    for (table, kept) in answers.0["kept_of_two"].as_object().unwrap() {
        assert_eq!(*kept, 1, "{table}");
    }
    // Each panel of the dashboard shows something, but for the one of losses, of which there are none.
    let panels = answers.0["panels"].as_object().unwrap();
    assert!(panels.len() > 10, "{panels:?}");
    for (title, rows) in panels {
        let is_empty = title == "What collectors did not see";
        assert_eq!(*rows == 0, is_empty, "{title}: {rows} rows");
    }
    kafka(&scene);
}

/// The answers to all queries about what is in these files.
fn ask(files: &[PathBuf]) -> Answers {
    let mut python = Command::new(find_tool("weir-clickhouse").unwrap());
    python.arg(root().join("crates/weir/tests/weir/clickhouse_queries/ask.py"));
    Answers(serde_json::from_str(&run(python.arg(root()).args(files))).unwrap())
}

/// What comes by Kafka is what is inserted directly, and what cannot be read is kept apart.
fn kafka(scene: &Scene) {
    let tables = ["sockets", "polls", "datagrams"];
    let Some((answer, mut topics)) = through_kafka(&tables, &scene.files(), &scene.files()) else {
        return;
    };
    assert_eq!(answer["through_kafka"], answer["direct"]);
    assert!(answer["direct"]["sockets"]["count"].as_u64() > Some(60), "{answer}");
    assert_eq!(answer["direct"]["datagrams"]["count"], scene::ERRORS + scene::NOTES);
    topics.sort_unstable();
    let error =
        |topic| json!({"topic": format!("{topic}-broken"), "message": "no message of Weir's"});
    assert_eq!(answer["errors"], topics.into_iter().map(error).collect::<Value>());
}

/// Sends what is in files to a topic for each of these tables, and has it read by the tables of `deploy/clickhouse`. Returns what came of
/// it, beside what came of the same rows in other files, and the topics.
fn through_kafka(
    tables: &[&str],
    sent: &[PathBuf],
    direct: &[PathBuf],
) -> Option<(Value, Vec<String>)> {
    let broker = Server::Kafka.shared()?;
    let topics: Vec<String> = tables.iter().map(|table| unique(table)).collect();
    for topic in &topics {
        make_kafka_topic(broker, topic, 3);
        make_kafka_topic(broker, &format!("{topic}-broken"), 1);
    }
    let command = |python: &str, script: &str| {
        let mut command = Command::new(find_tool(python).unwrap());
        command.arg(root().join("crates/weir/tests/weir/clickhouse_queries").join(script));
        command
    };
    let broker = broker.to_string();
    let pairs: Vec<String> =
        tables.iter().zip(&topics).map(|(table, topic)| format!("{table}={topic}")).collect();
    let pairs = pairs.join(",");
    run(command("weir-python", "produce.py").arg(&broker).arg(&pairs).args(sent));
    let mut consume = command("weir-clickhouse", "consume.py");
    consume.arg(root()).arg(&broker).arg(&pairs).args(direct);
    Some((serde_json::from_str(&run(&mut consume)).unwrap(), topics))
}

/// Bytes that were sent, without those that were sent again: a busy machine's kernel takes late answers for lost ones.
fn once(row: &Value) -> u64 {
    row["sent"].as_u64().unwrap() - row["sent_again"].as_u64().unwrap()
}

/// Who sent what to whom.
fn volumes(answers: &Answers, scene: &Scene) {
    let bulk = json!({"host": "near", "role": "opener", "service_port": scene.bulk.port});
    let sent = answers.row("top_talkers", &bulk);
    assert_eq!((once(sent), &sent["received"]), (scene::BULK_BYTES, &0.into()));
    assert_eq!(sent["peer"], FAR);
    let bulk = json!({"host": "far", "role": "acceptor", "service_port": scene.bulk.port});
    let received = answers.row("top_talkers", &bulk);
    assert_eq!((&received["sent"], &received["received"]), (&0.into(), &scene::BULK_BYTES.into()));
    assert_eq!(answers.rows("top_talkers")[0]["service_port"], scene.bulk.port);

    let edge = answers.row("service_map", &json!({"port": scene.bulk.port}));
    assert_eq!(edge["bytes_sent"], sent["sent"]);
    assert_eq!((&edge["client_host"], &edge["server_host"]), (&"near".into(), &"far".into()));
    let edge = answers.row("service_map", &json!({"address": LOSSY}));
    assert_eq!((&edge["client"], &edge["server_host"]), (&CONTAINER.into(), &"far".into()));

    // What ss(8) said of the same connection.
    let lossy = &answers.rows("retransmission_share")[0];
    assert_eq!(lossy["container_id"], CONTAINER, "{lossy}");
    assert_eq!(lossy["sent"], scene.lossy.bytes_sent);
    assert_eq!(lossy["retransmitted"], scene.lossy.bytes_retrans);
    let percent = 100.0 * scene.lossy.bytes_retrans as f64 / scene.lossy.bytes_sent as f64;
    assert!((lossy["percent"].as_f64().unwrap() - percent).abs() < 0.001, "{lossy}");
    assert!(scene.lossy.bytes_retrans > 0);
}

/// What held connections up.
fn limits(answers: &Answers, scene: &Scene) {
    let stuck = &answers.rows("receive_window_limited")[0];
    let stuck_peer = format!("{FAR} {}", scene.stuck.port);
    assert_eq!(stuck["peer"], stuck_peer);
    assert!(stuck["percent"].as_f64() > Some(90.0), "{stuck}");
    // A busy machine's reader may be late too, but for a moment only.
    assert_eq!(others(answers, "receive_window_limited", [LATE, LOSSY]), [""; 0]);

    let slow = &answers.rows("send_buffer_limited")[0];
    assert_eq!(slow["peer"], format!("{LATE} {}", scene.late.port));
    assert!(slow["limited_s"].as_f64() >= Some(0.3), "{slow}");
    assert_eq!(others(answers, "send_buffer_limited", [&stuck_peer, LOSSY]), [""; 0]);

    let grows = answers.rows("growing_send_queues");
    let grows =
        grows.iter().find(|row| row["peer"] == stuck_peer).unwrap_or_else(|| panic!("{grows:?}"));
    assert_eq!(grows["last_bytes"], scene.stuck_queue_bytes, "{grows}");

    let late = &answers.rows("worst_rtt_by_peer")[0];
    assert_eq!((&late["peer"], &late["connections"]), (&LATE.into(), &scene.late_tries.into()));
    assert!(late["p99_rtt_ms"].as_f64() > Some(5.0), "{late}");
    let minutes = answers.rows("rtt_by_minute");
    let worst = minutes.iter().filter_map(|row| row["p99_rtt_ms"].as_f64()).fold(0.0, f64::max);
    let is_within = worst <= late["p99_rtt_ms"].as_f64().unwrap() * 1.5 && worst > 5.0;
    assert!(is_within, "{minutes:?}, {late}");

    let reno = answers.row("congestion_controls", &json!({"congestion_algorithm": "reno"}));
    assert_eq!((&reno["connections"], &reno["hosts"]), (&1.into(), &1.into()));
    assert!(reno["p50_mbit_per_sec"].as_f64() > Some(1.0), "{reno}");

    let queue = answers.row("accept_queues", &json!({"port": scene.full_port}));
    assert_eq!((&queue["host"], &queue["address"]), (&"far".into(), &FAR.into()));
    assert_eq!((&queue["fullest"], &queue["limit"]), (&2.into(), &1.into()));
    assert!(queue["dropped"].as_u64() > Some(0) && queue["polls_full"].as_u64() > Some(0));
    assert_eq!(answers.rows("accept_queues").len(), 1, "only one listener was full");
}

/// The rows that a query has about these peers, which are known for something else.
fn others(answers: &Answers, query: &str, peers: [&str; 2]) -> Vec<String> {
    let is_one =
        |row: &&Value| peers.iter().any(|peer| row["peer"].as_str().unwrap().starts_with(peer));
    answers.rows(query).iter().filter(is_one).map(Value::to_string).collect()
}

/// How connections ended.
fn ends(answers: &Answers, scene: &Scene) {
    for (end, ended, sent, received) in
        [("opener", "our_close", 100, 1_000), ("acceptor", "peer_close", 1_000, 100)]
    {
        let with = json!({"end": end, "service_port": scene.short_port});
        let row = answers.row("short_connections", &with);
        assert_eq!((&row["ended"], &row["connections"]), (&ended.into(), &scene::SHORT.into()));
        assert_eq!(once(row), sent * scene::SHORT, "{row}");
        // The FIN counts as a byte that was received.
        let fins = row["received"].as_u64().unwrap() - received * scene::SHORT;
        assert!(fins <= scene::SHORT, "{row}");
    }

    let resets = |peer: &str| {
        let with = json!({"peer": peer, "service_port": scene.reset_port});
        let row = answers.row("resets_by_peer", &with);
        ["our_resets", "peer_resets", "timed_out"].map(|name| row[name].as_u64().unwrap())
    };
    assert_eq!(resets(FAR), [scene::RESETS, 0, 0]);
    assert_eq!(resets(scene::NEAR), [0, scene::RESETS, 0]);
    // The kernel has forgotten the port.
    let refused = json!({"peer": FAR, "service_port": null});
    assert_eq!(answers.row("resets_by_peer", &refused)["refused"], scene::REFUSED);
    assert_eq!(answers.rows("resets_by_peer").len(), 3, "nothing else was reset");
}

/// What came as syslog.
fn datagrams(answers: &Answers) {
    let [errors] = answers.rows("syslog_errors") else { panic!("not one program with errors") };
    assert_eq!((&errors["hostname"], &errors["app_name"]), (&"db1".into(), &"postgres".into()));
    assert_eq!((&errors["messages"], &errors["critical"]), (&scene::ERRORS.into(), &0.into()));
    assert_eq!(errors["last_message"], "deadlock detected");
    let quiet =
        answers.row("loudest_senders", &json!({"listener": "syslog", "sender": "192.0.2.2"}));
    assert_eq!((&quiet["datagrams"], &quiet["unparsed"]), (&scene::NOTES.into(), &0.into()));
    assert_eq!(quiet["bytes"], scene::NOTES * scene::NOTE.len() as u64);
    assert_eq!(answers.rows("loudest_senders")[0]["sender"], "192.0.2.1");
}

/// What is known of the collectors themselves.
fn hosts(answers: &Answers) {
    let silent = answers.rows("silent_hosts");
    assert_eq!(silent.len(), 1, "{silent:?}");
    assert_eq!((&silent[0]["name"], &silent[0]["interval_s"]), (&"gone".into(), &0.25.into()));
    assert!(silent[0]["silent_s"].as_u64() > Some(3_500), "{silent:?}");

    let runs = answers.rows("runs");
    assert!(runs.iter().all(|run| run["missing"] == 0), "{runs:?}");
    let made = |host: &str| {
        runs.iter().filter(|run| run["host"] == host).map(|run| run["made"].as_u64().unwrap()).sum()
    };
    let (near, far): (u64, u64) = (made("near"), made("far"));
    assert!(near > 30 && far > 30, "{runs:?}");
    assert!(answers.rows("gaps").is_empty());
    assert!(answers.rows("collector_losses").iter().all(|row| row["closes_lost"] == 0));
}
