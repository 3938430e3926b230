//! What people ask first about sFlow, of a daemon that heard agents whose traffic is known.

use super::{Answers, ask, through_kafka};
use crate::support::{Ended, Weir};
use ledger::HopKind;
use load::sflow::{Agent, AgentOptions, TrueFlow};
use serde_json::{Value, json};
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;
use testkit::{TempDir, need_python_module};

/// Bytes of each frame, and frames of each flow in a second.
const FRAME_BYTES: u32 = 1_000;
const FRAMES_PER_S: [f64; 2] = [100_000.0, 25_000.0];
/// Of both flows together: half of what the interface can carry.
const SPEED_BITS_PER_S: u64 = 2_000_000_000;
const DATAGRAMS: usize = 400;

#[test]
fn the_queries_about_flows_have_right_answers() {
    if !need_python_module("chdb") {
        return;
    }
    let scene = Scene::play();
    let answers = ask(&[scene.dir.file("flows.jsonl")]);

    top_flows(&answers, &scene);
    interfaces(&answers);
    let lost = json!({"agent_address": "192.0.2.1", "datagrams_lost": DATAGRAMS / 2 - 1});
    assert_eq!(answers.row("agent_losses", &lost)["datagrams_received"], DATAGRAMS / 2);
    let whole = json!({"agent_address": "192.0.2.2", "datagrams_lost": 0});
    assert_eq!(answers.row("agent_losses", &whole)["datagrams_received"], DATAGRAMS);

    let made = scene.rows.iter().filter(|row| row["sequence"].is_u64()).count();
    let [run] = answers.rows("flow_runs") else { panic!("not one run") };
    let told = ["made", "stored", "missing"].map(|name| run[name].as_u64());
    assert_eq!(told, [made, made, 0].map(|number| Some(number as u64)));
    assert_eq!(answers.rows("flow_runs_without_two")[0]["missing"], 2);
    for (table, kept) in answers.0["kept_of_two"].as_object().unwrap() {
        assert_eq!(*kept, 1, "{table}");
    }
    kafka(&scene);
}

/// Bytes by source and destination: what the rows have, around the truth.
fn top_flows(answers: &Answers, scene: &Scene) {
    for (number, per_s) in (1..).zip(FRAMES_PER_S) {
        let (source, destination) = (format!("10.0.0.{number}"), format!("10.1.0.{number}"));
        let with = json!({"definition": "pairs", "source": source, "destination": destination});
        let row = answers.row("top_flows", &with);
        let figure = |name: &str| row[name].as_u64().unwrap();
        let of_flow = |row: &&Value| row["definition"] == "pairs" && row["src_address"] == source;
        assert_eq!(
            [figure("bytes"), figure("raw"), figure("samples")],
            scene.best_sampler(of_flow),
            "{row}"
        );

        // Both agents saw all of it, one for a little longer.
        let truth = per_s * f64::from(FRAME_BYTES) * scene.seconds;
        let half_width = (figure("high") - figure("low")) as f64 / 2.0;
        let off = (figure("bytes") as f64 - truth).abs();
        assert!(off < 1.5 * half_width && half_width < 0.3 * truth, "{row} of {truth}");
        assert!(figure("low") < figure("bytes") && figure("bytes") < figure("high"), "{row}");
    }

    // What both agents saw is there twice, and half of the one's samples are lost: a multiplication does not see that.
    let all = json!({"definition": "all", "source": "::", "destination": "::"});
    let all = answers.row("top_flows", &all);
    let (bytes, raw) = (all["bytes"].as_f64().unwrap(), all["raw"].as_f64().unwrap());
    assert!((raw / bytes - 0.75).abs() < 0.05, "{all}");
}

/// Half of what the interfaces can carry.
fn interfaces(answers: &Answers) {
    let rows = answers.rows("interface_utilization");
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        assert_eq!((&row["if_index"], &row["speed_mbit_per_sec"]), (&7.into(), &2_000.into()));
        for name in ["in_percent", "in_percent_max"] {
            assert!((row[name].as_f64().unwrap() - 50.0).abs() < 1.0, "{row}");
        }
        assert_eq!((&row["out_percent"], &row["errors"]), (&0.into(), &0.into()), "{row}");
    }
}

fn kafka(scene: &Scene) {
    let [sent, direct] = ["flows.pb", "flows.jsonl"].map(|name| scene.dir.file(name));
    let Some((answer, topics)) = through_kafka(&["flows"], &[sent], &[direct]) else { return };
    assert_eq!(answer["through_kafka"], answer["direct"]);
    let counts = ["flows", "counters", "flow_totals"]
        .map(|table| answer["direct"][table]["count"].as_u64().unwrap());
    assert_eq!(counts.iter().sum::<u64>(), scene.rows.len() as u64);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let error =
        json!({"topic": format!("{}-broken", topics[0]), "message": "no message of Weir's"});
    assert_eq!(answer["errors"], json!([error]));
}

/// What a daemon wrote of two agents that saw the same traffic. Of the first one's datagrams every second is lost.
struct Scene {
    dir: TempDir,
    rows: Vec<Value>,
    /// How long the traffic went on.
    seconds: f64,
}

impl Scene {
    fn play() -> Scene {
        let dir = TempDir::new();
        let weir = start(&dir);
        // The analysis tells of its flows from its first tick on.
        weir.wait_for(|ledger| {
            let hop = ledger.hop(HopKind::Sink, "flows", Some("lines"));
            hop.is_some_and(|hop| hop.received.count > 0)
        });

        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut agents = [1, 2].map(agent);
        let mut sent = 0;
        for number in 0..DATAGRAMS {
            for (at, agent) in agents.iter_mut().enumerate() {
                let mut datagram = Vec::new();
                agent.next_datagram(&mut datagram);
                if at == 1 || number % 2 == 0 {
                    sender.send_to(&datagram, weir.address()).unwrap();
                    sent += 1;
                }
            }
            // No more than a receive buffer holds.
            if number % 50 == 49 {
                weir.wait_for(|ledger| {
                    ledger.hop(HopKind::Analysis, "flows", None).unwrap().received.count == sent
                });
            }
        }

        let Ended { code, said, .. } = weir.stop();
        assert_eq!(code, Some(0), "{said}");
        let text = fs::read_to_string(dir.file("flows.jsonl")).unwrap();
        let rows = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let seconds = agents.iter().map(|agent| agent.now().as_secs_f64()).fold(0.0, f64::max);
        Scene { dir, rows, seconds }
    }

    /// Bytes, raw bytes and samples of a flow, by the sampler that saw most of it.
    fn best_sampler(&self, is_flow: impl Fn(&&Value) -> bool) -> [u64; 3] {
        let mut sums = std::collections::BTreeMap::<u64, [u64; 3]>::new();
        for row in self.rows.iter().filter(is_flow) {
            let sums = sums.entry(row["sampler"].as_u64().unwrap()).or_default();
            for (sum, name) in sums.iter_mut().zip(["bytes", "raw_bytes", "samples"]) {
                *sum += row[name].as_u64().unwrap();
            }
        }
        assert_eq!(sums.len(), 2, "two samplers saw it");
        sums.into_values().max().unwrap()
    }
}

fn start(dir: &TempDir) -> Weir {
    let sink = |name: &str, file: &str, format: &str| {
        format!(
            "[[sink]]\nname = \"{name}\"\nfrom = [\"flows\"]\nto = \"file:{}\"\nformat = \"{format}\"\n",
            dir.text(file)
        )
    };
    let text = format!(
        "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n\
         [flows]\nfrom = [\"in\"]\nexport_every = \"1s\"\n\
         [[flow]]\nname = \"pairs\"\nkeys = [\"src\", \"dst\"]\n\
         [[flow]]\nname = \"all\"\naggregation = \"sum\"\n{}{}",
        sink("lines", "flows.jsonl", "jsonl"),
        sink("messages", "flows.pb", "protobuf"),
    );
    fs::write(dir.file("weir.toml"), text).unwrap();
    Weir::run(&dir.file("weir.toml"))
}

fn agent(number: u8) -> Agent {
    let flow = |(number, frames_per_s): (u8, f64)| TrueFlow {
        src: Ipv4Addr::new(10, 0, 0, number),
        dst: Ipv4Addr::new(10, 1, 0, number),
        protocol: 17,
        src_port: 53,
        dst_port: 4_000,
        frame_bytes: FRAME_BYTES,
        frames_per_s,
    };
    let options = AgentOptions {
        address: Ipv4Addr::new(192, 0, 2, number).into(),
        if_index: 7,
        speed_bits_per_s: SPEED_BITS_PER_S,
        counters_every: Duration::from_millis(700),
        ..AgentOptions::default()
    };
    let flows = (1..).zip(FRAMES_PER_S).map(flow).collect();
    Agent::new(options, flows, number.into())
}
