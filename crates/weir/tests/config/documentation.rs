//! docs/configuration.md and the files of the repository are held equal to the code.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use weir::config::keys::{Fallback, SECTIONS, SectionKeys};
use weir::config::{Config, list};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The part of the documentation that the table of keys says.
fn table(section: &SectionKeys) -> String {
    let mut out = format!(
        "### `{}`\n\n| key | value | default | what it does |\n|---|---|---|---|\n",
        section.header
    );
    for key in section.keys {
        let default = match key.fallback {
            Fallback::Required => "must be there".to_owned(),
            Fallback::Value(value) => format!("`{value}`"),
            Fallback::Absent(what) => format!("not set: {what}"),
        };
        writeln!(out, "| `{}` | {} | {default} | {} |", key.name, key.kind.describe(), key.meaning)
            .expect("writing to a string does not fail");
    }
    out
}

/// To write the documentation anew: `WEIR_UPDATE_DOCS=1 cargo test -p weir --test config documentation`.
#[test]
fn the_documentation_has_every_key_as_it_is_in_code() {
    const START: &str = "<!-- keys: held equal to crates/weir/src/config/keys.rs by a test -->\n";
    const END: &str = "<!-- end of keys -->\n";
    let path = repository("docs/configuration.md");
    let text = fs::read_to_string(&path).unwrap();
    let tables: Vec<String> = SECTIONS.iter().map(table).collect();
    let expected = format!("\n{}\n", tables.join("\n"));
    let (before, rest) = text.split_once(START).unwrap();
    let (documented, after) = rest.split_once(END).unwrap();
    if std::env::var_os("WEIR_UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{START}{expected}{END}{after}")).unwrap();
    } else {
        assert_eq!(documented, expected);
    }
}

#[test]
fn files_of_the_repository_are_right() {
    let mut checked = 0;
    for folder in ["examples", "deploy/systemd"] {
        for entry in fs::read_dir(repository(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let text = fs::read_to_string(&path).unwrap();
                let result = Config::parse(&text, &path.display().to_string());
                result.unwrap_or_else(|errors| panic!("{}", list(&errors)));
                checked += 1;
            }
        }
    }
    assert!(checked > 0);
}
