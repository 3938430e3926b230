//! What a capture holds besides the shown sockets, and what it lacks.

use std::collections::BTreeMap;
use std::io;
use text::plural;
use wire::DecodeError;
use wire::capture::{Asked, Failure, Meaning, Protocol, Reader, Replies};

/// `ENOENT` and `ESTALE`: the kernel has no socket of this identity.
const NOT_FOUND: [i32; 2] = [2, 116];

/// Everything to report about a file after reading it.
#[derive(Default, PartialEq, Eq, Debug)]
pub(in crate::command::sockets) struct Report {
    broken: BTreeMap<&'static str, u64>,
    other: BTreeMap<Protocol, u64>,
    untold: u64,
    failed: BTreeMap<(Option<Protocol>, Asked, i32), u64>,
    not_found: u64,
    lost: u64,
    unanswered: BTreeMap<Option<Protocol>, u64>,
    headless: u64,
    interrupted: u64,
    skipped_packets: u64,
    dropped_packets: u64,
    is_cut: bool,
}

impl Report {
    pub(super) fn note(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Other(protocol) => *self.other.entry(protocol).or_default() += 1,
            Meaning::Untold => self.untold += 1,
            Meaning::Failed(Failure { asked: Asked::LookUp, errno, .. })
                if NOT_FOUND.contains(&errno) =>
            {
                self.not_found += 1;
            }
            // A destroy request reads nothing, so its failure does not matter.
            Meaning::Failed(Failure { asked: Asked::Destroy, .. }) => {}
            Meaning::Failed(Failure { protocol, asked, errno }) => {
                *self.failed.entry((protocol, asked, errno)).or_default() += 1;
            }
            Meaning::Lost => self.lost += 1,
            Meaning::Tcp | Meaning::Close | Meaning::Request | Meaning::End | Meaning::Nothing => {}
        }
    }

    pub(super) fn broken(&mut self, error: &DecodeError) {
        *self.broken.entry(error.class()).or_default() += 1;
    }

    pub(super) fn end(&mut self, reader: &Reader<'_>, replies: &Replies) {
        for protocol in replies.unanswered() {
            *self.unanswered.entry(protocol).or_default() += 1;
        }
        self.headless = replies.headless_dumps();
        self.interrupted = replies.interrupted_dumps();
        self.skipped_packets = reader.skipped_packets();
        self.dropped_packets = reader.dropped_packets();
        self.is_cut = reader.is_cut();
    }

    /// Whether the file can hold every TCP socket that the kernel was asked for. Other protocols do not count.
    pub(in crate::command::sockets) fn is_whole(&self) -> bool {
        let may_be_tcp =
            |protocol: &Option<Protocol>| protocol.is_none_or(|it| it == Protocol::Tcp);
        let lacks_answers = self.failed.keys().any(|(protocol, ..)| may_be_tcp(protocol))
            || self.unanswered.keys().any(may_be_tcp);
        let is_damaged = self.is_cut || !self.broken.is_empty();
        let is_lossy = self.lost > 0 || self.dropped_packets > 0 || self.headless > 0;
        !is_damaged && !is_lossy && self.untold == 0 && !lacks_answers
    }

    /// One line for each thing to report.
    pub(in crate::command::sockets) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.put_left_out(&mut lines);
        self.put_answers(&mut lines);

        if !self.broken.is_empty() {
            let total: u64 = self.broken.values().sum();
            lines.push(format!(
                "{} could not be decoded ({}); what they say is missing",
                plural(total, "part", "parts"),
                joined(&self.broken)
            ));
        }

        if self.is_cut {
            lines.push(
                "it ends inside a packet or message: it is cut, or still being written".to_owned(),
            );
        }

        lines
    }

    fn put_left_out(&self, lines: &mut Vec<String>) {
        if !self.other.is_empty() {
            let total: u64 = self.other.values().sum();
            lines.push(format!(
                "{} of other protocols left out ({})",
                plural(total, "socket", "sockets"),
                joined(&self.other)
            ));
        }

        if self.untold > 0 {
            lines.push(format!(
                "{} left out that may be of TCP or not: the file does not have the request",
                plural(self.untold, "socket", "sockets")
            ));
        }

        if self.skipped_packets > 0 {
            let packets = plural(self.skipped_packets, "packet", "packets");
            lines.push(format!("{packets} of other protocols than the socket diagnosis left out"));
        }
    }

    fn put_answers(&self, lines: &mut Vec<String>) {
        for ((protocol, asked, errno), count) in &self.failed {
            let (one, many) = match asked {
                Asked::Dump => ("dump", "dumps"),
                Asked::LookUp => ("look-up", "look-ups"),
                Asked::Destroy | Asked::Unknown => ("request", "requests"),
            };
            let (requests, sockets) = (plural(*count, one, many), sockets_of(*protocol));
            lines.push(format!("{requests} of {sockets} failed: {}", reason(*asked, *errno)));
        }

        if self.not_found > 0 {
            let look_ups = plural(self.not_found, "look-up", "look-ups");
            lines.push(format!("{look_ups} of a socket that the kernel did not have"));
        }

        for (protocol, count) in &self.unanswered {
            lines.push(format!(
                "{} for {} without an end in the file: sockets are missing",
                plural(*count, "request", "requests"),
                sockets_of(*protocol)
            ));
        }

        if self.headless > 0 {
            let dumps = plural(self.headless, "dump", "dumps");
            lines.push(format!("{dumps} began before the file does: sockets may be missing"));
        }

        if self.interrupted > 0 {
            let dumps = plural(self.interrupted, "dump", "dumps");
            lines.push(format!(
                "{dumps} disturbed by a change (NLM_F_DUMP_INTR): sockets may be missing or twice"
            ));
        }

        if self.lost > 0 {
            let times = plural(self.lost, "time", "times");
            lines.push(format!("the kernel says {times} that messages were lost (NLMSG_OVERRUN)"));
        }

        if self.dropped_packets > 0 {
            let packets = plural(self.dropped_packets, "packet was", "packets were");
            lines.push(format!("{packets} lost by the capture, as it says itself"));
        }
    }
}

fn sockets_of(protocol: Option<Protocol>) -> String {
    match protocol {
        Some(protocol) => format!("{protocol} sockets"),
        None => "sockets of an untold protocol".to_owned(),
    }
}

fn reason(asked: Asked, errno: i32) -> String {
    match (asked, errno) {
        // ENOENT means that the kernel has no diagnostics for the protocol; the usual text speaks of files.
        (Asked::Dump, 2) => "the kernel cannot list them (ENOENT)".to_owned(),
        _ => io::Error::from_raw_os_error(errno).to_string(),
    }
}

fn joined<K: std::fmt::Display>(counts: &BTreeMap<K, u64>) -> String {
    let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
    counts.join(", ")
}
