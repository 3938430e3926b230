//! Blocks of commands in a page.

use std::path::Path;

/// A block of commands.
pub(super) struct Block {
    /// Page and line.
    pub(super) place: String,
    pub(super) kind: Kind,
    pub(super) commands: Vec<Command>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Commands alone: each has to run.
    List,
    /// Commands and what they print, in the scene of this name: ```` ```console SCENE ````.
    Console(String),
    /// The same, which cannot be run here, and why: ```` ```console not-run: REASON ````.
    NotRun(String),
}

/// A command line, and the lines that it prints.
pub(super) struct Command {
    pub(super) line: String,
    pub(super) output: Vec<String>,
}

/// What blocks may hold besides commands.
const OTHERS: [&str; 4] = ["sql", "text", "toml", "yaml"];

/// All blocks with commands of ours, fenced or indented.
///
/// # Panics
/// A fence does not say what it holds, or output stands in a block that says nothing of it.
pub(super) fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap();
    let name = page.file_name().unwrap().to_string_lossy();
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate().peekable();

    while let Some((at, line)) = lines.next() {
        let place = format!("{name}:{}", at + 1);
        if let Some(info) = line.trim_start().strip_prefix("```") {
            let inside = lines.by_ref().map(|(_, line)| line);
            let inside: Vec<&str> =
                inside.take_while(|line| !line.trim_start().starts_with("```")).collect();
            blocks.extend(fenced(place, info, &inside));
        } else if line.starts_with("    ") {
            let mut inside = vec![line];
            while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with("    ")) {
                inside.push(line);
            }
            blocks.push(list(place, &inside));
        }
    }
    blocks.retain(|block| !block.commands.is_empty());
    blocks
}

fn fenced(place: String, info: &str, inside: &[&str]) -> Option<Block> {
    let (language, rest) = info.split_once(' ').unwrap_or((info, ""));
    match language {
        "console" => {
            let kind = match rest.strip_prefix("not-run: ") {
                Some(reason) => Kind::NotRun(reason.to_owned()),
                None => Kind::Console(rest.to_owned()),
            };
            Some(Block { place, kind, commands: with_output(inside) })
        }
        "sh" => Some(list(place, inside)),
        _ => {
            assert!(OTHERS.contains(&language), "{place}: a fence of {language:?}");
            None
        }
    }
}

fn with_output(inside: &[&str]) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for line in inside {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(line), _) => commands.push(Command { line: line.to_owned(), output: Vec::new() }),
            (None, Some(command)) => command.output.push((*line).to_owned()),
            (None, None) => {}
        }
    }
    commands
}

/// Our commands among these lines, each without what explains it.
fn list(place: String, inside: &[&str]) -> Block {
    let whole = inside.join("\n").replace("\\\n", " ");
    let command = |line: &str| {
        let line = line.trim();
        assert!(!line.starts_with("$ weir"), "{place}: output belongs into a fence of console");
        let line = line.strip_prefix("sudo ").unwrap_or(line);
        let built = ["target/release/", "target/quick/"];
        let line = built.iter().find_map(|folder| line.strip_prefix(folder)).unwrap_or(line);
        // What stands in a column of its own explains the command.
        let line = line.split_once("   ").map_or(line, |(line, _)| line);
        let is_ours = line.starts_with("weir ") && !line.contains('…');
        is_ours.then(|| Command { line: line.to_owned(), output: Vec::new() })
    };
    let commands = whole.lines().filter_map(command).collect();
    Block { place, kind: Kind::List, commands }
}
