//! The flags of `ss`, next to `ss` itself on the same sockets.

use super::rig::{Many, connect, output, records, said, sockets, sockets_in, text};
use super::ss;
use std::collections::BTreeSet;
use testkit::{Netns, need_root_netns, need_tool, wait_for};

fn have_what_it_takes() -> bool {
    need_root_netns() && need_tool("ss") && need_tool("python3")
}

#[test]
fn the_flags_of_ss_choose_the_sockets_that_ss_chooses() {
    if !have_what_it_takes() {
        return;
    }
    let netns = Netns::new();
    let _many = Many::make(&netns, 60);
    let flags = [
        "-t", "-tn", "-tnl", "-tna", "-tnlp", "-tanp", "-tn4", "-tna6", "-nt46a", "-nt64a", "-tal",
        "-tla", "-4ltn", "-tnime", "-tlnoemi", "-tnH",
    ];
    for flags in flags {
        let theirs = || -> BTreeSet<u64> {
            let mut command = netns.command("ss");
            command.args([flags, "-tneHO"]);
            ss::parse(command).into_keys().collect()
        };
        let (before, ours) = (theirs(), records(sockets_in(&netns, &[flags, "--format", "jsonl"])));
        let ours: BTreeSet<u64> = ours.iter().filter_map(|row| row["cookie"].as_u64()).collect();
        let after = theirs();
        assert!(!before.is_empty(), "{flags}");
        // Only what ends meanwhile, such as a TIME-WAIT, may be in one of them.
        assert!(before.intersection(&after).all(|cookie| ours.contains(cookie)), "{flags}");
        assert!(
            ours.iter().all(|cookie| before.contains(cookie) || after.contains(cookie)),
            "{flags}"
        );
    }
}

#[test]
fn long_names_are_the_same_flags() {
    let long = "--tcp --numeric --listening --processes --info --extended --memory --options --ipv4 --no-header";
    let args: Vec<&str> = long.split(' ').chain(["sport = :1"]).collect();
    assert_eq!(text(sockets(&args)), "");
    assert_eq!(text(sockets(&["-tnlpiemo4H", "sport = :1"])), "");
    assert!(text(sockets(&["--summary", "--all", "--ipv6"])).contains("STATE"));
}

#[test]
fn details_stand_below_the_row_with_the_values_of_ss() {
    if !need_tool("ss") {
        return;
    }
    let connection = connect("127.0.0.1:0");
    let filter = format!("sport = :{}", connection.near_address().port());
    let mut command = std::process::Command::new("ss");
    command.args(["-tinmHOe", &filter]);
    let found = ss::parse(command);
    let (cookie, theirs) = found.iter().next().unwrap();

    let mut command = sockets(&["-tnieHm", &filter]);
    command.env("COLUMNS", "80");
    let shown = text(command);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("ESTAB") && lines.len() > 1, "{shown}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{shown}");
    let details: Vec<&str> = lines[1..].iter().flat_map(|line| line.split_whitespace()).collect();
    for part in [
        format!("inode:{}", theirs["ino"]),
        format!("cookie:{cookie}"),
        format!("mss:{}", theirs["mss"]),
        format!("drops:{}", theirs["skmem.d"]),
        format!("sndbuf:{}", text::size(theirs["skmem.tb"].parse().unwrap()).replace(' ', "")),
    ] {
        assert!(details.contains(&part.as_str()), "no {part} in {shown}");
    }
    let congestion = details.iter().find_map(|part| part.strip_prefix("cc:")).unwrap();
    assert!(theirs.contains_key(congestion), "{congestion}: {theirs:?}");
}

#[test]
fn the_summary_counts_as_ss_does() {
    if !have_what_it_takes() {
        return;
    }
    let netns = Netns::new();
    let _many = Many::make(&netns, 30);
    let number = |text: &str| -> u64 { text.trim_end_matches([',', ')']).parse().unwrap() };
    wait_for("both count the same", || {
        let mut command = netns.command("ss");
        let theirs = String::from_utf8(command.arg("-s").output().unwrap().stdout).unwrap();
        let row: Vec<&str> = theirs
            .lines()
            .find(|line| line.starts_with("TCP\t"))
            .unwrap()
            .split_whitespace()
            .collect();
        let line = theirs.lines().find(|line| line.starts_with("TCP:")).unwrap();
        let established = number(line.split("estab ").nth(1).unwrap().split(' ').next().unwrap());

        let rows = records(sockets_in(&netns, &["-s", "--format", "jsonl"]));
        let sum = |states: &[&str], name: &str| -> u64 {
            let of = rows.iter().filter(|row| states.contains(&row["state"].as_str().unwrap()));
            of.map(|row| row[name].as_u64().unwrap()).sum()
        };
        // The kernel counts full sockets, and CLOSE-WAIT as established.
        let full = [
            "established",
            "fin_wait_1",
            "fin_wait_2",
            "close_wait",
            "last_ack",
            "listen",
            "syn_sent",
        ];
        let ours = [sum(&full, "total"), sum(&full, "ipv4"), sum(&full, "ipv6")];
        let is_same = ours == [number(row[1]), number(row[2]), number(row[3])]
            && sum(&["established", "close_wait"], "total") == established;
        (is_same && established > 50).then_some(())
    });
    let refused = output(sockets(&["-s", "--format", "csv"]));
    assert_eq!(refused.status.code(), Some(64), "{}", said(&refused));
}
