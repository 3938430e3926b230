//! What is compared: relays and the ways in which they are run.

use serde::{Serialize, Serializer};
use std::path::PathBuf;

/// A relay and the way it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Weir(Weir),
    LimitRelayRuns,
    LimitRelay,
    Socat,
}

/// The two forms of the least work; the better one of a repetition is what Weir is measured against.
pub(crate) const C_LOOPS: [Contender; 2] = [Contender::LimitRelayRuns, Contender::LimitRelay];

/// How Weir is run; all else is at its default but the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weir {
    pub(crate) schedule: Schedule,
    pub(crate) gathering: Gathering,
    /// One more target, next to those that receive.
    pub(crate) beside: Option<DeadEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Schedule {
    Inline,
    Threaded,
}

/// Whether Weir waits a moment for more after a short batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Gathering {
    /// As this version does it by default.
    Default,
    Off,
    On,
}

impl Gathering {
    /// What `weir relay` is given.
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
    /// A UDP port without a listener, on the host of the other targets: each datagram is answered with an ICMP error.
    Refusing,
    /// A unix socket whose owner has stopped reading.
    StoppedUnix,
    /// A file that takes no more: a terminal without a reader.
    StuckFile,
    /// An address on the cable at which there is no host. Only where targets are behind one.
    DeadNextHop,
}

impl DeadEnd {
    pub(crate) fn label(self) -> &'static str {
        match self {
            DeadEnd::Refusing => "a refusing target",
            DeadEnd::StoppedUnix => "a stopped unix receiver",
            DeadEnd::StuckFile => "a stuck file",
            DeadEnd::DeadNextHop => "a dead next hop",
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
    /// The schedule that `auto` chooses on the two processors for which the requirements are stated.
    pub(crate) const WEIR_INLINE: Contender = Contender::weir(Schedule::Inline);
    pub(crate) const WEIR_THREADED: Contender = Contender::weir(Schedule::Threaded);

    pub(crate) const fn weir(schedule: Schedule) -> Contender {
        Contender::Weir(Weir { schedule, gathering: Gathering::Default, beside: None })
    }

    /// Weir inline with this setting.
    pub(crate) fn gathering(gathering: Gathering) -> Contender {
        Contender::Weir(Weir { schedule: Schedule::Inline, gathering, beside: None })
    }

    /// Weir with a dead end among its targets.
    pub(crate) fn beside(schedule: Schedule, dead_end: DeadEnd) -> Contender {
        let beside = Some(dead_end);
        Contender::Weir(Weir { schedule, gathering: Gathering::Default, beside })
    }

    pub(crate) fn label(self) -> String {
        match self {
            Contender::Weir(weir) => {
                let mut label = format!("weir {}", weir.schedule.name());
                for arg in weir.gathering.args() {
                    label.push_str(&format!(" {arg}"));
                }
                if let Some(dead_end) = weir.beside {
                    label.push_str(&format!(" + {}", dead_end.label()));
                }

                label
            }
            Contender::LimitRelayRuns => "limitrelay -r".to_owned(),
            Contender::LimitRelay => "limitrelay".to_owned(),
            Contender::Socat => "socat".to_owned(),
        }
    }
}

/// As its label.
impl Serialize for Contender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.label())
    }
}

/// Where the programs are, and what they can.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) weir: PathBuf,
    pub(crate) limitrelay: PathBuf,
    pub(crate) socat: Option<PathBuf>,
}
