//! `--summary`: the number of sockets by protocol and state.

use record::{AddressFamily, SocketRecord, SocketState};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use wire::inet_diag::State;
use wire::inet_diag::request::IPPROTO_UDP;

/// How a summary is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    Table,
    /// One array of objects.
    Json,
    /// One object in each line.
    Jsonl,
}

/// Sockets by protocol and state, IPv4 before IPv6.
pub(super) struct Summary {
    style: Style,
    counts: BTreeMap<(&'static str, u8), [u64; 2]>,
}

impl Summary {
    pub(super) fn new(style: Style) -> Summary {
        Summary { style, counts: BTreeMap::new() }
    }

    pub(super) fn count(&mut self, record: &SocketRecord<'_>) {
        let is_udp = record.protocol.map(u16::from) == Some(IPPROTO_UDP);
        let protocol = if is_udp { "udp" } else { "tcp" };
        let state = record.state.map_or(0, |state| state.0);
        let [ipv4, ipv6] = self.counts.entry((protocol, state)).or_default();
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
        let mut text = String::from("PROTOCOL  STATE          TOTAL     IPV4     IPV6\n");
        let mut line = |protocol: &str, state: &str, [ipv4, ipv6]: [u64; 2]| {
            writeln!(text, "{protocol:<8}  {state:<11} {:>8} {ipv4:>8} {ipv6:>8}", ipv4 + ipv6)
                .expect("writing to a string cannot fail");
        };

        let mut all = BTreeMap::new();
        for (&(protocol, state), &[ipv4, ipv6]) in &self.counts {
            line(protocol, State::from_number(state).printed(), [ipv4, ipv6]);
            let [all_ipv4, all_ipv6] = all.entry(protocol).or_insert([0, 0]);
            *all_ipv4 += ipv4;
            *all_ipv6 += ipv6;
        }
        for (protocol, counts) in all {
            line(protocol, "all", counts);
        }
        text
    }

    fn objects(&self) -> impl Iterator<Item = String> {
        self.counts.iter().map(|(&(protocol, state), [ipv4, ipv6])| {
            let word = SocketState(state).word().unwrap_or("unknown");
            let total = ipv4 + ipv6;
            format!(
                "{{\"protocol\":\"{protocol}\",\"state\":\"{word}\",\"total\":{total},\"ipv4\":{ipv4},\"ipv6\":{ipv6}}}"
            )
        })
    }
}
