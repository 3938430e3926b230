//! Every example in the repository is a configuration that Weir accepts: the files, the blocks in the documents, and
//! the one inside the Kubernetes manifest.

use config::Config;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn example_files_are_accepted() {
    let mut files = files_in("examples", "toml");
    files.extend(files_in("deploy/systemd", "toml"));
    files.extend(files_in("deploy/compose", "toml"));
    assert!(files.len() >= 6, "only {files:?}");
    for file in files {
        check(&read(&file), &file.display().to_string());
    }
}

#[test]
fn toml_blocks_in_documents_are_accepted() {
    let mut documents = files_in("docs", "md");
    documents.extend(files_in(".", "md"));
    let mut blocks = 0;
    for document in documents {
        for block in fenced(&read(&document), "toml") {
            check(&with_sources(block), &document.display().to_string());
            blocks += 1;
        }
    }
    assert!(blocks > 0, "no document shows a configuration");
}

#[test]
fn the_config_maps_are_accepted() {
    let manifests = files_in("deploy/kubernetes", "yaml");
    assert!(manifests.len() >= 2, "only {manifests:?}");
    for manifest in manifests {
        let text: String = read(&manifest)
            .lines()
            .skip_while(|line| *line != "  weir.toml: |")
            .skip(1)
            .take_while(|line| line.is_empty() || line.starts_with("    "))
            .map(|line| format!("{}\n", line.get(4..).unwrap_or_default()))
            .collect();
        assert!(!text.is_empty(), "{} has no weir.toml", manifest.display());
        check(&text, &format!("the ConfigMap of {}", manifest.display()));
    }
}

fn check(text: &str, origin: &str) {
    if let Err(errors) = Config::parse(text, origin) {
        panic!("{origin} is not accepted:\n{}\n{text}", config::list(&errors));
    }
}

/// A block that shows a sink alone, with what it takes its rows from.
fn with_sources(block: String) -> String {
    if !block.starts_with("[[sink]]") {
        return block;
    }
    let takes_syslog = block.contains("\"syslog\"");
    let listener = "[[listener]]\nname = \"syslog\"\nlisten = \":5514\"\n";
    block + if takes_syslog { listener } else { "[sockets]\n" }
}

/// The blocks of a Markdown text that open with this word.
fn fenced(text: &str, word: &str) -> Vec<String> {
    let opening = format!("```{word}");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while lines.by_ref().any(|line| line == opening) {
        let block = lines.by_ref().take_while(|line| *line != "```");
        blocks.push(block.map(|line| format!("{line}\n")).collect());
    }
    blocks
}

fn files_in(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(testkit::root().join(folder)).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("a folder entry").path());
    paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
