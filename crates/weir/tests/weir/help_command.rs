//! What the program says about itself: `weir version`, `weir help`, `weir completions` and `weir man`.

use crate::support::WEIR;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::{TempDir, run};

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

#[test]
fn mistakes_on_the_command_line_begin_as_all_messages_do() {
    let (code, _, err) = weir(&["ledgr"]);
    assert_eq!(code, 64);
    assert!(
        err.starts_with("weir: unrecognized subcommand 'ledgr'. Fix: did you mean weir ledger?"),
        "{err}"
    );
}

#[test]
fn exit_codes_are_explained() {
    let (code, out, _) = weir(&["help", "exit-codes"]);
    assert_eq!(code, 0);
    assert!(out.starts_with("  0  Success\n  1  A check failed"), "{out}");
    assert!(out.contains("\n 78  The configuration is wrong\n"), "{out}");
}

/// The words of every command, those below others included, as `weir help` lists them.
fn commands(above: &[String]) -> Vec<Vec<String>> {
    let words: Vec<_> = above.iter().map(String::as_str).collect();
    let (_, help, _) = weir(&[&["help"], &words[..]].concat());
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));

    let mut all = Vec::new();
    for name in names.map(|line| line.split_whitespace().next().unwrap()) {
        let words = [above, &[name.to_owned()]].concat();
        let below = commands(&words);
        all.push(words);
        all.extend(below);
    }
    all
}

#[test]
fn bash_completes_every_command() {
    let dir = TempDir::new();
    let script = dir.file("weir.bash");
    fs::write(&script, weir(&["completions", "bash"]).1).unwrap();
    run(Command::new("bash").arg("-n").arg(&script));

    let all = commands(&[]);
    assert!(all.len() > 20 && all.contains(&vec!["config".into(), "check".into()]), "{all:?}");
    for words in all {
        assert!(completed(&script, &words).contains(words.last().unwrap()), "{words:?}");
    }
    let option = ["ledger", "--fail"].map(str::to_owned);
    assert_eq!(completed(&script, &option), ["--fail-on-loss"]);
}

/// What bash offers for the last word.
fn completed(script: &Path, words: &[String]) -> Vec<String> {
    let last = words.last().unwrap();
    let program = format!(
        "source {}; COMP_WORDS=(weir {}); COMP_CWORD={}; _weir weir {last} x; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.join(" "),
        words.len(),
    );
    let offered = run(Command::new("bash").args(["--norc", "-c", &program]));
    offered.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn zsh_and_fish_know_every_command() {
    for shell in ["zsh", "fish"] {
        let (code, script, _) = weir(&["completions", shell]);
        assert_eq!(code, 0);
        for words in commands(&[]) {
            assert!(script.contains(words.last().unwrap()), "{shell} {words:?}");
        }
    }
}

#[test]
fn every_command_has_a_page_in_the_manual() {
    let dir = TempDir::new();
    let folder = dir.file("man1");
    assert_eq!(weir(&["man", "--out", folder.to_str().unwrap()]).0, 0);
    for words in [&[Vec::new()], &commands(&[])[..]].concat() {
        let name = [&["weir".to_owned()], &words[..]].concat().join("-");
        let page = fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\""] {
            assert!(page.contains(&format!("\n.SH {section}\n")), "{name}: {section}");
        }
        assert!(page.contains("\n.TP\n\\fB78\\fR\nThe configuration is wrong\n"), "{page}");

        let words: Vec<_> = words.iter().map(String::as_str).collect();
        assert_eq!(weir(&[&["man"], &words[..]].concat()).1, page, "{name}");
    }
    assert_eq!(weir(&["man", "ledgr"]).0, 64);
    assert_eq!(weir(&["man", "--out", "/proc/weir"]).0, 74);
}
