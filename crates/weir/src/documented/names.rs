//! Tests that nothing has two names: documents, deployment files and help must use the names in the code.

use crate::{Cli, exit};
use clap::{Command, CommandFactory};
use ledger::{HopKind, Reason, RejectClass};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Options of other programs that appear in the documents.
const OPTIONS_OF_OTHERS: &str = "active-connections api-hosts app-specific bench build-arg check data-urlencode database debug \
     dport features get idle-connections max-msg-size mem-queue-size multiquery network no-buffer no-clobber nocapture now only \
     read-only reconnect release rm set set-file short skip-tokens sync-every system target test time unix-socket uuid";

/// Words that start like metric names but are something else: tags, columns, tables, files.
const NO_METRICS: &str = "weir_check weir_grpc weir_kafka weir_0 weir_store weir_version";

/// Variables of the environment that are read, and those that the build, the tests and deployments have.
const VARIABLES: &str = "WEIR_CONFIG WEIR_ADMIN WEIR_ADMIN_LISTEN WEIR_TOKEN_FILE WEIR_CA_FILE WEIR_LOG_LEVEL WEIR_LOG_FORMAT WEIR_DRAIN_GRACE WEIR_COMMIT WEIR_NEWCOMERS \
     WEIR_LINK_CRASHES WEIR_SIM_SEEDS WEIR_TEST_KILLS";

/// Words with a former meaning or name, each with its current one.
const FORMER: &[(&str, &str)] = &[
    ("WEIR_URL", "WEIR_ADMIN"),
    ("--ledger http", "--admin"),
    ("weir ledger --url", "--admin"),
    ("weir lab telemetry", "weir lab udp-vs-tcp"),
    ("Try: ", "Fix:"),
    ("See: ", "Fix:"),
    ("tip: ", "Fix:"),
    ("`--url`", "--admin"),
];

/// Every file below a folder with one of these extensions.
fn files(folder: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(files(&entry, ends));
        } else if ends.iter().any(|end| entry.extension().is_some_and(|own| own == *end)) {
            found.push(entry);
        }
    }
    found.sort();
    found
}

/// Each document with its text: all pages, and all deployment files.
fn documents() -> Vec<(String, String)> {
    let root = testkit::root();
    let mut all =
        vec![root.join("README.md"), root.join("SECURITY.md"), root.join("ARCHITECTURE.md")];
    all.extend(files(&root.join("docs"), &["md"]));
    all.extend(files(&root.join("deploy"), &["md", "yaml", "json", "sql", "toml", "service"]));
    let name = |file: &Path| file.strip_prefix(&root).unwrap().display().to_string();
    all.iter().map(|file| (name(file), fs::read_to_string(file).unwrap())).collect()
}

/// The words of a text that start with `start` and consist of characters that `is_part` accepts.
fn words<'t>(text: &'t str, start: &str, is_part: impl Fn(char) -> bool) -> BTreeSet<&'t str> {
    let parts = text.split(|c: char| !is_part(c));
    parts.filter(|word| word.starts_with(start) && word.len() > start.len()).collect()
}

/// All visible commands, with their full names.
fn commands(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
    found.push((path.to_owned(), command.clone()));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        commands(below, &format!("{path} {}", below.get_name()), found);
    }
}

fn all_commands() -> Vec<(String, Command)> {
    let mut root = Cli::command();
    root.build();
    let mut found = Vec::new();
    commands(&root, "weir", &mut found);
    found
}

/// Names of a command's options, visible or not.
fn options(command: &Command) -> BTreeSet<String> {
    let arguments = command.get_arguments();
    let names = arguments.flat_map(|one| one.get_long_and_visible_aliases().unwrap_or_default());
    names.map(str::to_owned).collect()
}

#[test]
fn every_option_in_the_documents_is_taken() {
    let ours: BTreeSet<String> = all_commands().iter().flat_map(|(_, one)| options(one)).collect();
    let others: BTreeSet<&str> = OPTIONS_OF_OTHERS.split_whitespace().collect();
    let mut seen = BTreeSet::new();
    let mut unknown = Vec::new();

    for (name, text) in documents().iter().filter(|(name, _)| name.ends_with(".md")) {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        for word in words(text, "--", is_part) {
            let option = word.trim_start_matches('-').trim_end_matches('-');
            if option.starts_with(|c: char| c.is_ascii_lowercase()) && !ours.contains(option) {
                seen.insert(option.to_owned());
                unknown.extend((!others.contains(option)).then(|| format!("{name}: --{option}")));
            }
        }
    }

    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    let unused: Vec<_> = others.iter().filter(|one| !seen.contains(**one)).collect();
    assert!(unused.is_empty(), "no document names them any longer: {unused:?}");
}

#[test]
fn every_variable_in_the_documents_is_read() {
    let known: BTreeSet<&str> = VARIABLES.split_whitespace().collect();
    for (name, text) in documents() {
        let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
        let unknown = words(&text, "WEIR_", is_part).into_iter().find(|one| !known.contains(one));
        assert_eq!(unknown, None, "{name}");
    }
}

#[test]
fn every_metric_in_documents_and_deployment_is_in_the_table() {
    let table = fs::read_to_string(testkit::root().join("docs/metrics.md")).unwrap();
    let others: BTreeSet<&str> = NO_METRICS.split_whitespace().collect();
    let is_metric = |word: &str| {
        let ends = ["", "_bucket", "_sum", "_count"];
        let bare = ends.iter().filter_map(|end| word.strip_suffix(end));
        bare.into_iter().any(|bare| table.contains(&format!("| `{bare}` |")))
            // A group of metrics: weir_sink_*.
            || word.ends_with('_') && table.contains(&format!("| `{word}"))
    };
    let mut count = 0;
    for (name, text) in documents() {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        for word in words(&text, "weir_", is_part) {
            count += 1;
            assert!(is_metric(word) || others.contains(word), "{name}: {word}");
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn every_reason_that_is_asked_for_is_one_and_every_reason_is_explained() {
    let reasons = Reason::ALL.iter().map(|reason| reason.label());
    let known: BTreeSet<&str> =
        reasons.chain(RejectClass::ALL.iter().map(|class| class.label())).collect();
    let all: String = documents().into_iter().map(|(_, text)| text).collect();
    let unexplained: Vec<_> =
        known.iter().filter(|label| !all.contains(&format!("`{label}`"))).collect();
    assert!(unexplained.is_empty(), "no document has them: {unexplained:?}");

    for (name, text) in documents() {
        for label in ["reason=\"", "reason=~\"", "reason!=\"", "reason!~\""] {
            for rest in text.split(label).skip(1) {
                let asked = rest.split(['"', '\\']).next().unwrap_or_default();
                let unknown = asked.split('|').find(|one| {
                    let is_name = one.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                    is_name && !one.is_empty() && !known.contains(one)
                });
                assert_eq!(unknown, None, "{name}: {label}{asked}");
            }
        }
    }
}

#[test]
fn every_hop_is_explained_by_its_name() {
    let all: String = documents().into_iter().map(|(_, text)| text).collect();
    for hop in HopKind::ALL {
        let label = hop.label();
        let forms = [format!("`{label}`"), format!("hop=\"{label}\""), format!("hop={label}")];
        assert!(forms.iter().any(|form| all.contains(form)), "no document has {label}");
    }
}

/// Exit codes in a text: after `exit code 69`, `exits with 69`, and in lists such as `Exit code 0: …; 69: …`.
fn exit_codes(text: &str) -> BTreeSet<u8> {
    let text = text.replace(['`', '\n'], " ").to_lowercase();
    let mut codes = BTreeSet::new();
    for mark in ["exit code ", "exit codes: ", "exits with ", "exit code is "] {
        for rest in text.split(mark).skip(1) {
            let sentence = rest.split(". ").next().unwrap_or_default();
            for part in sentence
                .split("; ")
                .take_while(|part| part.starts_with(|c: char| c.is_ascii_digit()))
            {
                let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
                codes.extend(digits.parse::<u8>());
            }
        }
    }
    codes
}

#[test]
fn every_exit_code_in_documents_and_help_is_in_the_table() {
    let known: BTreeSet<u8> = exit::codes().map(|(code, _)| code).collect();
    let mut texts = documents();
    texts.extend(all_commands().into_iter().map(|(path, mut one)| {
        let help = one.render_long_help().to_string();
        (path, help)
    }));
    let mut found = BTreeSet::new();
    for (name, text) in texts {
        let codes = exit_codes(&text);
        let unknown = codes.iter().find(|code| !known.contains(code));
        assert_eq!(unknown, None, "{name}");
        found.extend(codes);
    }
    assert!(found.len() > 5, "{found:?}");
}

/// Paths in the HTTP server's sources: quoted text after a mark.
fn pages() -> BTreeSet<String> {
    let of = |file: &str, mark: &str| -> Vec<String> {
        let text = fs::read_to_string(testkit::root().join(file)).unwrap();
        let found = text.split(mark).skip(1).filter_map(|rest| rest.split('"').next());
        found.map(str::to_owned).filter(|page| !page.contains('{')).collect()
    };
    let mut pages: BTreeSet<String> =
        of("crates/admin/src/http.rs", ".route(\"").into_iter().collect();
    pages.extend(of("crates/admin/src/http.rs", "const RECORDS: &str = \""));
    let below = of("crates/weir/src/daemon/flow_pages.rs", "\"/flows/");
    pages.extend(below.into_iter().map(|page| format!("/flows/{page}")));
    pages
}

#[test]
fn every_page_of_the_admin_server_is_documented_and_every_documented_page_is_there() {
    let pages = pages();
    assert!(pages.len() > 10, "{pages:?}");
    let documents = documents();
    // sFlow-RT's pages have their own address.
    let ours = documents.iter().filter(|(name, _)| name != "docs/flows-rest.md");
    let all: String = documents.iter().map(|(_, text)| text.as_str()).collect();

    let is_documented = |page: &String| {
        let forms = ["`", "GET ", "9464"].map(|before| format!("{before}{page}"));
        forms.iter().any(|form| all.contains(form))
    };
    let missing: Vec<_> = pages.iter().filter(|page| !is_documented(page)).collect();
    assert!(missing.is_empty(), "no document has them: {missing:?}");

    for (name, text) in ours {
        for rest in text.split("`GET ").skip(1).chain(text.split(":9464/").skip(1)) {
            let page = rest.split(['`', '?', ' ', '\n', '"', '\'', ')', ',', ';']).next().unwrap();
            let page = format!("/{}", page.trim_start_matches('/').trim_end_matches(['.', ':']));
            let is_there = pages.contains(&page) || page.contains(['{', '…', '<']);
            assert!(is_there, "{name}: {page}");
        }
    }
}

#[test]
fn former_names_are_gone() {
    let mut texts = documents();
    texts.extend(all_commands().into_iter().map(|(path, mut one)| {
        let help = one.render_long_help().to_string();
        (path, help)
    }));
    for file in files(&testkit::root().join("crates"), &["rs"]) {
        let name = file.display().to_string();
        if name.contains("/src/") && !name.ends_with("documented/names.rs") {
            texts.push((name, fs::read_to_string(&file).unwrap()));
        }
    }
    for (name, text) in texts {
        for (former, now) in FORMER {
            assert!(!text.contains(former), "{name}: {former:?} is {now} now");
        }
    }
}

/// The number before a unit, after a mark.
fn figure<'t>(text: &'t str, mark: &str, unit: &str) -> Option<&'t str> {
    let before = text.split_once(mark)?.1.split_once(unit)?.0;
    before.rsplit(|c: char| !c.is_ascii_digit()).next().filter(|digits| !digits.is_empty())
}

#[test]
fn how_long_the_lab_takes_is_said_in_one_way() {
    let text = fs::read_to_string(testkit::root().join("docs/udp-vs-tcp.md")).unwrap();
    let commands = all_commands();
    let Some((_, lab)) = commands.iter().find(|(path, _)| path == "weir lab udp-vs-tcp") else {
        return;
    };
    let help = lab.clone().render_long_help().to_string();
    for (documented, helped, unit) in [
        ("weir lab udp-vs-tcp --quick", "--quick", " seconds"),
        ("weir lab udp-vs-tcp  ", "Takes about", " minutes"),
        ("| `--article` |", "--article", " minutes"),
    ] {
        let said = figure(&help, helped, unit);
        assert!(said.is_some(), "{helped}: {help}");
        // The text about the article's preset gives the length of one run before the total.
        let text = text.replace("runs of 20 minutes: about", "runs of 20 min: about");
        assert_eq!(figure(&text, documented, unit), said, "{documented}");
    }
}

#[cfg(feature = "lab")]
/// Text for a table cell: one line, without characters that would end the cell.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

#[cfg(feature = "lab")]
/// The page with all commands and options.
fn reference() -> String {
    let mut page = String::from(
        "# Commands\n\nEvery command with its options, as `weir help COMMAND` and `man weir-COMMAND` explain them. This page is generated.\n",
    );
    for (path, command) in all_commands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        page += &format!("\n## {path}\n\n{}\n", about.trim_end_matches('.').to_owned() + ".");
        let mut rows = String::new();
        for one in command.get_arguments().filter(|one| !one.is_hide_set()) {
            if matches!(one.get_id().as_str(), "help" | "version") {
                continue;
            }
            let default = one.get_default_values().iter().map(|value| value.to_string_lossy());
            let default = default.collect::<Vec<_>>().join(", ");
            let is_shown = one.get_action().takes_values() && !default.is_empty();
            let help = one.get_help().map(ToString::to_string).unwrap_or_default();
            let default = if is_shown { format!("`{default}`") } else { String::new() };
            let words = one.to_string();
            rows += &format!("| `{}` | {} | {default} |\n", cell(&words), cell(&help));
        }
        if !rows.is_empty() {
            page += &format!("\n| option | what it does | default |\n|---|---|---|\n{rows}");
        }
    }
    page
}

// A build without the lab has fewer commands.
#[cfg(feature = "lab")]
#[test]
fn generated_reference_of_commands() {
    testkit::generated("docs/commands.md", &reference());
}
