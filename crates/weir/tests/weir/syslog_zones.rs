//! Syslog through a daemon whose senders are in several zones, and into folders by host.

use crate::support::Weir;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use testkit::{TempDir, free_port, signal, wait_for};

fn lines(dir: &TempDir, name: &str) -> Vec<String> {
    let text = fs::read_to_string(dir.file(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The times of the rows of a file, by their message.
fn times(dir: &TempDir, name: &str, count: usize) -> BTreeMap<String, u64> {
    let rows = wait_for(
        || format!("{count} lines of {name}: {:?}", lines(dir, name)),
        || Some(lines(dir, name)).filter(|lines| lines.len() >= count),
    );
    let row = |line: &String| -> Value { serde_json::from_str(line).unwrap() };
    let time = |row: Value| {
        let ns = row["syslog_time_unix_ns"]
            .as_u64()
            .or_else(|| row["syslog_time_unix_ns"].as_str()?.parse().ok());
        (row["message"].as_str().unwrap().to_owned(), ns.unwrap() / 1_000_000_000)
    };
    rows.iter().map(row).map(time).collect()
}

#[test]
fn times_are_of_the_zone_of_network_sink_and_listener_in_this_order_and_a_reload_changes_it() {
    let dir = TempDir::new();
    let listen = format!("127.0.0.1:{}", free_port());
    let config = |zone: &str| {
        format!(
            "[[listener]]\nname = \"in\"\nlisten = \"{listen}\"\ntime_zone = \"{zone}\"\n\
             time_zones = {{ \"127.0.2.0/24\" = \"+01:00\", \"127.0.2.9\" = \"America/New_York\" }}\n\
             time_zone_abbreviations = {{ WIB = \"+07:00\" }}\n\
             [[sink]]\nname = \"usual\"\nfrom = [\"in\"]\nparse = \"syslog\"\nto = \"file:{}\"\n\
             [[sink]]\nname = \"own\"\nfrom = [\"in\"]\nparse = \"syslog\"\ntime_zone = \"Asia/Tokyo\"\nto = \"file:{}\"\n",
            dir.text("usual.jsonl"),
            dir.text("own.jsonl"),
        )
    };
    fs::write(dir.file("weir.toml"), config("Europe/Vienna")).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    let send = |from: &str, text: &str| {
        let sender = UdpSocket::bind((from, 0)).unwrap();
        sender.send_to(format!("<13>{text}").as_bytes(), &listen).unwrap();
    };

    // 11 October 2026, 22:14:15 UTC is 1791756855.
    send("127.0.0.1", "2026-10-11 22:14:15 h a: summer");
    send("127.0.0.1", "2026-12-11 22:14:15 h a: winter");
    send("127.0.0.1", "2026-10-11T22:14:15Z h a: exact");
    send("127.0.0.1", "2026-10-11 22:14:15 WIB h a: word");
    send("127.0.2.1", "2026-10-11 22:14:15 h a: network");
    send("127.0.2.9", "2026-10-11 22:14:15 h a: longest");
    let utc = 1_791_756_855;
    let winter = utc + 61 * 86_400;
    let expected = |listener_summer: u64, listener_winter: u64| {
        let all = [
            ("summer", utc - listener_summer * 3_600),
            ("winter", winter - listener_winter * 3_600),
            ("exact", utc),
            ("word", utc - 7 * 3_600),
            ("network", utc - 3_600),
            ("longest", utc + 4 * 3_600),
        ];
        all.map(|(message, time)| (message.to_owned(), time)).into_iter().collect()
    };
    assert_eq!(times(&dir, "usual.jsonl", 6), expected(2, 1));
    assert_eq!(times(&dir, "own.jsonl", 6), expected(9, 9));

    // The socket stays while the zone changes.
    fs::write(dir.file("weir.toml"), config("UTC")).unwrap();
    signal(weir.process(), "HUP");
    crate::collector::wait_for_reloads(&weir, 1);
    send("127.0.0.1", "2026-10-11 22:14:15 h a: again");
    assert_eq!(times(&dir, "usual.jsonl", 7)["again"], utc);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
}

#[test]
fn ten_thousand_messages_of_one_device_with_counters_make_one_folder() {
    let dir = TempDir::new();
    let listen = format!("127.0.0.1:{}", free_port());
    let config = format!(
        "[[listener]]\nname = \"in\"\nlisten = \"{listen}\"\n[[sink]]\nname = \"hosts\"\nfrom = [\"in\"]\nparse = \"syslog\"\n\
         body = \"payload\"\nwhen_full = \"leave_in_ring\"\nto = \"file:{}\"\n",
        dir.text("logs/{host}/log")
    );
    fs::write(dir.file("weir.toml"), config).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..10_000 {
        let line = format!(
            "<190>{}: {n}: *Oct 11 22:14:15.295: %SEC-6-IPACCESSLOGP: list T1 denied",
            n + 51_377
        );
        sender.send_to(line.as_bytes(), &listen).unwrap();
    }

    // Without a host in the message it is the sender's address.
    let arrived = || lines(&dir, "logs/127.0.0.1/log").len();
    wait_for(|| format!("10,000 lines, {}", arrived()), || (arrived() == 10_000).then_some(()));
    let folders: Vec<_> =
        fs::read_dir(dir.file("logs")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(folders, ["127.0.0.1"]);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
}
