//! `weir mitigate check`: what it says and how it ends.

use std::fs;
use std::process::{Command, Output};
use testkit::{TempDir, free_port};

fn check(args: &[&str]) -> (Option<i32>, String) {
    let own = ["mitigate", "check", "--own-network", "192.0.2.0/24"];
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(own).args(args).output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn a_dry_run_says_what_it_would_do() {
    let folder = TempDir::new();
    let log = folder.text("audit.jsonl");
    let socket = format!("exabgp:{}", folder.file("exabgp.sock").display());
    let (code, said) = check(&[
        "192.0.2.1",
        "--next-hop",
        "192.0.2.254",
        "--audit-log",
        &log,
        "--speaker",
        &socket,
    ]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(r#""dry_run":true"#), "{said}");
    assert!(said.contains(r#""actions":"blackhole via 192.0.2.254 65535:666""#), "{said}");
    assert!(fs::read_to_string(&log).unwrap().contains(r#""event":"announce""#));
}

#[test]
fn a_refusal_is_a_check_that_failed() {
    let folder = TempDir::new();
    let socket = format!("exabgp:{}", folder.file("exabgp.sock").display());
    let (code, said) = check(&["198.51.100.1", "--flowspec", "--announce", "--speaker", &socket]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is not in own_networks"), "{said}");
}

#[test]
fn a_speaker_that_is_not_there_is_unavailable() {
    let speaker = format!("gobgp://127.0.0.1:{}", free_port());
    let args =
        ["192.0.2.1", "--flowspec", "--announce", "--timeout", "300ms", "--speaker", &speaker];
    let (code, said) = check(&args);
    assert_eq!(code, Some(69), "{said}");
}

#[test]
fn a_socket_that_cannot_be_made_is_an_error() {
    let args = ["192.0.2.1", "--flowspec", "--speaker", "exabgp:/dev/null/x"];
    let (code, said) = check(&args);
    assert_eq!(code, Some(74), "{said}");
    assert!(said.contains("cannot listen at /dev/null/x"), "{said}");
}
