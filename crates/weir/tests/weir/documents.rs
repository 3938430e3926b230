//! What the documents show is what the program does: every command of ours in them is run, and what they say that it prints
//! is compared with what it prints, but for figures.

mod blocks;
mod compare;
mod scene;

use blocks::{Block, Kind, blocks};
use scene::Scene;
use std::path::PathBuf;
use testkit::{need_root_netns, root};

/// Commands that are not run here, by how they begin, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("weir lab", "takes minutes; lab_command.rs and lab_more.rs run short ones"),
    ("weir sink check", "needs a broker or a store; sink_check.rs has them"),
    ("weir mitigate check", "needs a BGP speaker; mitigate_command.rs has one"),
    ("weir ledger --admin sender", "needs two hosts with a link; link.rs makes them"),
    (
        "weir verify --listen 127.0.0.1:7001 --listen",
        "needs a relay to join; gen_verify_command.rs has one",
    ),
    ("weir top", "needs a terminal; top.rs has one"),
    ("weir gen --from", "needs a file of lines; gen_verify_command.rs has some"),
    ("weir ledger --admin https", "needs a certificate; remote.rs makes one"),
    ("weir ui --admin https", "needs a certificate; remote.rs makes one"),
    ("weir query", "needs a history; query_command.rs makes one"),
    ("weir view", "needs a ClickHouse; fleet/view.rs has one"),
    (
        "weir config check /etc/weir/conf.d",
        "needs that folder; sources.rs of crate config makes some",
    ),
    ("weir run -c /etc/weir/conf.d", "needs that folder; sources.rs of crate config makes some"),
];

/// Blocks of console that cannot be run here. Each new one needs its reason, and this bound raised.
const NOT_RUN_BLOCKS_MAX: usize = 5;

/// Codes for a command that is wrong, or for a program that is: 1, 69 and 75 are for what it found.
const WRONG: [i32; 8] = [2, 64, 65, 66, 74, 77, 78, 101];

/// README and the pages of docs/.
fn pages() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|file| file.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let mut pages: Vec<PathBuf> = docs.collect();
    pages.sort();
    pages.insert(0, root().join("README.md"));
    pages
}

fn all_blocks() -> Vec<Block> {
    pages().iter().flat_map(|page| blocks(page)).collect()
}

/// Why a command is not run; `None` for one that is.
fn reason(line: &str) -> Option<&'static str> {
    NOT_RUN.iter().find(|(start, _)| line.starts_with(start)).map(|(_, reason)| *reason)
}

#[test]
fn every_output_is_what_the_command_prints() {
    if !need_root_netns() {
        return;
    }
    let blocks = all_blocks();
    let consoles = blocks.iter().filter_map(|block| match &block.kind {
        Kind::Console(scene) => Some((block, scene)),
        _ => None,
    });

    let mut compared = 0;
    for (block, name) in consoles {
        let mut scene = Scene::named(name, &block.place);
        for command in &block.commands {
            scene.compare(&block.place, &command.line, &command.output);
            compared += 1;
        }
    }
    assert!(compared >= 8, "{compared} outputs");
}

#[test]
fn every_command_runs() {
    if !need_root_netns() {
        return;
    }
    let (mut ran, mut failures) = (0, Vec::new());
    for block in all_blocks().iter().filter(|block| block.kind == Kind::List) {
        let lines = || block.commands.iter().map(|command| command.line.as_str());
        if lines().all(|line| reason(line).is_some()) {
            continue;
        }
        let mut scene = Scene::of(lines());
        for line in lines().filter(|line| reason(line).is_none()) {
            scene.run(&block.place, line);
            ran += 1;
        }
        failures.extend(scene.end(&block.place));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(ran > 50, "{ran} commands");
}

#[test]
fn what_is_not_run_is_bounded_and_has_a_reason() {
    let blocks = all_blocks();
    let lines = |block: &Block| {
        block.commands.iter().map(|command| command.line.clone()).collect::<Vec<_>>()
    };
    let listed = blocks.iter().filter(|block| block.kind == Kind::List);
    let listed: Vec<String> = listed.flat_map(lines).collect();
    for (start, _) in NOT_RUN {
        assert!(listed.iter().any(|line| line.starts_with(start)), "{start} is nowhere");
    }

    let reasons = blocks.iter().filter_map(|block| match &block.kind {
        Kind::NotRun(reason) => Some(reason),
        _ => None,
    });
    let reasons: Vec<&String> = reasons.collect();
    assert!(reasons.iter().all(|reason| reason.split_whitespace().count() > 2), "{reasons:?}");
    assert!(reasons.len() <= NOT_RUN_BLOCKS_MAX, "{reasons:?}");
}
