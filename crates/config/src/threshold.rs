//! `[[threshold]]`: figures that raise an event when they pass a limit.

mod level;

pub use level::{Level, LevelUnit};

use crate::document::{Table, Value};
use crate::errors::nearest;
use crate::flows::{FlowConfig, FlowsConfig};
use crate::form::{Choice, Form, List, Slot, Span, text, whole};
use crate::keys::{Key, Section, keys};
use crate::name::NAME;
use crate::reader::{Placed, Reader, Report, repeated};
use ::flows::{AgentFigure, Filter, Groups, Judge, Network, PortFigure, Threshold, Watched};
use serde_json::Value as Json;
use std::time::Duration;

/// The name under which sinks take events.
pub const EVENTS_NAME: &str = "events";

pub(crate) const SECTION: Section = Section {
    path: "threshold",
    header: "[[threshold]]",
    tables: &[ThresholdConfig::TABLE],
    subsections: &[],
};

keys! {
    /// A figure whose passing a limit is an event.
    pub struct ThresholdConfig in "threshold" {
        /// Name in events, in the log and for `[[mitigation]]`. No two thresholds share one.
        name => name: String = NAME, required("give it a name that an event can be known by");
        /// What is watched: each flow of the `[[flow]]` of this name.
        flow => flow: Option<String> = NAME, unset("`interface` or `agent` says what is watched");
        /// What is watched: a figure of each interface, by its counters. `in_bits`, `out_bits`, `in_frames`, `out_frames`,
        /// `discards` and `errors` are per second, `in_use` and `out_use` shares of the interface's speed.
        interface => interface: Option<PortFigure> = Choice(PortFigure::ALL), unset("`flow` or `agent` says what is watched");
        /// What is watched: a figure of each agent. `loss` is the share of its datagrams that did not arrive, over 10 to 20 s;
        /// `sample_loss` the share of samples that it lost itself; `silent` the time since it was last heard.
        agent => agent: Option<AgentFigure> = Choice(AgentFigure::ALL), unset("`flow` or `interface` says what is watched");
        /// From here on there is an event: a bit rate where bytes are counted (`2Gbit/s`), a number per second (`500k`), a share (`90%`) or
        /// a time (`30s`), as what is watched has it.
        limit => limit: Level = LEVEL, required("write for example limit = \"500k\"");
        /// Below this it is down again. At most `limit`.
        clear => clear: Level = LEVEL, derived("four fifths of `limit`", limit.lower());
        /// For how long it has to stay below `clear` before there is another event that says so. What flaps around its limit is one event.
        clear_after => clear_after: Duration = Span(Duration::ZERO, Duration::from_secs(86_400)), default(Duration::from_secs(10));
        /// For how long it has to stay at `limit` or above before there is an event. Not zero where a `[[mitigation]]` announces.
        above_for => above_for: Duration = Span(Duration::ZERO, Duration::from_secs(86_400)), default(Duration::ZERO);
        /// What is held against the limit: the `value`, which is as likely too high as too low, or only what is `sure`, the lower end of its
        /// 95 % interval, which comes some samples later and is wrong in one of 40 cases.
        judge => judge: Judge = Choice(&[("value", Judge::Value), ("sure", Judge::Sure)]), default(Judge::Value);
        /// Which flows are watched, by the fields of their key: `dst in 192.0.2.0/24 and not dst = 192.0.2.7`.
        filter => filter: Option<String> = text("filter of flows", |text| Ok(text.to_owned())), unset("all of them")
            where |one| one.flow.is_some(), "only flows have keys to be filtered by. Fix: name agents instead";
        /// Whose interfaces, or which agents, are watched.
        agents => agents: Vec<String> = List { of: "addresses and networks", parse: network }, empty("all of them")
            where |one| one.flow.is_none(), "flows are those of all agents. Fix: write a filter in the [[flow]]";
        /// How many may be above the limit at once. More are counted and give no event.
        raised_max => raised_max: usize = whole(1, 10_000), default(1_000);
    }
}

const LEVEL: LevelForm = LevelForm;

/// A level, or a plain number.
struct LevelForm;

impl Form for LevelForm {
    type Value = Level;

    fn describe(&self) -> String {
        "number, bit rate, share or time".to_owned()
    }

    fn read(&self, slot: &Slot<'_>) -> Option<Level> {
        if let Value::Integer(number) = slot.value {
            let level = u64::try_from(*number).ok().map(Level::Count);
            if level.is_none() {
                slot.error(format!(
                    "{number} is no number of anything. Fix: write for example \"500k\""
                ));
            }
            return level;
        }
        slot.parse(str::parse::<Level>)
    }

    fn show(&self, value: &Level) -> Json {
        value.to_string().into()
    }

    fn example(&self) -> &'static str {
        "\"500k\""
    }
}

fn network(text: &str) -> Result<String, String> {
    let wrong = || {
        format!(
            "\"{}\" is neither an address nor a network. Fix: write for example 10.0.0.0/8",
            text.escape_debug()
        )
    };
    Network::parse(text).map(|_| text.to_owned()).ok_or_else(wrong)
}

impl ThresholdConfig {
    /// What it watches. `None` if it does not name exactly one thing, which is reported when it is read.
    pub fn watched(&self) -> Option<Watched> {
        match (&self.flow, self.interface, self.agent) {
            (Some(flow), None, None) => Some(Watched::Flow(flow.clone())),
            (None, Some(figure), None) => Some(Watched::Port(figure)),
            (None, None, Some(figure)) => Some(Watched::Agent(figure)),
            _ => None,
        }
    }

    /// The threshold in the figure's own unit: bytes per second where bytes are counted.
    ///
    /// # Errors
    /// Why the filter is wrong.
    pub fn threshold(&self, groups: &Groups) -> Result<Threshold, String> {
        let filter = self.filter.as_deref().map(|text| Filter::parse(text, groups)).transpose();
        let of_bytes =
            if self.flow.is_some() && self.limit.unit() == LevelUnit::Bits { 8.0 } else { 1.0 };
        Ok(Threshold {
            name: self.name.clone(),
            limit: self.limit.amount() / of_bytes,
            clear: self.clear.amount() / of_bytes,
            clear_after: self.clear_after,
            hold: self.above_for,
            judge: self.judge,
            filter: filter.map_err(|error| error.to_string())?,
            agents: self.agents.iter().filter_map(|text| Network::parse(text)).collect(),
            raised_max: self.raised_max,
        })
    }

    /// The unit that its levels must have, if known.
    fn unit(&self, flows: &[FlowConfig]) -> Option<LevelUnit> {
        let flow = |name: &String| flows.iter().find(|flow| flow.name == *name);
        Some(match self.watched()? {
            Watched::Flow(name) => LevelUnit::of_measure(flow(&name)?.measure),
            Watched::Port(figure) => LevelUnit::of_port(figure),
            Watched::Agent(figure) => LevelUnit::of_agent(figure),
        })
    }
}

/// Reads all thresholds.
pub(crate) fn read_all(report: &Report, document: &Table) -> Vec<Placed<ThresholdConfig>> {
    let tables = repeated(report, document, "threshold", &SECTION).into_iter().enumerate();
    tables.filter_map(|(at, table)| read(report, table, format!("threshold[{at}]"))).collect()
}

fn read(report: &Report, table: &Table, place: String) -> Option<Placed<ThresholdConfig>> {
    let reader = Reader::open(report, table, &SECTION, &place);
    let thing = ThresholdConfig::read(&reader)?;

    let of: [&Key; 3] =
        [&ThresholdConfig::flow, &ThresholdConfig::interface, &ThresholdConfig::agent];
    let mut named = of.into_iter().filter(|key| reader.has(key));
    match (named.next(), named.next()) {
        (None, _) => reader.error(
            &ThresholdConfig::flow,
            "nothing says what is watched. Fix: write flow = \"NAME\", interface = \"in_use\" or agent = \"loss\"",
        ),
        (Some(first), Some(second)) => {
            let message = format!("{} says what is watched already. Fix: remove one", first.name);
            reader.error(second, message);
        }
        (Some(_), None) => {}
    }
    Some(Placed { place, thing })
}

/// Reports mistakes that show only in comparison with other sections.
pub(crate) fn check(report: &Report, all: &[Placed<ThresholdConfig>], flows: Option<&FlowsConfig>) {
    let groups = flows.map(FlowsConfig::built_groups).unwrap_or_default();
    let definitions = flows.map_or(&[][..], |flows| &flows.definitions);
    for (at, one) in all.iter().enumerate() {
        let ThresholdConfig { name, flow, limit, clear, .. } = &one.thing;
        if all[..at].iter().any(|earlier| earlier.thing.name == *name) {
            let message =
                format!("\"{name}\" is the name of another threshold too. Fix: give each its own");
            one.error(report, &ThresholdConfig::name, message);
        }
        if flows.is_none() {
            let message = "there is no [flows] whose figures it could watch. Fix: add [flows] with from = [\"NAME\"]";
            one.error(report, &ThresholdConfig::name, message);
            continue;
        }
        if let Some(flow) = flow
            && definitions.iter().all(|known| known.name != *flow)
        {
            one.error(report, &ThresholdConfig::flow, no_flow(flow, definitions));
        }
        if let Err(error) = one.thing.threshold(&groups) {
            one.error(report, &ThresholdConfig::filter, error);
        }

        let unit = one.thing.unit(definitions);
        for (key, level) in [(&ThresholdConfig::limit, limit), (&ThresholdConfig::clear, clear)] {
            if key.name == "clear" && limit.is_nothing() {
                continue;
            }
            if level.is_nothing() {
                one.error(report, key, "it is nothing, which everything is above. Fix: write more");
            } else if unit.is_some_and(|unit| unit != level.unit()) {
                let form = unit.map_or("", LevelUnit::form);
                // A derived level is wrong only because `limit` is: report that one.
                if key.name == "limit" || limit.unit() != clear.unit() {
                    one.error(
                        report,
                        key,
                        format!("{level} does not fit what is watched. Fix: write {form}"),
                    );
                }
            }
        }
        if limit.unit() == clear.unit() && clear.amount() > limit.amount() {
            one.error(
                report,
                &ThresholdConfig::clear,
                format!("it is above the limit of {limit}. Fix: write less"),
            );
        }
    }
}

fn no_flow(name: &str, flows: &[FlowConfig]) -> String {
    let shown = name.escape_debug();
    let names: Vec<&str> = flows.iter().map(|flow| flow.name.as_str()).collect();
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if names.is_empty() => "add a [[flow]] with this name".to_owned(),
        None => format!("write one of {}", names.join(", ")),
    };
    format!("there is no [[flow]] called \"{shown}\". Fix: {hint}")
}
