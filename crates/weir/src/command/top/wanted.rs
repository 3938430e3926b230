//! The pages, how they can be sorted and grouped, and what is asked of the daemon for each.

use std::fmt::Write as _;

/// A page of the screen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Page {
    Overview,
    Tcp,
    Closes,
    Flows,
    Sinks,
}

/// A way to sort or to group: the word on the screen, and what the daemon is asked for.
pub(super) type Choice = (&'static str, &'static str);

const OF_LEDGER: &[Choice] = &[
    ("trouble", ""),
    ("name", ""),
    ("in", ""),
    ("out", ""),
    ("lost", ""),
    ("inside", ""),
    ("oldest", ""),
];
const OF_SOCKETS: &[Choice] = &[
    ("RTT", "-rtt_us"),
    ("RTT × min", "-rtt_ratio"),
    ("retransmitted", "-total_retrans_segments"),
    ("bytes sent again", "-bytes_retrans"),
    ("held up by the peer", "-rwnd_limited_us"),
    ("held up by our buffer", "-sndbuf_limited_us"),
    ("send-Q", "-send_queue"),
    ("recv-Q", "-receive_queue"),
    ("sent", "-bytes_sent"),
    ("received", "-bytes_received"),
    ("rate", "-delivery_rate_bytes_per_sec"),
    ("cwnd", "-snd_cwnd_segments"),
    ("peer's port", "dst_port"),
];
const OF_CLOSES: &[Choice] =
    &[("newest", ""), ("how", ""), ("RTT", ""), ("retransmitted", ""), ("sent", "")];
const OF_FLOWS: &[Choice] = &[("definition", ""), ("samples", ""), ("name", "")];

const SOCKET_GROUPS: &[Choice] = &[
    ("nothing", ""),
    ("network of the peer", "dst_network"),
    ("peer", "dst_address"),
    ("port of the peer", "dst_port"),
    ("own port", "src_port"),
    ("unit", "systemd_unit"),
    ("container", "container_id"),
    ("namespace", "netns"),
    ("state", "state"),
    ("congestion control", "congestion_algorithm"),
];
const CLOSE_GROUPS: &[Choice] = &[("nothing", ""), ("end", "end")];
const FLOW_GROUPS: &[Choice] = &[("nothing", ""), ("agent", "agent"), ("last hour", "hour")];
const NO_GROUPS: &[Choice] = &[("nothing", "")];

impl Page {
    pub(super) const ALL: [Page; 5] =
        [Page::Overview, Page::Tcp, Page::Closes, Page::Flows, Page::Sinks];

    pub(super) fn title(self) -> &'static str {
        match self {
            Page::Overview => "Overview",
            Page::Tcp => "TCP",
            Page::Closes => "Closes",
            Page::Flows => "Flows",
            Page::Sinks => "Sinks",
        }
    }

    pub(super) fn number(self) -> usize {
        Page::ALL.iter().position(|&page| page == self).unwrap_or_default()
    }

    /// The page that is this many further on.
    pub(super) fn further(self, by: usize) -> Page {
        Page::ALL[(self.number() + by) % Page::ALL.len()]
    }

    pub(super) fn sorts(self) -> &'static [Choice] {
        match self {
            Page::Overview | Page::Sinks => OF_LEDGER,
            Page::Tcp => OF_SOCKETS,
            Page::Closes => OF_CLOSES,
            Page::Flows => OF_FLOWS,
        }
    }

    /// The first one is none.
    pub(super) fn groups(self) -> &'static [Choice] {
        match self {
            Page::Tcp => SOCKET_GROUPS,
            Page::Closes => CLOSE_GROUPS,
            Page::Flows => FLOW_GROUPS,
            Page::Overview | Page::Sinks => NO_GROUPS,
        }
    }
}

/// What the screen shows, as far as it matters to what the daemon is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub(super) page: Page,
    pub(super) sort: &'static str,
    pub(super) group: &'static str,
    /// In the language of `weir sockets`.
    pub(super) filter: String,
}

/// Most sockets that the daemon shows in a ranking.
const SOCKETS_MAX: usize = 200;
const FIELDS: &str = "cookie,state,src_address,src_port,dst_address,dst_port,rtt_us,rttvar_us,min_rtt_us,snd_cwnd_segments,\
                      total_retrans_segments,bytes_sent,bytes_received,bytes_retrans,send_queue,receive_queue,busy_time_us,\
                      rwnd_limited_us,sndbuf_limited_us,delivery_rate_app_limited,delivery_rate_bytes_per_sec,systemd_unit,\
                      container_id,netns_name";

impl Wanted {
    /// The page of the admin server that has the sockets.
    pub(super) fn sockets_page(&self) -> String {
        let sort = self.sort;
        let mut page = format!("/sockets?sort={sort}&limit={SOCKETS_MAX}&fields={FIELDS}");
        if !self.group.is_empty() {
            page.push_str("&group=");
            page.push_str(self.group);
        }
        if !self.filter.trim().is_empty() {
            page.push_str("&filter=");
            page.push_str(&encoded(self.filter.trim()));
        }
        page
    }
}

/// A text as a value of a query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_reads_what_was_typed() {
        let filter = "dport = :443 and rtt > 100ms & é%+".to_owned();
        let wanted =
            Wanted { page: Page::Tcp, sort: "-rtt_us", group: "dst_port", filter: filter.clone() };
        let page = wanted.sockets_page();
        let pairs = admin::service::pairs(page.split_once('?').unwrap().1).unwrap();
        let value = |name: &str| {
            let found = pairs.iter().find(|(one, _)| one == name);
            found.map(|(_, value)| value.clone()).unwrap()
        };
        assert_eq!(
            [value("filter"), value("sort"), value("group")],
            [filter, "-rtt_us".to_owned(), "dst_port".to_owned()]
        );
        let fields = value("fields");
        assert!(fields.split(',').all(|field| record::FieldSet::ALL.has(field)), "{fields}");
    }

    #[test]
    fn every_sort_and_group_of_sockets_is_one_that_the_daemon_knows() {
        for (_, sort) in Page::Tcp.sorts() {
            sort.trim_start_matches('-').parse::<sockets::Figure>().unwrap();
        }
        for (_, group) in &Page::Tcp.groups()[1..] {
            group.parse::<sockets::Group>().unwrap();
        }
    }
}
