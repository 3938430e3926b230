//! `weir sink check`: one test record, step by step, without a daemon.

use crate::support::WEIR;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};
use testkit::TempDir;

fn write(dir: &TempDir, sinks: &str) {
    fs::write(dir.file("weir.toml"), format!("[sockets]\n{sinks}")).unwrap();
}

fn sink(name: &str, to: &str) -> String {
    format!("[[sink]]\nname = \"{name}\"\nfrom = [\"sockets\"]\nto = \"{to}\"\n")
}

fn check(dir: &TempDir, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(WEIR);
    command.args(["sink", "check", "-c", &dir.text("weir.toml")]).args(args);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_test_record_arrives_marked_as_one() {
    let dir = TempDir::new();
    let file = sink("disk", &format!("file:{}", dir.text("out.jsonl")));
    write(&dir, &(file + "fields = [\"state\"]\n" + &sink("void", "null:")));

    let (code, out, err) = check(&dir, &["disk"]);
    assert_eq!(code, Some(0), "{out}{err}");
    for step in ["write", "prepare", "send", "read back"] {
        assert!(out.contains(step), "{out}");
    }
    let line = fs::read_to_string(dir.file("out.jsonl")).unwrap();
    let record: Value = serde_json::from_str(&line).unwrap();
    let id = record["tags"]["weir_check"].as_str().unwrap_or_else(|| panic!("{record}"));
    assert!(out.contains(id), "{out}");

    let (code, out, _) = check(&dir, &["void", "--json"]);
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &result["ok"]), (Some(0), &Value::Bool(true)), "{out}");
    assert_eq!(result["steps"].as_array().unwrap().len(), 4);
}

#[test]
fn what_is_wrong_is_said_with_what_fixes_it() {
    let dir = TempDir::new();
    write(&dir, &sink("disk", "file:/no/such/folder/out.jsonl"));
    // The only sink needs no name.
    let (code, out, _) = check(&dir, &[]);
    assert_eq!(code, Some(69), "{out}");
    assert!(out.contains("FAILED") && out.contains("/no/such/folder/out.jsonl"), "{out}");
    assert!(out.contains("fix"), "{out}");

    let (code, _, err) = check(&dir, &["other"]);
    assert_eq!(code, Some(64), "{err}");
    assert!(err.contains("there is no sink \"other\"; there are disk"), "{err}");

    write(&dir, &sink("disk", "nowhere:/x"));
    assert_eq!(check(&dir, &[]).0, Some(78));
}
