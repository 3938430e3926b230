//! What `ss` prints, read back.

use std::collections::{BTreeMap, HashMap};
use std::process::{Command, Stdio};
use testkit::Netns;

/// The fields of one line: by their names in the output of `ss`; what stands alone has an empty value.
pub(crate) type Fields = HashMap<String, String>;

/// Every TCP socket of a namespace by its cookie, as `ss -tinmHOae` lists them.
pub(crate) fn all(netns: &Netns) -> BTreeMap<u64, Fields> {
    let mut command = netns.command("ss");
    command.arg("-tinmHOae");
    parse(command)
}

pub(crate) fn parse(mut command: Command) -> BTreeMap<u64, Fields> {
    // It complains about cgroups that it cannot name, once for each socket.
    let output = command.stderr(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut sockets = BTreeMap::new();
    for line in text.lines() {
        let fields = line_fields(line);
        let cookie = fields.get("sk").unwrap_or_else(|| panic!("no cookie: {line}"));
        let cookie = u64::from_str_radix(cookie, 16).unwrap();
        assert!(sockets.insert(cookie, fields).is_none(), "twice: {line}");
    }
    sockets
}

fn line_fields(line: &str) -> Fields {
    /// Names whose value is the next word.
    const WITH_SPACE: [&str; 4] = ["send", "pacing_rate", "delivery_rate", "max_pacing_rate"];
    let mut fields = Fields::new();
    let mut words = line.split_whitespace();
    for name in ["state", "recv_q", "send_q", "local", "peer"] {
        fields.insert(name.to_owned(), words.next().unwrap().to_owned());
    }
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once(':') {
            Some((name, value)) => (name, value),
            None if WITH_SPACE.contains(&word) => (word, words.next().unwrap()),
            None => (word, ""),
        };
        fields.insert(name.to_owned(), value.to_owned());
    }
    let memory = fields.get("skmem").map(|text| text.trim_matches(['(', ')']).to_owned());
    for part in memory.iter().flat_map(|text| text.split(',')) {
        let digits = part.find(|c: char| c.is_ascii_digit()).unwrap();
        fields.insert(format!("skmem.{}", &part[..digits]), part[digits..].to_owned());
    }
    // `pacing_rate 12bps/34bps`: the rate and its limit.
    let pacing = fields.get("pacing_rate").cloned();
    if let Some((rate, limit)) = pacing.as_deref().and_then(|text| text.split_once('/')) {
        fields.insert("pacing_rate".to_owned(), rate.to_owned());
        fields.insert("max_pacing_rate".to_owned(), limit.to_owned());
    }
    fields
}
