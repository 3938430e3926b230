//! The dependency rule of ARCHITECTURE.md: crates name only crates below them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Which workspace crates each crate may name in `[dependencies]`.
const ALLOWED: &[(&str, &[&str])] = &[
    ("sys", &[]),
    ("text", &[]),
    ("wire", &[]),
    // The waterfall is numbers for people.
    ("ledger", &["text"]),
    ("record", &["wire"]),
    ("hop", &[]),
    ("tls", &["ledger"]),
    ("relay", &["sys", "wire", "ledger", "hop"]),
    ("sockets", &["sys", "text", "wire", "record", "ledger"]),
    ("columns", &["record"]),
    ("sink", &["sys", "text", "columns", "record", "ledger", "tls"]),
    ("store", &["sys", "text", "columns", "record", "ledger"]),
    // The judge shares no code with what it judges, but for how numbers are written. It names the ledger's words, to say
    // where a datagram was lost, and none of the code that counts.
    ("load", &["sys", "text", "wire", "ledger"]),
    ("flows", &["sys", "text", "wire"]),
    ("mitigate", &[]),
    ("lab", &["sys", "text", "wire", "load", "hop"]),
    ("admin", &["ledger", "tls"]),
    (
        "config",
        &[
            "sys", "text", "wire", "ledger", "record", "hop", "relay", "sockets", "flows",
            "mitigate", "sink", "store",
        ],
    ),
    // For tests: named in `[dev-dependencies]` alone.
    ("testkit", &["sys"]),
    (
        "weir",
        &[
            "sys", "text", "wire", "ledger", "record", "hop", "relay", "sockets", "flows", "sink",
            "store", "load", "lab", "mitigate", "admin", "config", "tls",
        ],
    ),
];

/// Crates that the data path must stay free of, and who alone may name them.
const ASYNC: &[&str] = &["tokio", "axum", "hyper", "futures", "async-std", "smol"];
/// In `sink`, clients that want it have a runtime of one thread, the sink's own.
const ASYNC_ALLOWED_IN: &[&str] = &["admin", "mitigate", "sink", "weir"];

/// Crates with `unsafe` inside. Every other crate forbids it at its root.
const UNSAFE_ALLOWED_IN: &[&str] = &["sys", "relay", "store"];
/// In `store`, one file has the unsafe traits of SQLite's virtual tables: a promise about the layout of two structs, no block.
const STORE_UNSAFE_IN: &str = "table.rs";

#[test]
fn crates_depend_only_downwards() {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    for (name, dir) in crates() {
        let manifest = read(&dir.join("Cargo.toml"));
        let may = allowed
            .get(name.as_str())
            .unwrap_or_else(|| panic!("crates/{name} is not in the table"));
        for dep in dependencies(&manifest).filter(|dep| allowed.contains_key(dep)) {
            assert!(may.contains(&dep), "crates/{name} must not depend on {dep}");
        }
    }
}

#[test]
fn async_stays_out_of_the_data_path() {
    for (name, dir) in crates().filter(|(name, _)| !ASYNC_ALLOWED_IN.contains(&name.as_str())) {
        let manifest = read(&dir.join("Cargo.toml"));
        let named: Vec<&str> = dependencies(&manifest).filter(|dep| ASYNC.contains(dep)).collect();
        assert!(named.is_empty(), "crates/{name} must not depend on {named:?}");
    }
}

#[test]
fn in_the_store_one_file_has_two_unsafe_traits_and_no_unsafe_block() {
    let src = testkit::root().join("crates/store/src");
    assert!(read(&src.join("lib.rs")).contains("#![deny(unsafe_code)]"));
    for path in sources(&src) {
        let source = read(&path);
        let is_it = path == src.join(STORE_UNSAFE_IN);
        assert_eq!(source.matches("unsafe impl").count(), if is_it { 2 } else { 0 });
        assert!(!source.contains("unsafe {") && !source.contains("unsafe fn"), "{path:?}");
    }
}

#[test]
fn in_flows_one_module_reads_a_protocol() {
    let src = testkit::root().join("crates/flows/src");
    let reader = src.join("sflow");
    let is_test = |path: &Path| {
        path.strip_prefix(&src)
            .is_ok_and(|path| path.with_extension("").iter().any(|part| part == "tests"))
    };
    let (readers, engine): (Vec<_>, Vec<_>) = sources(&src)
        .into_iter()
        .filter(|path| !is_test(path))
        .partition(|path| path.with_extension("").starts_with(&reader));
    assert!(readers.iter().any(|path| read(path).contains("wire::sflow")));
    for path in engine {
        assert!(!read(&path).contains("wire::"), "{path:?} must not know what protocols look like");
    }
}

#[test]
fn only_three_crates_may_hold_unsafe_code() {
    for (name, dir) in crates().filter(|(name, _)| !UNSAFE_ALLOWED_IN.contains(&name.as_str())) {
        let root = ["lib.rs", "main.rs"]
            .iter()
            .map(|file| dir.join("src").join(file))
            .find(|path| path.is_file());
        let source = read(&root.unwrap_or_else(|| panic!("crates/{name} has no root file")));
        assert!(
            source.contains("#![forbid(unsafe_code)]"),
            "crates/{name} must forbid unsafe code at its root"
        );
    }
}

#[test]
fn the_table_is_read_as_cargo_reads_it() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\n# relay = 1\nsys.workspace = true\nlab = { path = \"..\" }\n\n\
                    [dev-dependencies]\nrelay.workspace = true\n[target.'cfg(unix)'.dependencies]\nledger = \"1\"\n\
                    [dependencies.admin]\nworkspace = true\n";
    assert_eq!(dependencies(manifest).collect::<Vec<_>>(), ["sys", "lab", "ledger", "admin"]);
}

fn crates() -> impl Iterator<Item = (String, PathBuf)> {
    let root = testkit::root().join("crates");
    fs::read_dir(root).expect("the crates folder").map(|entry| {
        let dir = entry.expect("a folder entry").path();
        (dir.file_name().expect("a name").to_string_lossy().into_owned(), dir)
    })
}

/// All files below a folder of a crate's code.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("a folder entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names in `[dependencies]`, `[target.….dependencies]` and `[dependencies.NAME]`. Edges that only tests have, in
/// `[dev-dependencies]`, stay free.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(table) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = table == "dependencies"
                || (table.starts_with("target.") && table.ends_with(".dependencies"));
            return table.strip_prefix("dependencies.");
        }
        let name = line
            .split(['.', ' ', '='])
            .next()
            .filter(|name| !name.is_empty() && !name.starts_with('#'));
        name.filter(|_| inside)
    })
}
