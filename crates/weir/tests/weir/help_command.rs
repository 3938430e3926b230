//! `weir version` and `weir help`.

use crate::support::WEIR;
use serde_json::Value;
use std::process::Command;

/// Exit code, standard output, standard error.
fn weir(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(WEIR).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_version_says_what_was_built() {
    let (code, out, err) = weir(&["version", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let version: Value = serde_json::from_str(&out).unwrap();
    let text = |key: &str| version[key].as_str().unwrap().to_owned();
    assert_eq!(text("version"), env!("CARGO_PKG_VERSION"));
    assert!(text("target").contains("-linux-"), "{out}");
    let features = version["features"].as_array().unwrap();
    assert_eq!(features.contains(&"kafka".into()), cfg!(feature = "kafka"), "{out}");

    let short = format!("weir {} ({})\n", text("version"), text("commit"));
    assert_eq!(weir(&["--version"]), (0, short, String::new()));
    let (code, out, _) = weir(&["version"]);
    let first = format!("weir {}\ncommit    {}\n", text("version"), text("commit"));
    assert!(code == 0 && out.starts_with(&first), "{out}");
    assert_eq!(weir(&["run", "--version"]).0, 64, "a command has no version of its own");
}

#[test]
fn help_says_what_the_commands_own_help_says() {
    for words in [&[][..], &["run"], &["config", "check"], &["help"]] {
        let by_flag = weir(&[words, &["--help"]].concat());
        assert_eq!(by_flag.0, 0);
        assert_eq!(weir(&[&["help"], words].concat()), by_flag, "{words:?}");
    }
    let (code, out, err) = weir(&["help", "config", "chek"]);
    assert_eq!((code, out.as_str()), (64, ""));
    assert!(err.contains("check"), "{err}");
}
