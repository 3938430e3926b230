//! Tests what the documents tell people to type: this program must accept every command line in them.

mod names;

use crate::Cli;
use clap::Parser;
use clap::error::ErrorKind;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the documents are, from the root of the repository. A folder stands for its own pages, without its subfolders.
const PLACES: [&str; 6] =
    ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "bench", "deploy"];

/// A command line, and where it was found.
struct Line {
    place: String,
    words: Vec<String>,
}

#[test]
fn every_command_line_in_a_code_block_is_one_that_is_taken() {
    let lines: Vec<Line> = pages().iter().flat_map(|page| lines_in_blocks(page)).collect();
    let refused: Vec<String> = lines.iter().filter_map(|line| refusal(line, |_| true)).collect();

    assert!(lines.len() > 50, "only {} lines found", lines.len());
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn every_command_in_running_text_exists_with_its_options() {
    // Text may name a command without its required arguments: `weir ledger --through`.
    let unknown = |kind| matches!(kind, ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
    // In this file `weir hop` is the name of the protocol.
    let pages = pages().into_iter().filter(|page| !page.ends_with("hop-wire.md"));
    let lines: Vec<Line> = pages.flat_map(|page| lines_in_text(&page)).collect();
    let refused: Vec<String> = lines.iter().filter_map(|line| refusal(line, unknown)).collect();

    assert!(lines.len() > 50, "only {} lines found", lines.len());
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn every_command_that_fixes_a_mistake_is_one_that_is_taken() {
    let folder = testkit::root().join("crates/weir/tests/weir/mistakes");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let lines: Vec<Line> = files.flat_map(|file| lines_in_advice(&file)).collect();
    // Some are named without their required arguments: `weir relay`.
    let is_wrong = |kind| !matches!(kind, ErrorKind::MissingRequiredArgument);
    let refused: Vec<String> = lines.iter().filter_map(|line| refusal(line, is_wrong)).collect();

    assert!(lines.len() > 50, "only {} lines found", lines.len());
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// This program's commands in the advice of error messages.
fn lines_in_advice(file: &Path) -> Vec<Line> {
    let text = fs::read_to_string(file).unwrap();
    let advice = text.lines().enumerate().filter_map(|(at, line)| {
        let (_, advice) = line.split_once("Fix: ")?;
        Some((at, advice))
    });
    let parts = advice.flat_map(|(at, advice)| {
        // A command stands between backticks, after a colon, or fills the advice up to an explanation.
        let parts = advice.split([';', '`']).flat_map(|part| part.split(": "));
        let parts = parts.flat_map(|part| part.split(", ")).flat_map(|part| part.split(" or "));
        parts.map(move |part| (at, part.trim())).collect::<Vec<_>>()
    });
    let commands = parts.filter(|(_, part)| !part.contains(" which ") && !part.contains(" stays "));
    commands
        .filter_map(|(at, part)| {
            let part = part.split_once(" lists ").map_or(part, |(part, _)| part);
            let part = part.trim_end_matches('?');
            Some(Line { place: place(file, at), words: command(part)? })
        })
        .collect()
}

/// Why a line is refused, if the error is of a kind that counts.
fn refusal(line: &Line, counts: impl Fn(ErrorKind) -> bool) -> Option<String> {
    let error = Cli::try_parse_from(&line.words).err()?;
    let is_told = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let why = error.to_string();
    (!is_told && counts(error.kind())).then(|| format!("{}: {:?}\n{why}", line.place, line.words))
}

fn pages() -> Vec<PathBuf> {
    let root = testkit::root();
    let mut pages = Vec::new();
    for place in PLACES.map(|place| root.join(place)) {
        if place.is_dir() {
            let files = fs::read_dir(place).unwrap().map(|file| file.unwrap().path());
            pages.extend(files.filter(|file| file.extension().is_some_and(|end| end == "md")));
        } else {
            pages.push(place);
        }
    }
    pages
}

/// Command lines in fenced and in indented blocks.
fn lines_in_blocks(page: &Path) -> Vec<Line> {
    let text = fs::read_to_string(page).unwrap();
    let mut is_fenced = false;
    let mut found = Vec::new();
    let mut numbered = text.lines().enumerate();

    while let Some((at, line)) = numbered.next() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        if !is_fenced && !line.starts_with("    ") {
            continue;
        }
        let mut whole = line.trim().to_owned();
        while whole.ends_with('\\') {
            whole.pop();
            whole += numbered.next().map_or("", |(_, line)| line.trim());
        }
        found.extend(command(&whole).map(|words| Line { place: place(page, at), words }));
    }
    found
}

/// Commands between backticks.
fn lines_in_text(page: &Path) -> Vec<Line> {
    let text = fs::read_to_string(page).unwrap();
    let spans = text
        .lines()
        .enumerate()
        .flat_map(|(at, line)| line.split('`').skip(1).step_by(2).map(move |span| (at, span)));
    spans
        .filter_map(|(at, span)| Some(Line { place: place(page, at), words: command(span)? }))
        .collect()
}

fn place(page: &Path, at: usize) -> String {
    format!("{}:{}", page.file_name().unwrap().to_string_lossy(), at + 1)
}

/// The words of a line that runs `weir`, perhaps with sudo or from the target folder, up to the end of that command.
fn command(line: &str) -> Option<Vec<String>> {
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let built = ["target/release/", "target/quick/"];
    let line = built.iter().find_map(|folder| line.strip_prefix(folder)).unwrap_or(line);
    // Text in a separate column explains the command.
    let line = line.split_once("   ").map_or(line, |(line, _)| line);
    // Dots stand for omitted text, and a bar for alternatives.
    if !line.starts_with("weir ")
        || line.contains("\\|")
        || line.contains('…')
        || line.contains("...")
    {
        return None;
    }
    let words = shell_words(line);
    let is_command =
        words.get(1).is_some_and(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
    is_command.then_some(words)
}

/// Splits as a shell does, up to a comment, a pipe, a redirection or the next command.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();

    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let quoted: String = chars.by_ref().take_while(|next| *next != c).collect();
                word.get_or_insert_default().push_str(&quoted);
            }
            ' ' => words.extend(word.take()),
            '#' if word.is_none() => break,
            '|' | '>' | '<' | ';' | '&' => break,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
