//! Every key of the configuration: its section, kind, range, default and meaning. The reader takes ranges and defaults
//! from here, `weir config show` walks it, and docs/configuration.md is held equal to it.

mod sockets;

pub(super) use sockets::{SINK, SOCKETS};

use std::time::Duration;
use text::units;

/// What a key's value is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text, of the form that the words describe.
    Text(&'static str),
    /// A size with its unit, in bytes from and to.
    Size(u64, u64),
    /// A size with its unit, in bytes from and to, or this word.
    SizeOr(u64, u64, &'static str),
    /// A duration with its unit, from and to.
    Duration(Duration, Duration),
    /// A duration with its unit, from and to, or this word.
    DurationOr(Duration, Duration, &'static str),
    /// A whole number, from and to.
    Integer(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Bool,
    /// A list of addresses and prefixes.
    Prefixes,
    /// A list of what the words describe.
    List(&'static str),
    /// One of these words, or a list of what the last words describe.
    WordsOrList(&'static [&'static str], &'static str),
    /// Names with values, both text.
    Tags,
}

impl Kind {
    /// What the documentation says about it.
    pub fn describe(&self) -> String {
        let size = |min: &u64, max: &u64| {
            format!("size, {} to {}", units::display_size(*min), units::display_size(*max))
        };
        let duration = |min: &Duration, max: &Duration| {
            let shown = units::display_duration;
            format!("duration, {} to {}", shown(*min), shown(*max))
        };
        let either = |words: &[&str]| {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        };
        match self {
            Kind::Text(form) => (*form).to_owned(),
            Kind::Size(min, max) => size(min, max),
            Kind::SizeOr(min, max, word) => format!("{}, or `{word}`", size(min, max)),
            Kind::Duration(min, max) => duration(min, max),
            Kind::DurationOr(min, max, word) => format!("{}, or `{word}`", duration(min, max)),
            Kind::Integer(min, max) => format!("whole number, {min} to {max}"),
            Kind::Choice(words) => either(words),
            Kind::Bool => "`true` or `false`".to_owned(),
            Kind::List(of) => format!("list of {of}"),
            Kind::WordsOrList(words, of) => format!("{}, or list of {of}", either(words)),
            Kind::Tags => "names with values in braces".to_owned(),
            Kind::Prefixes => "list of addresses and prefixes".to_owned(),
        }
    }
}

/// What holds when a key is not there.
#[derive(Clone, Copy, Debug)]
pub enum Fallback {
    /// The key must be there.
    Required,
    /// This value, as it would stand in the file without quotes.
    Value(&'static str),
    /// No value; the words say what happens then.
    Absent(&'static str),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub fallback: Fallback,
    /// What it does, for the documentation. Markdown.
    pub meaning: &'static str,
}

/// The keys of one section.
#[derive(Clone, Copy, Debug)]
pub struct SectionKeys {
    /// The section's name with dots: `listener.target`.
    pub path: &'static str,
    /// How the section is opened in a file: `[[listener.target]]`.
    pub header: &'static str,
    pub keys: &'static [Key],
}

impl SectionKeys {
    /// The key of that name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

const GIB: u64 = 1 << 30;
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

pub(super) const ADMIN: SectionKeys = SectionKeys {
    path: "admin",
    header: "[admin]",
    keys: &[
        Key {
            name: "listen",
            kind: Kind::Text("IP address and port, or `off`"),
            fallback: Fallback::Value("127.0.0.1:9464"),
            meaning: "Where `/metrics`, `/ledger`, `/healthz` and `/readyz` are served over HTTP. Whoever reaches it reads \
                      every figure, so it stays on this host unless you say otherwise. `/sockets` too, while `[sockets]` \
                      collects from this process's own network namespace alone (`namespaces = \"own\"`).",
        },
        Key {
            name: "socket",
            kind: Kind::Text("path of a unix socket"),
            fallback: Fallback::Absent("none"),
            meaning: "Where the same and `/sockets` of every namespace are served, to root, to this process's user and to \
                      those of `socket_users`; whom the kernel says to be another is refused. \
                      `curl --unix-socket PATH http://localhost/sockets`",
        },
        Key {
            name: "socket_users",
            kind: Kind::List("users, by name (of `/etc/passwd`) or number"),
            fallback: Fallback::Absent("none"),
            meaning: "Users that may ask at `socket` as well. The file of the socket is open to its owner alone without \
                      them, and to everybody with them: the kernel says who it is that has connected.",
        },
    ],
};

pub(super) const DAEMON: SectionKeys = SectionKeys {
    path: "daemon",
    header: "[daemon]",
    keys: &[
        Key {
            name: "drain_grace",
            kind: Kind::Duration(Duration::ZERO, HOUR),
            fallback: Fallback::Value("10s"),
            meaning: "How long targets may go on sending what was already received when the daemon stops. What is \
                      left then is counted as `shutdown` and printed.",
        },
        Key {
            name: "log_level",
            kind: Kind::Choice(&["error", "warn", "info", "debug"]),
            fallback: Fallback::Value("info"),
            meaning: "The least important messages that are written to standard error.",
        },
    ],
};

pub(super) const STATSD: SectionKeys = SectionKeys {
    path: "metrics.statsd",
    header: "[metrics.statsd]",
    keys: &[
        Key {
            name: "to",
            kind: Kind::Text("`HOST:PORT`"),
            fallback: Fallback::Absent("nothing is pushed"),
            meaning: "Where Weir's own figures are pushed to as StatsD over UDP.",
        },
        Key {
            name: "prefix",
            kind: Kind::Text("letters, digits, `_`, `-` and `.`"),
            fallback: Fallback::Value("weir"),
            meaning: "First part of every name that is pushed.",
        },
        Key {
            name: "interval",
            kind: Kind::Duration(Duration::from_millis(100), HOUR),
            fallback: Fallback::Value("10s"),
            meaning: "Time between two pushes.",
        },
    ],
};

pub(super) const LISTENER: SectionKeys = SectionKeys {
    path: "listener",
    header: "[[listener]]",
    keys: &[
        Key {
            name: "name",
            kind: Kind::Text("1 to 128 characters without space, quote or backslash"),
            fallback: Fallback::Absent("the text of `listen`"),
            meaning: "Name in the ledger and in metrics. No two listeners share one.",
        },
        Key {
            name: "listen",
            kind: Kind::Text("`udp://HOST:PORT`, `HOST:PORT`, `:PORT` or `unix:/path`"),
            fallback: Fallback::Required,
            meaning: "Where datagrams are received. `:PORT` is every IPv4 address of this host, `[::]:PORT` every IPv6 \
                      address; a multicast address is a group to join; port 0 lets the kernel choose one.",
        },
        Key {
            name: "receive_buffer",
            kind: Kind::Size(4 << 10, GIB),
            fallback: Fallback::Value("16MiB"),
            meaning: "UDP only. Receive buffer to ask the kernel for, in bytes of its own accounting (a datagram of 200 bytes is \
                      charged 1280). Without `CAP_NET_ADMIN` it grants at most twice `net.core.rmem_max`; what it \
                      granted is printed at the start.",
        },
        Key {
            name: "ring_size",
            kind: Kind::Size(relay::RING_BYTES_MIN as u64, 64 * GIB),
            fallback: Fallback::Value("8MiB"),
            meaning: "Memory that holds the datagrams which targets have still to send, whatever the number of \
                      targets. Rounded up to a power of two.",
        },
        Key {
            name: "schedule",
            kind: Kind::Choice(&["auto", "inline", "threaded"]),
            fallback: Fallback::Value("auto"),
            meaning: "Who sends: the receiving thread itself (`inline`) or threads of their own (`threaded`). `auto` is \
                      inline on at most two processors or with one target.",
        },
        Key {
            name: "gather",
            kind: Kind::DurationOr(Duration::from_micros(10), Duration::from_millis(1), "off"),
            fallback: Fallback::Value("off"),
            meaning: "How long a datagram may be kept waiting for others, so that they share a wake-up and its calls. Only where \
                      at least one more is likely to come in that time, from 12500 a second on with `80us`. `off`: never.",
        },
        Key {
            name: "allow_sources",
            kind: Kind::Prefixes,
            fallback: Fallback::Absent("all sources"),
            meaning: "UDP only. Source addresses that may pass, such as `10.0.0.0/8` or `2001:db8::1`; the others are counted as \
                      denied.",
        },
        Key {
            name: "deny_sources",
            kind: Kind::Prefixes,
            fallback: Fallback::Absent("none"),
            meaning: "UDP only. Source addresses that may not pass, even if `allow_sources` has them.",
        },
        Key {
            name: "multicast_interface",
            kind: Kind::Text("interface name, or its IPv4 address"),
            fallback: Fallback::Absent("the kernel chooses by its routes"),
            meaning: "UDP only. Interface by which a multicast group is joined.",
        },
    ],
};

pub(super) const TARGET: SectionKeys = SectionKeys {
    path: "listener.target",
    header: "[[listener.target]]",
    keys: &[
        Key {
            name: "name",
            kind: Kind::Text("1 to 128 characters without space, quote or backslash"),
            fallback: Fallback::Absent("the text of `to`"),
            meaning: "Name in the ledger and in metrics. No two targets of a listener share one.",
        },
        Key {
            name: "to",
            kind: Kind::Text(
                "`udp://HOST:PORT`, `HOST:PORT`, `unix:/path`, `file:/path` or `null:`",
            ),
            fallback: Fallback::Required,
            meaning: "Where the datagrams go. A UDP address may be a broadcast address or a multicast group. A file \
                      belongs to one target alone; when another program moves or removes it, a new one is begun. `null:` \
                      counts and forgets.",
        },
        Key {
            name: "only_sources",
            kind: Kind::Prefixes,
            fallback: Fallback::Absent("all sources"),
            meaning: "The target takes datagrams of these sources only; the others are counted as filtered.",
        },
        Key {
            name: "sample",
            kind: Kind::Integer(1, u32::MAX as u64),
            fallback: Fallback::Absent("every datagram"),
            meaning: "The target takes one in so many of what `only_sources` lets through.",
        },
        Key {
            name: "sample_by",
            kind: Kind::Choice(&["random", "source"]),
            fallback: Fallback::Value("random"),
            meaning: "What chooses them: chance, or a hash of the source address, so that one source in so many passes \
                      with all its datagrams. Needs `sample`.",
        },
        Key {
            name: "rate_limit",
            kind: Kind::Integer(1, u32::MAX as u64),
            fallback: Fallback::Absent("no limit"),
            meaning: "The target takes at most so many datagrams a second, after the filter and the sample. Bursts of a \
                      tenth of a second's worth pass.",
        },
        Key {
            name: "send_buffer",
            kind: Kind::Size(4 << 10, GIB),
            fallback: Fallback::Absent("128KiB"),
            meaning: "UDP only. Send buffer to ask the kernel for, in bytes of its own accounting. It grants at most \
                      twice `net.core.wmem_max`. From 208KiB on, the kernel loses datagrams in silence while it looks \
                      for the next hop's link address.",
        },
        Key {
            name: "source_address",
            kind: Kind::Text("IP address of this host"),
            fallback: Fallback::Absent("chosen by route"),
            meaning: "UDP only. Address that the datagrams leave from.",
        },
        Key {
            name: "source_port",
            kind: Kind::Integer(1, 65_535),
            fallback: Fallback::Absent("chosen by the kernel"),
            meaning: "UDP only. Port that the datagrams leave from, for receivers that know their clients by address \
                      and port.",
        },
        Key {
            name: "ttl",
            kind: Kind::Integer(1, 255),
            fallback: Fallback::Absent(
                "the kernel's: 64 for one receiver, 1 for a multicast group",
            ),
            meaning: "UDP only. Time to live, or hop limit.",
        },
        Key {
            name: "dscp",
            kind: Kind::Integer(0, 63),
            fallback: Fallback::Absent("0"),
            meaning: "UDP only. Differentiated services code point (RFC 2474).",
        },
        Key {
            name: "gso",
            kind: Kind::Choice(&["auto", "off"]),
            fallback: Fallback::Value("auto"),
            meaning: "UDP only. Whether runs of datagrams of equal length leave in one system call message. `auto` does \
                      so where the way out takes it and cannot lose a part of it unseen.",
        },
        Key {
            name: "multicast_interface",
            kind: Kind::Text("interface name"),
            fallback: Fallback::Absent("the kernel chooses by its routes"),
            meaning: "UDP only. Interface by which datagrams to a multicast group leave.",
        },
        Key {
            name: "resolve_interval",
            kind: Kind::Duration(SECOND, Duration::from_secs(86_400)),
            fallback: Fallback::Value("30s"),
            meaning: "UDP only. How often a host name is resolved again. A changed address opens the next socket before \
                      the old one is closed.",
        },
        Key {
            name: "format",
            kind: Kind::Choice(&["lines", "length-prefixed", "pcap"]),
            fallback: Fallback::Value("lines"),
            meaning: "Files only. How datagrams are told apart: by line feeds, by four bytes of big-endian length \
                      before each, or as a capture for tcpdump and Wireshark.",
        },
        Key {
            name: "rotate_size",
            kind: Kind::SizeOr(64 << 10, 1 << 44, "off"),
            fallback: Fallback::Value("off"),
            meaning: "Files only. The file is set aside as `.1` before it would grow beyond this; a datagram that is \
                      larger has a file of its own.",
        },
        Key {
            name: "rotate_keep",
            kind: Kind::Integer(1, 9_999),
            fallback: Fallback::Value("4"),
            meaning: "Files only. How many files that were set aside are kept; older ones are deleted. Needs \
                      `rotate_size`.",
        },
    ],
};

/// All sections, in the order of the documentation and of `weir config show`.
pub const SECTIONS: &[SectionKeys] = &[ADMIN, DAEMON, STATSD, LISTENER, TARGET, SOCKETS, SINK];
