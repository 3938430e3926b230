//! Thresholds in the daemon: what passes one is with the sinks that take events, and a reload or a stop loses none.

use crate::support::Weir;
use serde_json::Value;
use std::fs;
use std::process::Command;
use testkit::{Peer, TempDir, signal, wait_for};

fn write(dir: &TempDir, listen: &str, thresholds: &str) {
    let text = format!(
        "[[listener]]\nname = \"sflow\"\nlisten = \"{listen}\"\n\
         [flows]\nfrom = [\"sflow\"]\n\
         [[flow]]\nname = \"sources\"\nkeys = [\"src\"]\nsmoothing = \"1s\"\n{thresholds}\n\
         [[sink]]\nname = \"hook\"\nfrom = [\"events\"]\nbody = \"payload\"\nformat = \"jsonl\"\nto = \"file:{}\"\n\
         [[sink]]\nname = \"rows\"\nfrom = [\"events\"]\nto = \"file:{}\"\n",
        dir.text("hook.jsonl"),
        dir.text("rows.jsonl"),
    );
    fs::write(dir.file("weir.toml"), text).unwrap();
}

const HEAVY: &str = "[[threshold]]\nname = \"heavy\"\nflow = \"sources\"\nlimit = \"3Gbit/s\"\nclear_after = \"1h\"\n";
const LOSS: &str = "[[threshold]]\nname = \"loss\"\nagent = \"loss\"\nlimit = \"20%\"\n";

fn events(dir: &TempDir, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(dir.file(name)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn wait_for_events(dir: &TempDir, name: &str, count: usize) -> Vec<Value> {
    wait_for(
        || format!("{count} events in {name}: {:?}", events(dir, name)),
        || Some(events(dir, name)).filter(|events| events.len() >= count),
    )
}

#[test]
fn events_are_with_their_sinks_and_a_threshold_that_goes_clears_them() {
    let dir = TempDir::new();
    let listen = format!("127.0.0.1:{}", testkit::free_port());
    write(&dir, &listen, &format!("{HEAVY}{LOSS}"));
    let weir = Weir::run(&dir.file("weir.toml"));

    let args = ["--traffic", "10Gbit", "--loss", "50", "--duration", "3s", "--agents", "1"];
    let played = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["gen", "sflow", "--to", &listen])
        .args(args)
        .output()
        .unwrap();
    assert!(played.status.success(), "{played:?}");

    let mut raised = wait_for_events(&dir, "hook.jsonl", 2);
    raised.sort_by_key(|event| event["threshold"].as_str().map(str::to_owned));
    assert_eq!(raised[0]["threshold"], "heavy", "{raised:?}");
    assert_eq!(raised[0]["of"]["key"]["src"], "10.0.0.1", "{raised:?}");
    assert_eq!(raised[1]["of"]["figure"], "loss", "{raised:?}");

    // What a configuration watches no longer is down.
    write(&dir, &listen, LOSS);
    signal(weir.process(), "HUP");
    let all = wait_for_events(&dir, "hook.jsonl", 3);
    let cleared = all.iter().find(|event| event["change"] == "cleared").unwrap();
    assert_eq!(cleared["raised_id"], raised[0]["id"], "{all:?}");

    let rows = wait_for_events(&dir, "rows.jsonl", 3);
    assert_eq!(rows[0]["listener"], "events", "{rows:?}");
    let end = weir.stop();
    assert_eq!(end.code, Some(0), "{}", end.said);
}

/// A client of a daemon has the events from before it came and those that come while it waits.
#[test]
fn events_of_a_daemon_are_printed_as_they_come() {
    let dir = TempDir::new();
    let listen = format!("127.0.0.1:{}", testkit::free_port());
    write(&dir, &listen, LOSS);
    let weir = Weir::run(&dir.file("weir.toml"));
    let play = || {
        let args = ["--loss", "50", "--duration", "3s", "--agents", "1"];
        let played = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["gen", "sflow", "--to", &listen])
            .args(args)
            .output()
            .unwrap();
        assert!(played.status.success(), "{played:?}");
    };
    play();
    wait_for_events(&dir, "hook.jsonl", 1);

    let out = fs::File::create(dir.file("printed")).unwrap();
    let client = Peer::start(
        Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["flows", "--events", "--json", "--admin", &weir.url()])
            .stdout(out),
    );
    let before = wait_for_events(&dir, "printed", 1);
    assert_eq!(before[0]["threshold"], "loss", "{before:?}");
    assert!(before[0]["text"].as_str().unwrap().contains("loss of 192.0.2.1"), "{before:?}");

    // What comes while the client waits: nothing watches the loss any longer.
    write(&dir, &listen, "");
    signal(weir.process(), "HUP");
    let after = wait_for_events(&dir, "printed", 2);
    assert_eq!(after[1]["change"], "cleared", "{after:?}");
    assert_eq!(after[1]["raised_id"], before[0]["id"], "{after:?}");
    drop(client);
    assert_eq!(weir.stop().code, Some(0));
}
