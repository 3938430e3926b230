//! As a user without any capability: every command works, and what needs a privilege says how to get it.

use crate::nobody::Nobody;
use crate::support::{Weir, generate_by, hop};
use ledger::HopKind;
use std::fs;
use std::process::{Command, Output, Stdio};
use testkit::{Netns, Peer, free_port, need_root_netns, need_tool, run, sender};

#[track_caller]
fn check(output: &Output, code: i32, shows: &str) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(shows), "no {shows:?} in: {text}");
}

/// The quickstart's configuration on a port that is free.
fn quickstart() -> String {
    let path = testkit::root().join("examples/quickstart.toml");
    let text = fs::read_to_string(path).unwrap();
    let moved = text.replace("udp://127.0.0.1:5514", &format!("udp://127.0.0.1:{}", free_port()));
    assert_ne!(moved, text);
    moved
}

#[test]
fn quickstart_runs_and_its_ledger_and_doctor_are_shown() {
    let Some(nobody) = Nobody::new() else { return };
    fs::write(nobody.work().join("weir.toml"), quickstart()).unwrap();
    check(&nobody.output(&["config", "check", "weir.toml"]), 0, "");
    let mut daemon = nobody.here();
    daemon.args(["run", "-c", "weir.toml"]);
    let weir = Weir::start(daemon);
    let status = fs::read_to_string(format!("/proc/{}/status", weir.pid())).unwrap();
    for line in ["Uid:\t65534", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let to = weir.address().to_string();
    let sent = generate_by(
        nobody.here(),
        &["--to", &to, "--payload", "syslog", "--size", "300", "--rate", "5k", "--count", "5k"],
    );
    weir.wait_for_rest(sent.all());
    let ledger = nobody.output(&["ledger", "--admin", &weir.url(), "--fail-on-loss"]);
    check(&ledger, 0, "nothing lost");
    let doctor = nobody.output(&["doctor", "-c", "weir.toml", "--json"]);
    assert!(matches!(doctor.status.code(), Some(0 | 1)), "{doctor:?}");
    serde_json::from_slice::<serde_json::Value>(&doctor.stdout).unwrap();
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    for name in ["old", "new"] {
        let file = nobody.work().join(format!("weir-data/{name}.log"));
        let lines = fs::read_to_string(file).unwrap().lines().count() as u64;
        assert_eq!(lines, sent.all());
        assert_eq!(hop(&ended.ledger, HopKind::Target, name).delivered.count, lines);
    }
}

#[test]
fn relay_forwards_to_verify_without_loss() {
    let Some(nobody) = Nobody::new() else { return };
    let mut verify = nobody.here();
    verify.args(["verify", "--listen", "127.0.0.1:0", "--until-done", "--deadline", "60s"]);
    verify.args(["--progress", "off"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut verify = Peer::start(&mut verify);
    let mut line = String::new();
    let mut said = std::io::BufReader::new(verify.0.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let at = line.strip_prefix("listening on ").unwrap().split(',').next().unwrap().to_owned();
    let mut relay = nobody.here();
    relay.args(["relay", "--progress", "off", "--listen", "127.0.0.1:0", "--to", &at]);
    relay.args(["--to", "unix:nobody-there.sock", "--to", "file:copy.pcap?format=pcap"]);
    let weir = Weir::start(relay);
    let to = weir.address().to_string();
    generate_by(
        nobody.here(),
        &["--to", &to, "--rate", "5k", "--count", "5k", "--size", "48..1400"],
    );
    assert_eq!(verify.0.wait().unwrap().code(), Some(0));
    // What the ring holds for the receiver that is not there is left behind, and said to be.
    assert_eq!(weir.stop().code, Some(75));
    assert!(nobody.work().join("copy.pcap").is_file());
}

#[test]
fn a_refused_port_is_77_and_the_named_command_mends_it() {
    let Some(nobody) = Nobody::new() else { return };
    if !need_root_netns() || !need_tool("sysctl") {
        return;
    }
    let netns = Netns::new();
    let relay = || {
        let mut command = nobody.weir(netns.command("setpriv"));
        command.args(["relay", "--progress", "off", "--listen", "127.0.0.1:514", "--to", "null:"]);
        command
    };
    let refused = relay().output().unwrap();
    check(&refused, 77, "cannot listen on udp://127.0.0.1:514");
    check(&refused, 77, "setcap cap_net_bind_service=+ep ");
    let said = String::from_utf8(refused.stderr).unwrap();
    let mend = said.lines().find_map(|line| line.split_once(", or sysctl ")).unwrap().1;
    run(netns.command("sysctl").args(mend.split_whitespace()));
    let mut relay = Peer::start(relay().stdout(Stdio::null()).stderr(Stdio::piped()));
    let said = std::io::BufReader::new(relay.0.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(said).map(Result::unwrap);
    assert!(lines.any(|line| line.contains("listening on udp://127.0.0.1:514")));
}

#[test]
fn a_folder_of_others_is_77_and_the_named_command_mends_it() {
    let Some(nobody) = Nobody::new() else { return };
    let folder = nobody.dir.file("closed");
    fs::create_dir(&folder).unwrap();
    let to = format!("file:{}/copy", folder.display());
    let args = ["relay", "--listen", "127.0.0.1:0", "--to", &to, "--progress", "off"];
    let refused = nobody.output(&args);
    check(&refused, 77, "Permission denied");
    let said = String::from_utf8(refused.stderr).unwrap();
    let (mend, example) = said.trim_end().rsplit_once(": ").unwrap().1.rsplit_once(' ').unwrap();
    assert_eq!(example, "/var/lib/weir");
    let folder = nobody.dir.file("open");
    run(Command::new("sh").args(["-c", &format!("{mend} {}", folder.display())]));
    let to = format!("file:{}/copy", folder.display());
    let args = ["relay", "--listen", "127.0.0.1:0", "--to", &to, "--progress", "off"];
    let mut relay = nobody.here();
    relay.args(args);
    let weir = Weir::start(relay);
    sender(weir.address()).send(b"one").unwrap();
    weir.wait_for_rest(1);
    assert_eq!(weir.stop().code, Some(0));
    assert_eq!(fs::read_to_string(folder.join("copy")).unwrap(), "one\n");
}
