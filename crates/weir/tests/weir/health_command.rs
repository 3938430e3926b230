//! `weir health`: what the health check of the image and scripts go by.

use crate::support::{WEIR, Weir};
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};
use testkit::{TempDir, free_port, wait_for};

fn health(admin: SocketAddr, options: &[&str]) -> Output {
    Command::new(WEIR)
        .args(["health", "--admin", &admin.to_string()])
        .args(options)
        .output()
        .unwrap()
}

/// Waits for this exit code, and returns what was printed with it.
fn wait_for_code(admin: SocketAddr, code: i32) -> String {
    let what = || format!("code {code}: {:?}", health(admin, &[]));
    wait_for(what, || {
        let answer = health(admin, &[]);
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        (answer.status.code() == Some(code)).then_some(text)
    })
}

const LISTENER: &str = "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n[[listener.target]]\nname = \"out\"\nto = \"null:\"\n";

#[test]
fn a_daemon_whose_only_sink_is_dead_is_unhealthy_until_it_works_and_alive_all_the_time() {
    let dir = TempDir::new();
    let store = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let config = format!(
        "{LISTENER}[[sink]]\nname = \"archive\"\nfrom = [\"in\"]\nto = \"tcp://{store}\"\nformat = \"jsonl\"\n"
    );
    fs::write(dir.file("weir.toml"), config).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    crate::support::generate(&["--to", weir.listen(), "--count", "10"]).all();

    let text = wait_for_code(weir.admin, 1);
    assert!(text.starts_with("unhealthy\nfailed: no sink works"), "{text}");
    assert!(
        text.contains("degraded: sink archive takes nothing: ") && text.contains("Fix: "),
        "{text}"
    );
    let json: Value = serde_json::from_slice(&health(weir.admin, &["--json"]).stdout).unwrap();
    assert_eq!((&json["healthy"], &json["lines"][0]), (&false.into(), &"unhealthy".into()));
    // A restart would not start the store.
    assert_eq!(health(weir.admin, &["--alive"]).status.code(), Some(0));

    let receiver = TcpListener::bind(store).unwrap();
    wait_for_code(weir.admin, 0);
    drop(receiver);
    weir.stop();
}

#[test]
fn a_daemon_is_healthy_while_one_target_works_and_says_which_does_not() {
    let dir = TempDir::new();
    let nobody = free_port();
    let config = format!(
        "{LISTENER}[[listener.target]]\nname = \"dead\"\nto = \"udp://127.0.0.1:{nobody}\"\n"
    );
    fs::write(dir.file("weir.toml"), config).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    assert_eq!(wait_for_code(weir.admin, 0), "healthy\n");

    // Refused by ICMP for as long as something is sent.
    let what = || format!("{:?}", health(weir.admin, &[]));
    wait_for(what, || {
        crate::support::generate(&["--to", weir.listen(), "--count", "20"]).all();
        let text = wait_for_code(weir.admin, 0);
        text.contains("degraded: target dead takes nothing").then_some(())
    });
    weir.stop();
}

#[test]
fn without_a_daemon_it_is_unavailable_and_with_a_token_others_see_the_status_alone() {
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    assert_eq!(health(nobody, &[]).status.code(), Some(69));

    let dir = TempDir::new();
    fs::write(dir.file("token"), "a-token-of-a-test-and-no-other\n").unwrap();
    let sink = format!("[[sink]]\nname = \"secret\"\nfrom = [\"in\"]\nto = \"tcp://{nobody}\"\n");
    let admin = format!("[admin]\ntoken_file = \"{}\"\n", dir.text("token"));
    fs::write(dir.file("weir.toml"), format!("{admin}{LISTENER}{sink}")).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    crate::support::generate(&["--to", weir.listen(), "--count", "10"]).all();
    let text = wait_for_code(weir.admin, 1);
    assert!(text.starts_with("unhealthy\n") && !text.contains("secret"), "{text}");
    let known = health(weir.admin, &["--token-file", &dir.text("token")]);
    assert!(String::from_utf8_lossy(&known.stdout).contains("sink secret"), "{known:?}");
    weir.stop();
}
