//! Which cases are measured, and which relays in each.

use crate::case::{Case, Pace, Plan, Question, REPETITIONS, VARYING};
use crate::contender::{C_LOOPS, Contender, DeadEnd, Gathering, Programs, Schedule, Source};
use crate::site::{Reach, Site};
use clap::ValueEnum;
use load::spin::{HEADER_BYTES, Sizes};

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Selection {
    /// Only 200 bytes in the mean to two targets, and only what is required there: under 3 minutes.
    #[arg(long)]
    quick: bool,
    /// Only these parts.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Only these datagram lengths: any number of bytes, or varying. Isolation and the steady case are measured at 200 and
    /// varying by default.
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<String>,
    /// Only these numbers of targets, where relays are compared on loopback.
    #[arg(long, value_delimiter = ',')]
    targets: Vec<usize>,
    /// Only these relays, where relays are compared. Socat, which is slow, takes part at 200 bytes in the mean to two targets
    /// unless it is named.
    #[arg(long, value_delimiter = ',')]
    relays: Vec<RelayName>,
    /// Repetitions of each measurement; with fewer than 6, intervals cover less than 95 %.
    #[arg(long, default_value_t = REPETITIONS)]
    repetitions: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Relays against each other, targets on loopback.
    Compare,
    /// The same with targets on another host.
    Veth,
    /// A target more that takes nothing.
    Isolation,
    /// 20,000 datagrams a second, one at a time.
    Steady,
    /// What it costs to keep the sender's address, with 1, 16 and 1,000 senders, to one target. Not its port, which on this host is the
    /// sender's own.
    Senders,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RelayName {
    Inline,
    Threaded,
    LimitRuns,
    Limit,
    InlineGro,
    LimitGro,
    Socat,
}

const RELAYS: [(RelayName, Contender); 7] = [
    (RelayName::Inline, Contender::WEIR_INLINE),
    (RelayName::Threaded, Contender::WEIR_THREADED),
    (RelayName::LimitRuns, Contender::LimitRelayRuns),
    (RelayName::Limit, Contender::LimitRelay),
    (RelayName::InlineGro, Contender::WEIR_TOGETHER),
    (RelayName::LimitGro, Contender::LimitRelayTogether),
    (RelayName::Socat, Contender::Socat),
];

/// Datagram lengths in bytes at which relays are compared.
const SIZES: [Sizes; 6] = [
    Sizes::Equal(64),
    Sizes::Equal(200),
    VARYING,
    Sizes::Equal(1_400),
    Sizes::Equal(9_000),
    Sizes::Equal(60_000),
];

/// The cases, starts and omissions that a selection results in.
pub(crate) struct Chosen {
    pub(crate) cases: Vec<(Case, Plan, Vec<Contender>)>,
    /// The relays whose start is timed.
    pub(crate) starts: Vec<Contender>,
    /// What cannot be measured here, with the reason.
    pub(crate) skipped: Vec<String>,
}

impl Selection {
    pub(crate) fn choose(&self, programs: &Programs) -> anyhow::Result<Chosen> {
        anyhow::ensure!(self.repetitions > 0, "no repetition, no measurement");
        let sizes =
            self.sizes.iter().map(|text| parse(text)).collect::<anyhow::Result<Vec<_>>>()?;

        let (mut cases, mut skipped) = (Vec::new(), Vec::new());
        for case in self.wanted(&sizes) {
            let contenders = self.contenders(case, programs);
            let plan = Plan::new(case, self.pace(), self.repetitions);
            match Site::obstacle(case.reach) {
                Some(obstacle) => skipped.push(format!("{}: {obstacle}", case.label())),
                None if contenders.is_empty() => {}
                None => cases.push((case, plan, contenders)),
            }
        }

        if programs.socat.is_none() {
            skipped
                .push("socat, and a stuck file, which is made with it: not installed".to_owned());
        }

        let starts = if self.is_wanted(Part::Compare) {
            self.named_contenders(programs, |contender| {
                !self.quick || contender == Contender::WEIR_INLINE
            })
        } else {
            Vec::new()
        };
        Ok(Chosen { cases, starts, skipped })
    }

    fn pace(&self) -> Pace {
        if self.quick { Pace::Quick } else { Pace::Full }
    }

    fn is_wanted(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// The cases of all wanted parts, with the given sizes, or with each part's own.
    fn wanted(&self, sizes: &[Sizes]) -> Vec<Case> {
        let or_sizes = |default: &[Sizes]| -> Vec<Sizes> {
            if sizes.is_empty() { default.to_vec() } else { sizes.to_vec() }
        };

        let both = [Sizes::Equal(200), VARYING];
        let mut cases = Vec::new();

        if self.is_wanted(Part::Compare) {
            let targets = match (self.targets.is_empty(), self.quick) {
                (false, _) => self.targets.as_slice(),
                (true, true) => &[2],
                (true, false) => &[1, 2],
            };
            for sizes in or_sizes(if self.quick { &both } else { &SIZES }) {
                let case = |targets: &usize| Case::new(Question::Compare, sizes, *targets);
                cases.extend(targets.iter().map(case));
            }
        }

        if self.is_wanted(Part::Veth) && !self.quick {
            let case = |sizes| Case::new(Question::Compare, sizes, 2).over_cable();
            cases.extend(or_sizes(&both).into_iter().map(case));
        }

        if self.is_wanted(Part::Senders) && !self.quick {
            let case = Case::new(Question::Compare, Sizes::Equal(200), 1);
            cases.extend([1, 16, 1_000].map(|senders| case.of_senders(senders)));
        }

        if self.is_wanted(Part::Isolation) {
            cases.extend(self.isolation(&or_sizes(if self.quick { &[VARYING] } else { &both })));
        }

        if self.is_wanted(Part::Steady) {
            let case = |sizes| Case::new(Question::Steady, sizes, 2);
            let default: &[Sizes] = if self.quick { &both[..1] } else { &both };
            cases.extend(or_sizes(default).into_iter().map(case));
        }
        cases
    }

    fn isolation(&self, sizes: &[Sizes]) -> Vec<Case> {
        let case = |schedule, sizes| Case::new(Question::Isolation(schedule), sizes, 2);
        let inline = sizes.iter().map(|sizes| case(Schedule::Inline, *sizes));
        if self.quick {
            return inline.collect();
        }
        let threaded = sizes.iter().map(|sizes| case(Schedule::Threaded, *sizes));
        let cable = sizes.iter().map(|sizes| case(Schedule::Inline, *sizes).over_cable());
        inline.chain(threaded).chain(cable).collect()
    }

    fn contenders(&self, case: Case, programs: &Programs) -> Vec<Contender> {
        match case.question {
            Question::Compare if case.senders.is_some() => {
                let weir = [Source::Own, Source::Address].map(Contender::showing);
                weir.into_iter().chain([Contender::LimitRelay, Contender::RawRelay]).collect()
            }
            Question::Compare => self.named_contenders(programs, |contender| match contender {
                // Only datagrams of equal length are coalesced.
                Contender::WEIR_TOGETHER | Contender::LimitRelayTogether => {
                    !self.quick && case.sizes == Sizes::Equal(200)
                }
                Contender::Socat => !self.quick && case.is_main(),
                Contender::Weir(weir) => !self.quick || weir.schedule == Schedule::Inline,
                Contender::LimitRelay | Contender::LimitRelayRuns => true,
                // It is measured in a part of its own.
                Contender::RawRelay => false,
            }),
            Question::Isolation(schedule) => {
                let dead_ends: &[DeadEnd] = match case.reach {
                    Reach::Loopback => &[
                        DeadEnd::Refusing,
                        DeadEnd::StoppedUnix,
                        DeadEnd::StuckFile,
                        DeadEnd::SilentWeir,
                    ],
                    Reach::Cable => &[DeadEnd::Refusing, DeadEnd::DeadNextHop, DeadEnd::SilentWeir],
                };

                // The stuck file needs socat.
                let can_open =
                    |end: &&DeadEnd| **end != DeadEnd::StuckFile || programs.socat.is_some();
                let dead_ends = dead_ends.iter().filter(can_open);
                let beside = dead_ends.map(|end| Contender::beside(schedule, *end));
                std::iter::once(Contender::weir(schedule)).chain(beside).collect()
            }
            Question::Steady => {
                let weir = [Gathering::Off, Gathering::On].map(Contender::gathering);
                weir.into_iter().chain(C_LOOPS).collect()
            }
        }
    }

    /// The named relays, or the default ones if none are named.
    fn named_contenders(
        &self,
        programs: &Programs,
        is_default: impl Fn(Contender) -> bool,
    ) -> Vec<Contender> {
        let is_wanted = |(name, contender): &(RelayName, Contender)| {
            let can_run = *contender != Contender::Socat || programs.socat.is_some();
            let is_chosen = if self.relays.is_empty() {
                is_default(*contender)
            } else {
                self.relays.contains(name)
            };
            can_run && is_chosen
        };

        RELAYS.into_iter().filter(is_wanted).map(|(_, contender)| contender).collect()
    }
}

fn parse(text: &str) -> anyhow::Result<Sizes> {
    if text == "varying" {
        return Ok(VARYING);
    }
    let bytes = text.parse()?;
    let is_valid = (HEADER_BYTES..=65_507).contains(&bytes);
    anyhow::ensure!(is_valid, "a datagram of {text} bytes cannot be sent or marked");
    Ok(Sizes::Equal(bytes))
}
