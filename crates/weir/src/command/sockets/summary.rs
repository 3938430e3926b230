//! `--summary`: how many sockets there are in each state.

use record::{AddressFamily, SocketRecord, SocketState};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use wire::inet_diag::State;

/// How a summary is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    Table,
    /// One array of objects.
    Json,
    /// One object in each line.
    Jsonl,
}

/// Sockets by state, IPv4 before IPv6.
pub(super) struct Summary {
    style: Style,
    counts: BTreeMap<u8, [u64; 2]>,
}

impl Summary {
    pub(super) fn new(style: Style) -> Summary {
        Summary { style, counts: BTreeMap::new() }
    }

    pub(super) fn count(&mut self, record: &SocketRecord<'_>) {
        let state = record.state.map_or(0, |state| state.0);
        let [ipv4, ipv6] = self.counts.entry(state).or_default();
        *(if record.family == Some(AddressFamily::INET6) { ipv6 } else { ipv4 }) += 1;
    }

    pub(super) fn text(&self) -> String {
        match self.style {
            Style::Table => self.table(),
            Style::Json => format!("[{}]\n", self.objects().collect::<Vec<_>>().join(",\n")),
            Style::Jsonl => self.objects().map(|object| object + "\n").collect(),
        }
    }

    fn table(&self) -> String {
        let mut text = String::from("STATE          TOTAL     IPV4     IPV6\n");
        let mut line = |name: &str, [ipv4, ipv6]: [u64; 2]| {
            writeln!(text, "{name:<11} {:>8} {ipv4:>8} {ipv6:>8}", ipv4 + ipv6)
                .expect("writing to a string cannot fail");
        };

        let mut all = [0, 0];
        for (&state, &[ipv4, ipv6]) in &self.counts {
            line(State::from_number(state).printed(), [ipv4, ipv6]);
            all = [all[0] + ipv4, all[1] + ipv6];
        }
        line("all", all);
        text
    }

    fn objects(&self) -> impl Iterator<Item = String> {
        self.counts.iter().map(|(&state, [ipv4, ipv6])| {
            let word = SocketState(state).word().unwrap_or("unknown");
            format!(
                "{{\"state\":\"{word}\",\"total\":{},\"ipv4\":{ipv4},\"ipv6\":{ipv6}}}",
                ipv4 + ipv6
            )
        })
    }
}
