//! The message for a wrong command line: what is wrong, and what to type instead.

use crate::Cli;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

/// An example command line for each command that needs more than its name.
const EXAMPLES: &[(&str, &str)] = &[
    ("run", "weir run -c weir.toml"),
    ("relay", "weir relay --listen 127.0.0.1:5514 --to 10.0.0.1:514"),
    ("namespace-helper", "weir namespace-helper --listen /run/weir/helper.sock"),
    ("flows", "weir flows --listen :6343"),
    ("gen", "weir gen --to 127.0.0.1:5514"),
    ("gen sflow", "weir gen sflow --to 127.0.0.1:6343"),
    ("verify", "weir verify --listen 127.0.0.1:5514"),
    ("hop key", "weir hop key web-1"),
    (
        "mitigate check",
        "weir mitigate check 192.0.2.1 --own-network 192.0.2.0/24 --next-hop 192.0.2.254",
    ),
    ("completions", "weir completions bash"),
];

/// What users of other programs type, and its equivalent here. The first word is the command, or empty for none.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("", "status", "weir ledger"),
    ("", "stats", "weir ledger"),
    ("", "metrics", "weir ledger"),
    ("", "watch", "weir ledger --watch"),
    ("", "start", "weir run -c weir.toml"),
    ("", "daemon", "weir run -c weir.toml"),
    ("", "-c", "weir run -c weir.toml"),
    ("", "--config", "weir run -c weir.toml"),
    ("", "restart", "weir stop && weir run -c weir.toml"),
    ("", "quit", "weir stop"),
    ("", "ss", "weir sockets"),
    ("", "netstat", "weir sockets"),
    ("", "tee", "weir relay --listen :514 --to 10.0.0.1:514"),
    ("", "forward", "weir relay --listen :514 --to 10.0.0.1:514"),
    ("", "listen", "weir relay --listen :514 --to file:copy.log"),
    ("", "check", "weir config check weir.toml"),
    ("", "test", "weir config check weir.toml"),
    ("", "validate", "weir config check weir.toml"),
    ("", "init", "weir config example > weir.toml"),
    ("", "bench", "weir lab relay"),
    ("", "sflow", "weir flows --listen :6343"),
    ("", "-v", "weir version"),
    ("config", "test", "weir config check weir.toml"),
    ("config", "validate", "weir config check weir.toml"),
    ("config", "init", "weir config example > weir.toml"),
    ("config", "dump", "weir config show weir.toml"),
    ("config example", "weir.toml", "weir config example > weir.toml"),
    ("run", "-f", "weir run -c weir.toml"),
    ("run", "--file", "weir run -c weir.toml"),
    ("run", "--daemon", "leave it out, as weir run stays in the foreground"),
    ("run", "-d", "leave it out, as weir run stays in the foreground"),
    ("run", "-D", "leave it out, as weir run stays in the foreground"),
    ("relay", "-l", "use --listen, as in: weir relay --listen :514 --to null:"),
    ("relay", "-u", "leave it out, as UDP is what weir relay receives"),
    ("relay", "-t", "use --to, as in: weir relay --listen :514 --to null:"),
    ("relay", "--target", "use --to, as in: weir relay --listen :514 --to null:"),
    ("relay", "-c", "weir run -c weir.toml"),
    ("relay", "--config", "weir run -c weir.toml"),
    ("relay", "--verbose", "use --log-level debug"),
    ("relay", "-v", "use --log-level debug"),
    ("run", "--verbose", "use --log-level debug"),
    ("run", "-v", "use --log-level debug"),
    ("ledger", "-f", "weir ledger --watch"),
    ("ledger", "--follow", "weir ledger --watch"),
    ("top", "-d", "use --interval, as in: weir top --interval 1s"),
    ("gen", "-n", "use --count, as in: weir gen --to 127.0.0.1:5514 --count 100"),
    ("gen", "-c", "use --count, as in: weir gen --to 127.0.0.1:5514 --count 100"),
    (
        "sockets",
        "-x",
        "leave it out, as only TCP and UDP sockets are read; ss -x shows unix sockets",
    ),
    ("sockets", "-r", "leave it out, as addresses are always numbers"),
    ("sockets", "-i", "weir sockets --info"),
    ("reload", "-c", "weir reload, as the daemon knows its file"),
    ("reload", "weir.toml", "weir reload, as the daemon knows its file"),
    ("stop", "--force", "weir stop --timeout 1s"),
    ("stop", "-f", "weir stop --timeout 1s"),
    ("flows", "-r", "use --pcap, as in: weir flows --pcap FILE"),
    ("flows", "-i", "weir flows --listen :6343"),
    ("doctor", "--fix", "run the commands that `weir doctor` prints"),
];

/// Most commands that are named as owners of an option.
const OWNERS_MAX: usize = 3;

/// Clap's message about a wrong command line, as one line that ends with the fix, with the command's usage below.
pub(crate) fn told(error: &clap::Error) -> String {
    let text = error.to_string();
    let Some(text) = text.strip_prefix("error: ") else {
        // The help of a command that was given no arguments.
        return text;
    };

    let mut parts = text.split("\n\n");
    let (what, values) = what_is_wrong(parts.next().unwrap_or_default());
    let usage = parts.find(|part| part.starts_with("Usage: "));

    let words: Vec<String> = std::env::args().skip(1).collect();
    let root = Cli::command();
    let (path, command) = named(&root, &words);
    let fix = match values {
        _ if what.contains(". Fix: ") => return format!("weir: {what}\n"),
        Some(values) => format!("write one of {values}"),
        None => fix(error, &words, &path, command, &root),
    };

    // If the only fix is to read the help, show the usage too.
    let usage = usage.filter(|_| fix == help(&path)).map(|usage| format!("\n{}", usage.trim_end()));
    format!("weir: {what}. Fix: {fix}{}\n", usage.unwrap_or_default())
}

/// The first paragraph as one line, and the possible values.
fn what_is_wrong(paragraph: &str) -> (String, Option<String>) {
    let (what, values) = match paragraph.split_once("\n  [possible values: ") {
        Some((what, values)) => (what, Some(values.trim_end().trim_end_matches(']').to_owned())),
        None => (paragraph.trim_end(), None),
    };
    let what = what.replace(":\n  ", ": ").replace("\n  ", ", ");
    (
        what.replace(
            "invalid digit found in string",
            "it is not a whole number. Fix: write a number",
        ),
        values,
    )
}

/// The deepest command that the words name: its path, and the command.
fn named<'c>(root: &'c Command, words: &[String]) -> (String, &'c Command) {
    let mut command = root;
    let mut path = Vec::new();
    for word in words {
        let Some(below) = command.find_subcommand(word) else { break };
        path.push(word.as_str());
        command = below;
    }
    (path.join(" "), command)
}

fn fix(
    error: &clap::Error,
    words: &[String],
    path: &str,
    command: &Command,
    root: &Command,
) -> String {
    let wrong = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => ContextKind::InvalidArg,
    };
    let wrong = match error.get(wrong) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => "",
    };

    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            unknown(error, wrong, path, root)
        }
        ErrorKind::MissingRequiredArgument => {
            let is_bare = words.len() == path.split_whitespace().count();
            let example = example(path).filter(|_| is_bare);
            example.unwrap_or_else(|| format!("add {}", missing(error)))
        }
        ErrorKind::InvalidValue => format!("write {wrong}"),
        ErrorKind::ArgumentConflict if command.has_subcommands() => help(path),
        ErrorKind::ArgumentConflict => format!("leave {wrong} out"),
        _ => help(path),
    }
}

/// The first missing required argument.
fn missing(error: &clap::Error) -> &str {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(all)) => all.first().map_or("it", String::as_str),
        Some(ContextValue::String(one)) => one,
        _ => "it",
    }
}

/// What a word may have meant that this command does not know.
fn unknown(error: &clap::Error, word: &str, path: &str, root: &Command) -> String {
    let known = ELSEWHERE.iter().find(|(of, known, _)| (*of, *known) == (path, word));
    if let Some((.., meant)) = known {
        return (*meant).to_owned();
    }
    if word.ends_with(".toml") && matches!(path, "run" | "doctor") {
        return format!("weir {path} -c {word}");
    }
    if path == "ledger" && !word.starts_with('-') {
        return format!("weir ledger --admin {word}");
    }
    // Before merely similar words: a complete option name is meant as that option.
    let option = word.trim_start_matches('-');
    let owners = owners(root, "weir", option);
    if word.starts_with("--") && !owners.is_empty() {
        let shown = owners.iter().take(OWNERS_MAX).cloned().collect::<Vec<_>>().join(", ");
        return format!("leave it out; it is an option of {shown}");
    }
    if let Some(near) = nearest(error, path) {
        return format!("did you mean {near}?");
    }
    match example(path) {
        Some(example) if !word.starts_with('-') => example,
        _ => help(path),
    }
}

/// Clap's suggestion.
fn nearest(error: &clap::Error, path: &str) -> Option<String> {
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand];
    let found = kinds.iter().find_map(|kind| error.get(*kind))?;
    let words = match found {
        ContextValue::String(word) => std::slice::from_ref(word),
        ContextValue::Strings(words) => words,
        _ => return None,
    };
    let before = if words[0].starts_with('-') { String::new() } else { prefix(path) };
    Some(words.iter().map(|word| format!("{before}{word}")).collect::<Vec<_>>().join(" or "))
}

fn prefix(path: &str) -> String {
    if path.is_empty() { "weir ".to_owned() } else { format!("weir {path} ") }
}

/// The commands that have an option of this name.
fn owners(command: &Command, path: &str, option: &str) -> Vec<String> {
    let has = command.get_arguments().any(|one| one.get_long() == Some(option));
    let own = has.then(|| path.to_owned());
    let below = command.get_subcommands().flat_map(|below| {
        let path = format!("{path} {}", below.get_name());
        owners(below, &path, option)
    });
    own.into_iter().chain(below).collect()
}

fn example(path: &str) -> Option<String> {
    EXAMPLES.iter().find(|(of, _)| *of == path).map(|(_, line)| (*line).to_owned())
}

fn help(path: &str) -> String {
    format!("{}--help lists what it takes", prefix(path))
}

#[cfg(test)]
mod alike;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn what_is_advised_is_taken() {
        let lines = EXAMPLES.iter().map(|(_, line)| *line);
        let lines = lines.chain(ELSEWHERE.iter().map(|(.., meant)| *meant));
        // An example follows a colon, and text for the shell follows the example.
        let lines = lines.filter_map(|line| line.rsplit(": ").next()?.split(", as ").next());
        let lines: Vec<_> = lines.filter(|line| line.starts_with("weir ")).collect();
        assert!(lines.len() > 30, "{lines:?}");
        for line in lines {
            for one in line.split(" && ") {
                let words = one.split(" > ").next().unwrap().split(' ');
                assert!(Cli::try_parse_from(words).is_ok(), "{one}");
            }
        }
    }

    #[test]
    fn what_is_advised_is_about_commands_that_are_there() {
        let root = Cli::command();
        let of = EXAMPLES.iter().map(|(of, _)| *of).chain(ELSEWHERE.iter().map(|(of, ..)| *of));
        for path in of {
            let words: Vec<String> = path.split_whitespace().map(str::to_owned).collect();
            assert_eq!(named(&root, &words).0, path);
        }
    }
}
