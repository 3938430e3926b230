//! Keeps docs/configuration.md and the repository's files equal to the code.

use config::keys::{Fallback, SECTIONS, Section};
use config::{Config, list};
use std::fmt::Write;
use std::fs;
use testkit::{generated_part, root};

/// The part of the documentation generated from the tables of a section.
fn documented(section: &Section) -> String {
    let mut out = format!("### `{}`\n\n", section.header);
    for table in section.tables {
        if !table.of.is_empty() {
            writeln!(out, "\nOnly {} have:\n", table.of)
                .expect("writing to a string does not fail");
        }
        out.push_str("| key | value | default | what it does |\n|---|---|---|---|\n");
        for key in table.keys {
            let default = match key.fallback {
                Fallback::Required => "must be there".to_owned(),
                Fallback::Value(value) => {
                    let value = value();
                    format!("`{}`", value.as_str().map_or(value.to_string(), str::to_owned))
                }
                Fallback::Absent(what) => format!("not set: {what}"),
            };
            let form = (key.form)();
            writeln!(out, "| `{}` | {form} | {default} | {} |", key.name, key.meaning)
                .expect("writing to a string does not fail");
        }
    }
    out
}

#[test]
fn the_generated_documentation_has_every_key_as_it_is_in_code() {
    const START: &str = "<!-- keys: made of the tables in crates/config by a test -->\n";
    const END: &str = "<!-- end of keys -->\n";

    let sections: Vec<String> = SECTIONS.iter().map(documented).collect();
    let text = format!("\n{}\n", sections.join("\n"));
    generated_part("docs/configuration.md", [START, END], &text);
}

#[test]
fn files_of_the_repository_are_right() {
    let mut checked = 0;
    for folder in ["examples", "deploy/systemd"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let text = fs::read_to_string(&path).unwrap();
                let mistakes = Config::parse(&text, &path.display().to_string()).err();
                let mut mistakes = mistakes.unwrap_or_default();
                // The smallest build lacks kinds of sinks that the files have.
                mistakes.retain(|mistake| !mistake.message.contains("this build has no "));
                assert!(mistakes.is_empty(), "{}", list(&mistakes));
                checked += 1;
            }
        }
    }
    assert!(checked > 0);
}
