//! The contenders: relays and how they are run.

use serde::{Serialize, Serializer};
use std::path::PathBuf;

/// A relay, and how it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Weir(Weir),
    LimitRelayRuns,
    LimitRelay,
    /// Receives and sends datagrams in the batches that the kernel coalesced.
    LimitRelayTogether,
    /// Preserves the sender's address with a raw socket.
    RawRelay,
    Socat,
}

/// The two forms of the minimal C loop; Weir is measured against the better one in each repetition.
pub(crate) const C_LOOPS: [Contender; 2] = [Contender::LimitRelayRuns, Contender::LimitRelay];

/// How Weir is run; all other settings but the receive buffer have their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weir {
    pub(crate) schedule: Schedule,
    pub(crate) gathering: Gathering,
    pub(crate) receive: Receive,
    pub(crate) source: Source,
    /// An additional target that takes nothing.
    pub(crate) beside: Option<DeadEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Schedule {
    Inline,
    Threaded,
}

/// The source address that receivers see on datagrams from Weir.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) enum Source {
    Own,
    /// The sender's.
    Address,
}

impl Source {
    /// The option of a target of `weir relay`.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Source::Own => "",
            Source::Address => "?preserve_source=true",
        }
    }
}

/// Whether Weir receives coalesced datagrams (GRO).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Receive {
    Single,
    Gro,
}

impl Receive {
    /// The arguments of `weir relay`.
    pub(crate) fn args(self) -> &'static [&'static str] {
        match self {
            Receive::Single => &[],
            Receive::Gro => &["--receive", "gro"],
        }
    }
}

/// Whether Weir waits briefly for more datagrams after a short batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Gathering {
    /// This version's default.
    Default,
    Off,
    On,
}

impl Gathering {
    /// The arguments of `weir relay`.
    pub(crate) fn args(self) -> &'static [&'static str] {
        match self {
            Gathering::Default => &[],
            Gathering::Off => &["--gather", "off"],
            Gathering::On => &["--gather", "80us"],
        }
    }
}

/// A target that takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum DeadEnd {
    /// A UDP port without a socket, on the host of the other targets: each datagram causes an ICMP error.
    Refusing,
    /// A unix socket whose owner has stopped reading.
    StoppedUnix,
    /// A file that accepts no more data: a terminal without a reader.
    StuckFile,
    /// An address on the cable without a host. Only if the targets are behind a cable.
    DeadNextHop,
    /// A link to another Weir that never answers.
    SilentWeir,
}

impl DeadEnd {
    pub(crate) fn label(self) -> &'static str {
        match self {
            DeadEnd::Refusing => "a refusing target",
            DeadEnd::StoppedUnix => "a stopped unix receiver",
            DeadEnd::StuckFile => "a stuck file",
            DeadEnd::DeadNextHop => "a dead next hop",
            DeadEnd::SilentWeir => "a link to a dead Weir",
        }
    }
}

impl Schedule {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Schedule::Inline => "inline",
            Schedule::Threaded => "threaded",
        }
    }
}

impl Contender {
    /// The schedule that `auto` selects on two processors, for which the requirements are stated.
    pub(crate) const WEIR_INLINE: Contender = Contender::weir(Schedule::Inline);
    pub(crate) const WEIR_THREADED: Contender = Contender::weir(Schedule::Threaded);

    pub(crate) const fn weir(schedule: Schedule) -> Contender {
        let (gathering, receive) = (Gathering::Default, Receive::Single);
        Contender::Weir(Weir { schedule, gathering, receive, source: Source::Own, beside: None })
    }

    /// Weir inline, with this source address.
    pub(crate) const fn showing(source: Source) -> Contender {
        Contender::Weir(Weir {
            schedule: Schedule::Inline,
            gathering: Gathering::Default,
            receive: Receive::Single,
            source,
            beside: None,
        })
    }

    /// Weir inline, receiving coalesced datagrams.
    pub(crate) const WEIR_TOGETHER: Contender = Contender::Weir(Weir {
        schedule: Schedule::Inline,
        gathering: Gathering::Default,
        receive: Receive::Gro,
        source: Source::Own,
        beside: None,
    });

    /// Weir inline, with this setting.
    pub(crate) fn gathering(gathering: Gathering) -> Contender {
        let (schedule, receive) = (Schedule::Inline, Receive::Single);
        Contender::Weir(Weir { schedule, gathering, receive, source: Source::Own, beside: None })
    }

    /// Weir with a dead end among its targets.
    pub(crate) fn beside(schedule: Schedule, dead_end: DeadEnd) -> Contender {
        let beside = Some(dead_end);
        let (gathering, receive) = (Gathering::Default, Receive::Single);
        Contender::Weir(Weir { schedule, gathering, receive, source: Source::Own, beside })
    }

    pub(crate) fn label(self) -> String {
        match self {
            Contender::Weir(weir) => {
                let mut label = format!("weir {}", weir.schedule.name());
                for arg in weir.gathering.args().iter().chain(weir.receive.args()) {
                    label.push_str(&format!(" {arg}"));
                }
                if weir.source != Source::Own {
                    label.push_str(&format!(" {}", &weir.source.option()[1..]));
                }
                if let Some(dead_end) = weir.beside {
                    label.push_str(&format!(" + {}", dead_end.label()));
                }

                label
            }
            Contender::LimitRelayRuns => "limitrelay -r".to_owned(),
            Contender::LimitRelay => "limitrelay".to_owned(),
            Contender::LimitRelayTogether => "limitrelay -g".to_owned(),
            Contender::RawRelay => "rawrelay".to_owned(),
            Contender::Socat => "socat".to_owned(),
        }
    }
}

/// Serialized as its label.
impl Serialize for Contender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.label())
    }
}

/// The paths of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) weir: PathBuf,
    pub(crate) limitrelay: PathBuf,
    pub(crate) rawrelay: PathBuf,
    pub(crate) socat: Option<PathBuf>,
}
