//! The command line of `weir sockets`, and what follows from it.

use super::columns;
use super::shown::{self, Shown};
use super::summary::Style;
use super::table::{Direction, Look};
use crate::exit::Failure;
use crate::screen::{Room, ink_of};
use config::ListenAddress;
use record::{Encoder, Encoding, FieldSet};
use sockets::filter::Filter;
use sockets::helper::Remote;
use sockets::{Direct, MakeAccess, Scope, Transport};
use std::io::{self, IsTerminal, Write as _};
use std::path::PathBuf;
use std::time::Duration;
use text::units::{parse_count_of, parse_duration};
use wire::capture;
use wire::inet_diag::{Family, State, States};

/// Show the kernel's TCP and UDP sockets, as ss does: as a table, or as records for programs
///
/// Without options: the connections of this network namespace, for which no privilege is needed. FILTER is the language
/// of ss and more: `state established '( dport = :443 or src 10.0.0.0/8 )' and rtt > 100ms`; the kernel applies what it
/// can of it, and --explain says what. Exit code 64: the filter or another argument is wrong; 65: a file that was read is
/// damaged or incomplete; 66: a file cannot be read, or is not a capture; 69: there is no such namespace; 77: a namespace that
/// was named may not be entered.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which sockets, in the language of ss: states and an expression
    #[arg(value_name = "FILTER")]
    pub(super) filter: Vec<String>,
    /// Every network namespace that this process can enter
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
    /// Only the network namespace of this name, as `ip netns` lists it; may be repeated
    #[arg(long, short = 'N', value_name = "NAME")]
    pub(super) namespace: Vec<String>,
    /// TCP sockets: what is shown without --udp
    #[arg(long, short)]
    pub(super) tcp: bool,
    /// UDP sockets, with the datagrams that each has dropped: connected ones, those that receive from anybody with -l, both with -a
    #[arg(long, short, conflicts_with_all = ["closed", "read", "write", "receive"])]
    pub(super) udp: bool,
    /// Listening sockets, with how many connections wait to be accepted
    #[arg(long, short, overrides_with = "all")]
    pub(super) listening: bool,
    /// Sockets in every state
    #[arg(long, short, overrides_with = "listening")]
    pub(super) all: bool,
    /// Only IPv4 sockets
    #[arg(long, short = '4', overrides_with = "ipv6")]
    pub(super) ipv4: bool,
    /// Only IPv6 sockets; with IPv4 connections of a listener for both, as in ss
    #[arg(long, short = '6', overrides_with = "ipv4")]
    pub(super) ipv6: bool,
    /// Which processes hold each socket
    #[arg(long, short)]
    pub(super) processes: bool,
    /// More about the connection below each row: congestion control, segment size, timeout, bytes
    #[arg(long, short)]
    pub(super) info: bool,
    /// More about the socket below each row: user, inode, cookie, cgroup
    #[arg(long, short)]
    pub(super) extended: bool,
    /// Socket memory below each row, and drops
    #[arg(long, short)]
    pub(super) memory: bool,
    /// The timer below each row
    #[arg(long, short = 'o')]
    pub(super) options: bool,
    /// How many sockets there are in each state, instead of the sockets
    #[arg(long, short, conflicts_with_all = ["closed", "watch", "write", "receive", "sort", "columns"])]
    pub(super) summary: bool,
    /// No titles above the columns
    #[arg(long, short = 'H')]
    pub(super) no_header: bool,
    /// Numbers instead of names of services: addresses and ports are always numbers
    #[arg(long, short)]
    pub(super) numeric: bool,
    /// Connections as they end, until interrupted
    #[arg(long, conflicts_with_all = ["listening", "all", "watch", "read", "write", "receive", "sort"])]
    pub(super) closed: bool,
    /// With --closed: also connections that the filter cannot judge, because they were never seen open
    #[arg(long, requires = "closed")]
    pub(super) undecided: bool,
    /// Look repeatedly, and show rates
    #[arg(long, short, value_name = "INTERVAL", value_parser = parse_interval, conflicts_with_all = ["read", "receive"])]
    pub(super) watch: Option<Duration>,
    /// End after this number of polls of --watch, connections of --closed, or polls whose end --receive has seen
    #[arg(long, value_name = "N", value_parser = parse_count_of::<1, { u64::MAX }, u64>)]
    pub(super) count: Option<u64>,
    /// table, json, jsonl, csv, tsv, protobuf, prototext, protojson or msgpack
    #[arg(long, short, default_value = "table", value_parser = parse_format, hide_default_value = true)]
    pub(super) format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub(super) json: bool,
    /// What to show, with commas between: columns, fields and groups of fields; `help` lists them
    #[arg(long, short, value_name = "NAMES")]
    pub(super) columns: Option<String>,
    /// Sort the table by a column or field; `,desc` turns the order around
    #[arg(long, value_name = "COLUMN[,desc]")]
    pub(super) sort: Option<String>,
    /// Say which part of the filter the kernel applies and which part Weir, and end
    #[arg(long)]
    pub(super) explain: bool,
    /// Show what a file holds, not this host: of `ss -D`, or a pcap or pcapng of netlink; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all_namespaces", "namespace", "processes", "receive"])]
    pub(super) read: Option<PathBuf>,
    /// Write the kernel's messages to a file instead of showing them; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["receive", "watch", "format", "json", "columns", "sort"])]
    pub(super) write: Option<PathBuf>,
    /// ss (for --read, and for ss by its variable TCPDIAG_FILE) or pcap (for tcpdump and Wireshark)
    #[arg(long, value_name = "FORMAT", default_value = "ss", value_parser = super::write::parse_format, requires = "write")]
    pub(super) write_format: capture::Format,
    /// Receive the records of UDP sinks here, and say how many are missing
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["all_namespaces", "namespace", "listening", "all", "processes", "sort"])]
    pub(super) receive: Option<ListenAddress>,
    /// Reach namespaces through the helper that listens at this path, so that this process needs no capability
    #[arg(long, value_name = "PATH", conflicts_with_all = ["read", "receive"])]
    pub(super) helper: Option<PathBuf>,
    /// With --receive: exit with 1 if any record was missing
    #[arg(long, requires = "receive")]
    pub(super) fail_on_loss: bool,
}

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Table,
    Records(Encoding),
}

fn parse_format(text: &str) -> Result<Format, String> {
    match text {
        "table" => Ok(Format::Table),
        _ => text.parse().map(Format::Records).map_err(|_| {
            "it is none of these words. Fix: write one of table, json, jsonl, csv, tsv, protobuf, prototext, protojson, msgpack"
                .to_owned()
        }),
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => Err("it is nothing. Fix: write for example 1s".to_owned()),
        Ok(interval) => Ok(interval),
        Err(error) => Err(error.to_string()),
    }
}

/// What is printed, checked.
pub(super) enum Show {
    Table { columns: Vec<Shown>, details: Vec<Shown>, sort: Shown, direction: Direction },
    Records(Encoder),
}

impl Args {
    pub(super) fn format(&self) -> Format {
        if self.json { Format::Records(Encoding::Json) } else { self.format }
    }

    /// Whether the processes that hold the sockets are wanted.
    pub(super) fn wants_processes(&self) -> bool {
        let names = self.columns.as_deref().unwrap_or_default();
        self.processes || names.contains("process")
    }

    pub(super) fn scope(&self) -> Scope {
        match (self.all_namespaces, self.namespace.as_slice()) {
            (true, _) => Scope::All,
            (false, []) => Scope::Own,
            (false, names) => Scope::Named(names.to_vec()),
        }
    }

    /// How namespaces are reached: with the privileges of this process, or through the helper.
    ///
    /// # Errors
    /// The helper does not answer.
    pub(super) fn make_access(&self) -> anyhow::Result<MakeAccess> {
        let Some(path) = &self.helper else { return Ok(Box::new(|| Box::new(Direct::new()))) };
        let shown = path.display();
        let helper = Remote::connect(path).map_err(|error| {
            let (failure, fix) = match error.kind() {
                io::ErrorKind::PermissionDenied => (
                    Failure::Permission,
                    format!("run this as one whom `ls -l {shown}` lets write"),
                ),
                _ => (
                    Failure::Unavailable,
                    format!("start it: weir namespace-helper --listen {shown}"),
                ),
            };
            failure.error(format!("cannot reach the helper at {shown}: {error}. Fix: {fix}"))
        })?;
        Ok(Box::new(|| Box::new(helper)))
    }

    /// The protocols whose sockets are shown, one after the other.
    pub(super) fn transports(&self) -> &'static [Transport] {
        match (self.tcp, self.udp) {
            // As in ss, a summary covers everything.
            (false, false) if self.summary && self.read.is_none() => {
                &[Transport::Tcp, Transport::Udp]
            }
            (_, false) => &[Transport::Tcp],
            (false, true) => &[Transport::Udp],
            (true, true) => &[Transport::Tcp, Transport::Udp],
        }
    }

    /// The states to ask for if the filter names none.
    pub(super) fn states(&self, transport: Transport) -> States {
        // The kernel reports an unconnected UDP socket as closed; to users it is listening.
        let is_udp = transport == Transport::Udp;
        match (self.listening, self.all || self.summary || self.read.is_some()) {
            (true, _) if is_udp => States::LISTENING | State::Closed.into(),
            (true, _) => States::LISTENING,
            (false, true) => States::ALL,
            (false, false) if is_udp => State::Established.into(),
            (false, false) => States::DEFAULT,
        }
    }

    /// Parses the filter. Errors point at the mistake.
    pub(super) fn filter(&self) -> anyhow::Result<Filter> {
        let filter = Filter::parse(&self.filter.join(" "));
        let filter = filter.map_err(|error| Failure::Usage.error(error))?;
        for note in filter.notes() {
            tell(format_args!("note: {}", note.message));
        }

        Ok(match (self.ipv4, self.ipv6) {
            (true, false) => filter.within(Family::Inet),
            (false, true) => filter.within(Family::Inet6),
            _ => filter,
        })
    }

    /// The summary's format, if a summary is requested instead of sockets.
    pub(super) fn summary(&self) -> anyhow::Result<Option<Style>> {
        match self.format() {
            _ if !self.summary => Ok(None),
            Format::Table => Ok(Some(Style::Table)),
            Format::Records(Encoding::Json) => Ok(Some(Style::Json)),
            Format::Records(Encoding::Jsonl) => Ok(Some(Style::Jsonl)),
            Format::Records(_) => Err(Failure::Usage.error("--summary is a table, json or jsonl")),
        }
    }

    /// Checks what should be printed.
    pub(super) fn show(&self, transport: Transport) -> anyhow::Result<Show> {
        match self.format() {
            Format::Table => self.show_table(transport),
            Format::Records(encoding) => {
                if self.sort.is_some() {
                    return Err(Failure::Usage.error(
                        "--sort is for tables: records come in the kernel's order, without being kept",
                    ));
                }

                if !encoding.is_text() && io::stdout().is_terminal() {
                    return Err(Failure::Usage.error(format!(
                        "{encoding} is not text, and this is a terminal: send it to a file or a program, or choose prototext or jsonl"
                    )));
                }

                let fields = self.columns.as_deref().map(shown::fields).transpose()?;
                Ok(Show::Records(match fields {
                    Some(fields) => Encoder::in_order(encoding, &fields),
                    None => Encoder::new(encoding, &FieldSet::ALL),
                }))
            }
        }
    }

    fn show_table(&self, transport: Transport) -> anyhow::Result<Show> {
        let columns = match &self.columns {
            Some(names) => shown::columns(names)?,
            None => self
                .usual_columns(transport)
                .into_iter()
                .map(shown::column)
                .collect::<Result<_, _>>()?,
        };

        let (sort, direction) = match self.sort.as_deref() {
            None if self.watch.is_some() && transport == Transport::Udp => {
                ("drops", Direction::Descending)
            }
            None if self.watch.is_some() && !self.listening => ("out", Direction::Descending),
            None => ("local", Direction::Ascending),
            Some(text) => match text.split_once(',') {
                None | Some((_, "asc")) => (text.trim_end_matches(",asc"), Direction::Ascending),
                Some((name, "desc")) => (name, Direction::Descending),
                Some((_, word)) => {
                    return Err(Failure::Usage
                        .error(format!("--sort {text}: `{word}` is neither `asc` nor `desc`. Fix: write one of them")));
                }
            },
        };

        let details = self.details().map(shown::column);
        let details = details.collect::<Result<_, _>>()?;

        Ok(Show::Table { columns, details, sort: shown::column(sort)?, direction })
    }

    /// The columns printed below each row.
    fn details(&self) -> impl Iterator<Item = &'static str> {
        let asked = [
            (self.extended, columns::EXTENDED),
            (self.memory, columns::MEMORY),
            (self.info, columns::INFO),
            (self.options, columns::TIMER),
        ];
        asked.into_iter().filter(|(is_asked, _)| *is_asked).flat_map(|(_, names)| names).copied()
    }

    fn usual_columns(&self, transport: Transport) -> Vec<&'static str> {
        let usual = match self {
            Args { watch: Some(_), .. } if transport == Transport::Udp => {
                columns::DATAGRAMS_WATCHED
            }
            _ if transport == Transport::Udp => columns::DATAGRAMS,
            Args { closed: true, .. } => columns::CLOSED,
            Args { receive: Some(_), .. } => columns::RECEIVED,
            Args { listening: true, .. } => columns::LISTENERS,
            Args { watch: Some(_), .. } => columns::WATCHED,
            _ => columns::CONNECTIONS,
        };

        let mut names = Vec::new();
        if self.scope() != Scope::Own {
            names.push("namespace");
        }
        names.extend_from_slice(usual);
        if self.processes {
            names.push("process");
        }
        names
    }

    /// How a table looks on this terminal.
    pub(super) fn look(&self) -> Look {
        Look {
            ink: ink_of(&io::stdout()),
            width: Room::of(&io::stdout()).columns,
            may_drop_columns: self.columns.is_none(),
            has_title: !self.no_header,
        }
    }
}

/// Rows of the terminal.
pub(super) fn rows_of_terminal() -> Option<usize> {
    Room::of(&io::stdout()).rows
}

/// Prints a message that is not data.
pub(crate) fn tell(text: std::fmt::Arguments<'_>) {
    // If standard error is closed, there is nowhere left to write it.
    let text = Room::of(&io::stderr()).folded(&format!("weir: {text}\n"));
    let _ = io::stderr().write_all(text.as_bytes());
}
