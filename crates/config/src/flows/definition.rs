//! `[[flow]]`: a definition of flows.

use crate::document::Table;
use crate::form::{Bool, Choice, List, Span, Text, text, whole};
use crate::keys::{Section, keys};
use crate::name::NAME;
use crate::reader::{Reader, Report, repeated};
use ::flows::{Aggregation, Definition, Direction, Field, Filter, Groups, Measure, Part, Traffic};
use std::time::Duration;

pub(crate) const SECTION: Section =
    Section { path: "flow", header: "[[flow]]", tables: &[FlowConfig::TABLE], subsections: &[] };

const SMOOTHING: Duration = Duration::from_secs(2);
const ACTIVE_TIMEOUT: Duration = Duration::from_secs(60);
const FLOWS_MAX: usize = 100_000;
const TOP: usize = 20;

keys! {
    /// A definition of flows: which samples are added up, and what they are told apart by.
    pub struct FlowConfig in "flow" {
        /// Its name, in pages, metrics, records and thresholds.
        name => name: String = NAME, required("write name = \"NAME\"");
        /// What flows are told apart by: fields (`weir flows --fields` lists them), networks as `src/24` or `src/24/48`
        /// (IPv4, IPv6), groups as `group(src)`. A sample that lacks one of them is not counted.
        keys => keys: Vec<Part> =
            List { of: "fields, networks and groups", parse: part }, empty("everything is one flow");
        /// What is added up. `samples` are counted as they arrived, without scaling.
        value => measure: Measure = Choice(&[
            ("bytes", Measure::Bytes), ("frames", Measure::Frames), ("samples", Measure::Samples),
        ]), default(Measure::Bytes);
        /// Frames that were sampled as they passed, or those that agents report as dropped.
        traffic => traffic: Traffic =
            Choice(&[("sampled", Traffic::Sampled), ("dropped", Traffic::Dropped)]), default(Traffic::Sampled);
        /// Samples that count, such as `protocol = udp and src_port = 53 and not src in 10.0.0.0/8`.
        filter => filter: Option<String> = FILTER, unset("every sample");
        /// Samples of which side of an interface count: where frames came in, or where they left.
        direction => direction: Direction = Choice(&[
            ("any", Direction::Any), ("ingress", Direction::Ingress), ("egress", Direction::Egress),
        ]), default(Direction::Any);
        /// What becomes of a frame that is sampled several times on its way. The ports of an agent add up, where frames enter it and
        /// where they leave it, and the larger of the two counts. `max`: each flow has the figure of the agent that saw most of it.
        /// `sum`: those of all agents are added. `edge`: the samples where frames come in at an interface that is not `internal`.
        aggregation => aggregation: Aggregation = Choice(&[
            ("max", Aggregation::Max), ("sum", Aggregation::Sum), ("edge", Aggregation::Edge),
        ]), default(Aggregation::Max);
        /// Time constant of the rates: shorter follows faster, longer is surer.
        smoothing => smoothing: Duration =
            Span(Duration::from_millis(100), Duration::from_secs(600)), default(SMOOTHING);
        /// Flows that pages and metrics show, the heaviest.
        top => top: usize = whole(1, 1_000), default(TOP);
        /// A flow that was not seen for so long has ended.
        active_timeout => active_timeout: Duration =
            Span(Duration::from_secs(1), Duration::from_secs(3_600)), default(ACTIVE_TIMEOUT);
        /// Flows that are kept. When there are more, the lightest makes room, and the figure of the flow that takes its place
        /// says by how much it may be too high.
        flows_max => flows_max: usize = whole(1, 100_000_000), default(FLOWS_MAX);
        /// Whether the flows that are shown have metrics of their own, with their keys as labels: at most `top` of each
        /// definition, and 1,000 of all. Addresses of hosts become labels by this, and nothing else makes them any.
        metrics => metrics: bool = Bool, default(false);
    }
}

/// Whether the filter parses is checked once the groups are known.
const FILTER: Text<String> =
    text("filter of samples, as `weir flows` has it", |text| Ok(text.to_owned()));

fn part(text: &str) -> Result<Part, String> {
    Part::parse(text).map_err(|error| error.to_string())
}

impl FlowConfig {
    /// The default definition: the one that `weir flows` shows.
    pub(super) fn usual() -> FlowConfig {
        FlowConfig {
            name: "hosts".to_owned(),
            keys: vec![Part::Field(Field::Src), Part::Field(Field::Dst)],
            measure: Measure::default(),
            traffic: Traffic::default(),
            filter: None,
            direction: Direction::default(),
            aggregation: Aggregation::default(),
            smoothing: SMOOTHING,
            top: TOP,
            active_timeout: ACTIVE_TIMEOUT,
            flows_max: FLOWS_MAX,
            metrics: false,
        }
    }

    /// Whether it refers to groups, and so changes when they change.
    pub fn names_groups(&self) -> bool {
        let is_group = |part: &Part| matches!(part, Part::Group(_));
        let in_filter = self.filter.as_deref().is_some_and(|filter| filter.contains("group"));
        in_filter || self.keys.iter().any(is_group)
    }

    /// The definition in the engine's form.
    pub fn built(&self, groups: &Groups) -> Definition {
        let filter = self.filter.as_deref().map(|text| Filter::parse(text, groups));
        Definition {
            name: self.name.clone(),
            keys: self.keys.clone(),
            traffic: self.traffic,
            measure: self.measure,
            // A filter that does not parse was refused with the file.
            filter: filter.and_then(Result::ok),
            direction: self.direction,
            aggregation: self.aggregation,
            smoothing: self.smoothing,
            top: self.top,
            active_timeout: self.active_timeout,
            flows_max: self.flows_max,
        }
    }
}

/// Reads every `[[flow]]`. Without groups (because they are wrong themselves), filters are not checked.
pub(super) fn read_all(
    report: &Report,
    document: &Table,
    groups: Option<&Groups>,
) -> Vec<FlowConfig> {
    let mut all: Vec<FlowConfig> = Vec::new();
    for (at, table) in repeated(report, document, SECTION.path, &SECTION).into_iter().enumerate() {
        let reader = Reader::open(report, table, &SECTION, &format!("flow[{at}]"));
        let Some(flow) = FlowConfig::read(&reader) else { continue };
        if all.iter().any(|earlier| earlier.name == flow.name) {
            let name = &flow.name;
            let message =
                format!("\"{name}\" is the name of another flow too. Fix: give each its own");
            reader.error(&FlowConfig::name, message);
        }
        if let (Some(filter), Some(groups)) = (&flow.filter, groups)
            && let Err(error) = Filter::parse(filter, groups)
        {
            reader.error(&FlowConfig::filter, error.to_string());
        }
        let has_places = groups.is_none_or(Groups::has_places);
        if let Some(part) = flow.keys.iter().find(|part| part.needs_places() && !has_places) {
            let message = format!(
                "{part} needs an ASN or country database. Fix: add mmdb = [\"…\"] to [flows]"
            );
            reader.error(&FlowConfig::keys, message);
        }
        all.push(flow);
    }
    all
}
