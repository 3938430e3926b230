//! The keys of the socket collector and its sinks.

use super::{Fallback, GIB, HOUR, Key, Kind, SECOND, SectionKeys};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

pub(in super::super) const SOCKETS: SectionKeys = SectionKeys {
    path: "sockets",
    header: "[sockets]",
    keys: &[
        Key {
            name: "interval",
            kind: Kind::Duration(Duration::from_millis(100), HOUR),
            fallback: Fallback::Value("10s"),
            meaning: "Time from the start of one poll to the start of the next. A poll that takes longer is followed by \
                      the next at once; one that has taken ten times as long ends, and the next begins with the \
                      namespaces that it did not come to.",
        },
        Key {
            name: "jitter",
            kind: Kind::Duration(Duration::ZERO, HOUR),
            fallback: Fallback::Absent("a tenth of `interval`, at most `1s`"),
            meaning: "Each poll begins up to so much later, by chance, so that a fleet does not poll in step. At most \
                      `interval`.",
        },
        Key {
            name: "namespaces",
            kind: Kind::WordsOrList(&["own", "all"], "names of namespaces"),
            fallback: Fallback::Value("all"),
            meaning: "Network namespaces to collect from: this process's, all that can be found, or those of the list \
                      (as `ip netns` names them). Others than the own need `CAP_SYS_ADMIN`; without it the daemon says \
                      so once and collects what it can. A namespace that is not there yet is taken up when it appears.",
        },
        Key {
            name: "namespaces_max",
            kind: Kind::Integer(1, 65_536),
            fallback: Fallback::Value("4096"),
            meaning: "Network namespaces that are collected at a time. Anybody may make namespaces, each costs a poll up to \
                      0.3 ms, and with 1,000 of them each close event costs the kernel some 30 µs more. Those that come \
                      later are left out, counted, and the daemon says so once.",
        },
        Key {
            name: "states",
            kind: Kind::List("words for states and groups of states, as `weir sockets` has them"),
            fallback: Fallback::Value("connected"),
            meaning: "States of the sockets that are polled: `established`, `time-wait` and so on, `listening`, or \
                      `connected`, `synchronized`, `bucket`, `big`, `all`. Connections that were in none of them have no \
                      closing record.",
        },
        Key {
            name: "filter",
            kind: Kind::Text("filter of `weir sockets`, such as `dport = :443 or src 10.0.0.0/8`"),
            fallback: Fallback::Absent("every socket"),
            meaning: "Sockets that records are made of; the others are counted as filtered. What the kernel can decide \
                      never leaves it. A connection that a poll let through has its closing record, one that polls \
                      rejected has none; see `closes_undecided` for those that no poll saw.",
        },
        Key {
            name: "closes",
            kind: Kind::Bool,
            fallback: Fallback::Value("true"),
            meaning: "Whether the kernel's close events are heard, for one closing record of each connection, those that \
                      no poll saw included. Those of other namespaces need `CAP_NET_BROADCAST`, and `CAP_NET_ADMIN` \
                      where a namespace has no id yet.",
        },
        Key {
            name: "closes_undecided",
            kind: Kind::Choice(&["drop", "keep"]),
            fallback: Fallback::Value("drop"),
            meaning: "What becomes of the close of a connection that no poll saw, where its close event does not say what \
                      `filter` asks for: owner, cgroup, mark, congestion control and age never, peer and counters not \
                      after an abort. `drop`: no record, and counted as undecided; `keep`: a record.",
        },
        Key {
            name: "skip_unchanged",
            kind: Kind::Bool,
            fallback: Fallback::Value("true"),
            meaning: "Whether a socket about which nothing but the time has changed since its last record is left out, \
                      and counted as unchanged.",
        },
        Key {
            name: "keyframe_every",
            kind: Kind::Integer(1, 100_000),
            fallback: Fallback::Value("30"),
            meaning: "One poll in so many has unchanged sockets too, so that a reader who begins late sees every socket.",
        },
        Key {
            name: "sample",
            kind: Kind::Integer(1, 1_000_000),
            fallback: Fallback::Value("1"),
            meaning: "One connection in so many, chosen by a hash of its cookie: with all its records, closing record \
                      included. The others are counted as sampled.",
        },
        Key {
            name: "listen_every",
            kind: Kind::Integer(1, 100_000),
            fallback: Fallback::Value("6"),
            meaning: "One poll in so many asks for listening sockets too, if `states` has them: they change rarely, and \
                      the kernel reads a table of their own for them.",
        },
        Key {
            name: "fields",
            kind: Kind::List("groups and fields"),
            fallback: Fallback::Absent("all but a few"),
            meaning: "What records have, by groups (`tcp_info`, `endpoints` …) or single fields (`rtt_us`), as \
                      [records.md](records.md) lists them; `[\"all\"]` is every field, `-raw` takes a group away. Not set: all but \
                      `type_of_service`, `traffic_class`, `class_id` and what congestion controls say of themselves (`vegas_*`, \
                      `dctcp_*`, `bbr_*`), which are rarely read and cost the kernel time for every socket. A sink may have less; \
                      what no sink has is not asked of the kernel.",
        },
        Key {
            name: "table_entries_max",
            kind: Kind::Integer(1_024, 4 << 20),
            fallback: Fallback::Value("131072"),
            meaning: "Connections that are remembered between polls, for unchanged sockets and closing records. Beyond \
                      it those whose sockets are gone make room, and else new ones are not remembered: they are counted, \
                      and the daemon says once which value is needed.",
        },
        Key {
            name: "event_buffer",
            kind: Kind::Size(64 << 10, GIB),
            fallback: Fallback::Value("8MiB"),
            meaning: "Receive buffer for close events to ask the kernel for. A burst of closes that overruns it is \
                      counted as `event_buffer`. Without `CAP_NET_ADMIN` the kernel grants at most twice \
                      `net.core.rmem_max`, and a helper at most `64MiB`.",
        },
        Key {
            name: "processes",
            kind: Kind::Bool,
            fallback: Fallback::Value("false"),
            meaning: "Whether records of polls name a process that holds the socket (`process_id`, `process_name`). Each poll \
                      then looks at every descriptor of every process; those of other users need `CAP_SYS_PTRACE` and \
                      `CAP_DAC_READ_SEARCH`.",
        },
        Key {
            name: "host",
            kind: Kind::Text("1 to 253 characters"),
            fallback: Fallback::Absent("the kernel's host name"),
            meaning: "Name of this host on every record. In a container the kernel's is the container's.",
        },
        Key {
            name: "host_id",
            kind: Kind::Text("1 to 64 letters, digits, `_`, `-`, `.` and `/`"),
            fallback: Fallback::Absent("a hash of `/etc/machine-id`, if there is one"),
            meaning: "What tells this host from all others, whatever its name, on every record. The machine id itself never \
                      leaves the host.",
        },
        Key {
            name: "tags",
            kind: Kind::Tags,
            fallback: Fallback::Absent("none"),
            meaning: "Names and values that stand in every record: `tags = { site = \"fra1\" }`. At most 16, names of \
                      up to 64 letters, digits, `_`, `-`, `.` and `/`, values of up to 256 characters.",
        },
        Key {
            name: "helper",
            kind: Kind::Text("path of the helper's socket"),
            fallback: Fallback::Absent("this process does it itself"),
            meaning: "The privileged helper (`weir namespace-helper`) that opens sockets in namespaces and hands them over, so that \
                      this process needs no capability.",
        },
    ],
};

pub(in super::super) const SINK: SectionKeys = SectionKeys {
    path: "sockets.sink",
    header: "[[sockets.sink]]",
    keys: &[
        Key {
            name: "name",
            kind: Kind::Text("1 to 128 characters without space, quote or backslash"),
            fallback: Fallback::Absent("the text of `to`"),
            meaning: "Name in the ledger and in metrics. No two sinks share one.",
        },
        Key {
            name: "to",
            kind: Kind::Text("`file:/path`, `udp://HOST:PORT`, `HOST:PORT`, `stdout:` or `null:`"),
            fallback: Fallback::Required,
            meaning: "Where the records go. `udp:` packs them into datagrams no larger than the path takes without fragments, \
                      numbered, so that `weir sockets --receive` can say what is missing. `null:` counts and forgets.",
        },
        Key {
            name: "format",
            kind: Kind::Choice(FORMATS),
            fallback: Fallback::Absent("what the file's extension says, else `jsonl`"),
            meaning: "How records are written. Not for UDP, whose datagrams have a form of their own.",
        },
        Key {
            name: "fields",
            kind: Kind::List("groups and fields"),
            fallback: Fallback::Absent("those of `[sockets]`"),
            meaning: "What this sink's records have, of what `[sockets]` has; where that names none, of all fields.",
        },
        Key {
            name: "queue_size",
            kind: Kind::Size(256 << 10, 64 * GIB),
            fallback: Fallback::Value("32MiB"),
            meaning: "Memory for records that the destination has still to take, used when needed: a poll of 100,000 sockets \
                      comes faster than a disk takes it. Beyond it the oldest are dropped, and counted as `queue_full`.",
        },
        Key {
            name: "rotate_size",
            kind: Kind::SizeOr(64 << 10, 1 << 44, "off"),
            fallback: Fallback::Value("off"),
            meaning: "Files only. The file is set aside as `.1` before it would grow beyond this. Records come in pieces of up \
                      to 64 KiB and a little, and a piece that is larger than this has a file of its own.",
        },
        Key {
            name: "rotate_interval",
            kind: Kind::DurationOr(SECOND, Duration::from_secs(366 * DAY.as_secs()), "off"),
            fallback: Fallback::Value("off"),
            meaning: "Files only. The file is set aside as `.1` at each multiple of this time since 1970 (UTC): `1h` is at the full \
                      hour.",
        },
        Key {
            name: "rotate_keep",
            kind: Kind::Integer(1, 9_999),
            fallback: Fallback::Value("4"),
            meaning: "Files only. How many files that were set aside are kept; older ones are deleted. Needs \
                      `rotate_size` or `rotate_interval`.",
        },
    ],
};

/// The words of `format`, in the order of their encodings.
const FORMATS: &[&str] = &["jsonl", "protobuf", "prototext", "protojson", "msgpack", "csv", "tsv"];
