//! By what a ranking counts.

use record::SocketRecord;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Most groups that are counted apart; peers are chosen by strangers. The rest is one group, as is what is not shown.
const COUNTED_MAX: usize = 2_000;
/// Most groups that are shown.
const SHOWN_MAX: usize = 50;

/// What sockets have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    State,
    LocalAddress,
    LocalPort,
    PeerAddress,
    /// A /24 of IPv4, a /48 of IPv6.
    PeerNetwork,
    PeerPort,
    Unit,
    Container,
    Namespace,
    Congestion,
}

impl Group {
    /// Every group with its name in a question.
    pub const ALL: [(Group, &'static str); 10] = [
        (Group::State, "state"),
        (Group::LocalAddress, "src_address"),
        (Group::LocalPort, "src_port"),
        (Group::PeerAddress, "dst_address"),
        (Group::PeerNetwork, "dst_network"),
        (Group::PeerPort, "dst_port"),
        (Group::Unit, "systemd_unit"),
        (Group::Container, "container_id"),
        (Group::Namespace, "netns"),
        (Group::Congestion, "congestion_algorithm"),
    ];

    /// `None` for sockets of which it is not known.
    fn key<'a>(self, record: &SocketRecord<'a>) -> Option<Cow<'a, str>> {
        let number = |port: u16| Cow::from(port.to_string());
        match self {
            Group::State => record.state.and_then(|state| state.word()).map(Cow::from),
            Group::LocalAddress => record.src_address.map(|address| address.to_string().into()),
            Group::LocalPort => record.src_port.map(number),
            Group::PeerAddress => record.dst_address.map(|address| address.to_string().into()),
            Group::PeerNetwork => record.dst_address.map(|address| network(address).into()),
            Group::PeerPort => record.dst_port.map(number),
            Group::Unit => record.systemd_unit.map(Cow::from),
            Group::Container => record.container_id.map(Cow::from),
            Group::Namespace => record
                .netns_name
                .map(Cow::from)
                .or_else(|| record.netns_inode.map(|inode| inode.to_string().into())),
            Group::Congestion => record.congestion_algorithm.map(Cow::from),
        }
    }
}

fn network(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        IpAddr::V6(v6) => {
            let [a, b, c, ..] = v6.segments();
            format!("{}/48", Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0))
        }
    }
}

/// There is no group of this name.
#[derive(Debug)]
pub struct UnknownGroup;

impl fmt::Display for UnknownGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected one of {}", Group::ALL.map(|(_, name)| name).join(", "))
    }
}

impl std::error::Error for UnknownGroup {}

impl FromStr for Group {
    type Err = UnknownGroup;

    fn from_str(text: &str) -> Result<Group, UnknownGroup> {
        let found = Group::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(group, _)| *group).ok_or(UnknownGroup)
    }
}

/// Counts of sockets that have something in common.
#[derive(Clone, Default)]
struct Counts {
    sockets: u64,
    bytes_sent: u64,
    bytes_received: u64,
    bytes_retrans: u64,
    rtt_us_max: u64,
}

impl Counts {
    fn of(record: &SocketRecord<'_>) -> Counts {
        Counts {
            sockets: 1,
            bytes_sent: record.bytes_sent.unwrap_or(0),
            bytes_received: record.bytes_received.unwrap_or(0),
            bytes_retrans: record.bytes_retrans.unwrap_or(0),
            rtt_us_max: record.rtt_us.unwrap_or(0).into(),
        }
    }

    fn add(&mut self, other: &Counts) {
        self.sockets += other.sockets;
        self.bytes_sent = self.bytes_sent.wrapping_add(other.bytes_sent);
        self.bytes_received = self.bytes_received.wrapping_add(other.bytes_received);
        self.bytes_retrans = self.bytes_retrans.wrapping_add(other.bytes_retrans);
        self.rtt_us_max = self.rtt_us_max.max(other.rtt_us_max);
    }

    fn json(&self) -> String {
        let Counts { sockets, bytes_sent, bytes_received, bytes_retrans, rtt_us_max } = self;
        format!(
            "\"sockets\":{sockets},\"bytes_sent\":\"{bytes_sent}\",\"bytes_received\":\"{bytes_received}\",\
             \"bytes_retrans\":\"{bytes_retrans}\",\"rtt_us_max\":{rtt_us_max}"
        )
    }
}

/// The groups of one ranking. All of them together, with the rest, are all sockets that passed.
pub(super) struct Groups {
    by: Group,
    counted: HashMap<Box<str>, Counts>,
    rest: Counts,
}

impl Groups {
    pub(super) fn new(by: Group) -> Groups {
        Groups { by, counted: HashMap::new(), rest: Counts::default() }
    }

    pub(super) fn add(&mut self, record: &SocketRecord<'_>) {
        // What is not known is a group as well: rows add up to the total.
        let key = self.by.key(record).unwrap_or(Cow::Borrowed(""));
        let counts = Counts::of(record);
        if let Some(known) = self.counted.get_mut(&*key) {
            known.add(&counts);
        } else if self.counted.len() < COUNTED_MAX {
            self.counted.insert(key.into(), counts);
        } else {
            self.rest.add(&counts);
        }
    }

    /// Writes them as further members of an object.
    pub(super) fn write(self, json: &mut Vec<u8>) {
        let mut all: Vec<(Box<str>, Counts)> = self.counted.into_iter().collect();
        all.sort_by(|(left_key, left), (right_key, right)| {
            right.sockets.cmp(&left.sockets).then_with(|| left_key.cmp(right_key))
        });
        let mut rest = self.rest;
        for (_, counts) in all.iter().skip(SHOWN_MAX) {
            rest.add(counts);
        }

        let shown = all.iter().take(SHOWN_MAX);
        let shown =
            shown.map(|(key, counts)| format!("{{\"key\":{},{}}}", quoted(key), counts.json()));
        let shown = shown.collect::<Vec<_>>().join(",");
        let text = format!(",\"groups\":[{shown}],\"other\":{{{}}}", rest.json());
        json.extend_from_slice(text.as_bytes());
    }
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => json.extend(['\\', letter]),
            letter if letter.is_control() => {
                write!(json, "\\u{:04x}", u32::from(letter)).expect("a text takes all");
            }
            letter => json.push(letter),
        }
    }
    json + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_the_rest_are_all() {
        let mut groups = Groups::new(Group::PeerPort);
        for port in 0..200_u16 {
            let mut record = SocketRecord { dst_port: Some(port / 2), ..SocketRecord::default() };
            record.bytes_sent = Some(10);
            groups.add(&record);
        }
        groups.add(&SocketRecord::default());
        let mut json = Vec::new();
        groups.write(&mut json);
        let json = String::from_utf8(json).unwrap();
        assert_eq!(json.matches("\"sockets\":2,").count(), 50, "{json}");
        assert!(json.contains("\"other\":{\"sockets\":101,\"bytes_sent\":\"1000\""), "{json}");
    }

    #[test]
    fn a_hostile_name_stays_a_text() {
        assert_eq!(quoted("a\"b\\c\u{0}\n"), r#""a\"b\\c\u0000\u000a""#);
    }

    #[test]
    fn networks_of_peers() {
        assert_eq!(network("192.0.2.77".parse().unwrap()), "192.0.2.0/24");
        assert_eq!(network("2001:db8:1:2::3".parse().unwrap()), "2001:db8:1::/48");
    }
}
