//! `weir reload` and `weir stop`: the daemon's answer on the terminal.

use crate::support::{WEIR, Weir};
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use testkit::TempDir;

/// Exit code, standard output, standard error of a command that asks this daemon.
fn ask(weir: &Weir, args: &[&str]) -> (i32, String, String) {
    let output = Command::new(WEIR).args(args).args(["--admin", &weir.url()]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_reload_is_answered_with_what_changed_or_why_nothing_did() {
    let dir = TempDir::new();
    let config = dir.file("weir.toml");
    let write = |more: &str| {
        let listener = "[[listener]]\nname='in'\nlisten='127.0.0.1:0'\n";
        fs::write(&config, format!("{listener}[[listener.target]]\nname='a'\nto='null:'\n{more}"))
    };
    write("").unwrap();
    let weir = Weir::run(&config);
    let (code, out, _) = ask(&weir, &["reload"]);
    assert_eq!((code, out.as_str()), (0, "reloaded: nothing has changed\n"));

    write("rate_limit=1000\n").unwrap();
    let (code, out, _) = ask(&weir, &["reload"]);
    assert_eq!(code, 0);
    assert_eq!(out, "reloaded: target a: rate_limit not set -> 1000\n");

    write("rate_limitt=1000\n").unwrap();
    let (code, out, err) = ask(&weir, &["reload"]);
    assert_eq!((code, out.as_str()), (78, ""));
    assert!(err.contains("did you mean rate_limit?"), "{err}");
    assert!(err.ends_with("reload refused: the former configuration stays in force\n"), "{err}");

    assert_eq!(ask(&weir, &["stop"]), (0, "unaccounted: 0\n".to_owned(), String::new()));
    assert_eq!(weir.wait_to_end().code, Some(0));
}

#[test]
fn a_stop_is_answered_with_what_was_left_behind() {
    let dir = TempDir::new();
    let nobody = format!("unix:{}", dir.file("nobody.sock").display());
    let weir = Weir::tee(&crate::support::Place::Here, &[nobody], &["--drain-grace", "100ms"]);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(b"hello", weir.address()).unwrap();
    weir.wait_for(|ledger| ledger.received_at(ledger::HopKind::Receive).count == 1);

    let (code, _, err) = ask(&weir, &["reload"]);
    assert_eq!(code, 64, "it has no file, and SIGHUP would end it: {err}");
    let (code, out, _) = ask(&weir, &["stop"]);
    assert_eq!(code, 75, "{out}");
    assert!(out.starts_with("left behind: 1 datagram (5 bytes) of in that "), "{out}");
    assert!(out.ends_with("unaccounted: 0\n"), "{out}");
    assert_eq!(weir.wait_to_end().code, Some(75));
}

#[test]
fn without_a_daemon_nothing_is_signaled() {
    let admin = format!("127.0.0.1:{}", testkit::free_port());
    for command in ["reload", "stop"] {
        let output = Command::new(WEIR).args([command, "--admin", &admin]).output().unwrap();
        assert_eq!(output.status.code(), Some(69));
    }
}

#[test]
fn a_folder_is_read_again_with_the_files_that_came_and_went() {
    let dir = TempDir::new();
    let listener = "[[listener]]\nname='in'\nlisten='127.0.0.1:0'\n[[listener.target]]\nname='a'\nto='null:'\n";
    fs::write(dir.file("10-in.toml"), listener).unwrap();
    let weir = Weir::run(dir.path());
    let other = listener.replace("'in'", "'other'");
    fs::write(dir.file("20-other.toml"), &other).unwrap();
    let (code, out, _) = ask(&weir, &["reload"]);
    assert_eq!((code, out.as_str()), (0, "reloaded: listener other added\n"));

    fs::write(dir.file("30-again.toml"), &other).unwrap();
    let (code, _, err) = ask(&weir, &["reload"]);
    assert_eq!(code, 78);
    let place = format!("{}:2: listener.name: ", dir.file("30-again.toml").display());
    assert!(err.contains(&place), "{err}");

    fs::remove_file(dir.file("30-again.toml")).unwrap();
    fs::remove_file(dir.file("20-other.toml")).unwrap();
    let (code, out, _) = ask(&weir, &["reload"]);
    assert_eq!((code, out.as_str()), (0, "reloaded: listener other removed\n"));
    assert_eq!(weir.stop().code, Some(0));
}

#[test]
fn a_reload_that_closes_the_address_is_a_success() {
    let dir = TempDir::new();
    let config = dir.file("weir.toml");
    let listener = "[[listener]]\nname='in'\nlisten='127.0.0.1:0'\n[[listener.target]]\nname='a'\nto='null:'\n";
    fs::write(&config, listener).unwrap();
    fs::write(dir.file("token"), "0123456789abcdef").unwrap();
    let weir = Weir::run(&config);
    let admin = format!("[admin]\ntoken_file='{}'\n", dir.text("token"));
    fs::write(&config, format!("{admin}{listener}")).unwrap();
    let began = std::time::Instant::now();
    let (code, out, err) = ask(&weir, &["reload"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.starts_with("reloaded: "), "{out}");
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "it does not wait for the limit");
    assert_eq!(weir.stop().code, Some(0));
}
