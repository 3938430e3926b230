//! The dashboard of flows.

use super::dashboard::{Dashboard, Row, figure, lines, loss, table};

pub(super) const FLOWS: Dashboard = Dashboard {
    file: "flows",
    title: "Weir: flows",
    description: "The heaviest flows of definitions with `metrics = true`, each with its 95 % interval and the samples that it rests on, and what was lost of sFlow on the way.",
    choices: &[("instance", "weir_flow_agents"), ("flow", "weir_flow_definition_flows")],
    rows: &[LOST, HEAVIEST, READ, DEFINITIONS],
};

const LOST: Row = Row {
    title: "Is anything lost?",
    panels: &[
        loss(
            "Lost at this collector",
            "Datagrams in the chosen time that this program or the kernel dropped before the analysis.",
            &[(
                "",
                "sum(increase(weir_flows_collector_dropped_datagrams_total{at instance}[range]))",
            )],
        ),
        loss(
            "Lost on the network",
            "Datagrams in the chosen time that agents numbered and that did not get here, without those that were dropped here.",
            &[(
                "",
                "sum(clamp_min(delta(weir_flows_network_missing_datagrams{at instance}[range]), 0))",
            )],
        ),
        loss(
            "Samples lost by agents",
            "Samples in the chosen time that agents say they dropped before they sent them.",
            &[("", "sum(increase(weir_flows_agent_dropped_samples_total{at instance}[range]))")],
        ),
        loss(
            "Not read",
            "Datagrams in the chosen time that are not sFlow, or of agents beyond agents_max.",
            &[(
                "",
                "sum(increase(weir_flows_dropped_datagrams_total{at instance,lost at analysis}[range]))",
            )],
        ),
        loss(
            "Events missed",
            "Threshold events in the chosen time that no sink was given, because more came at once than Weir buffers.",
            &[("", "sum(increase(weir_flows_missed_events_total{at instance}[range]))")],
        ),
        figure(
            "Agents",
            "short",
            "Agents of sFlow that were heard in the last ten minutes.",
            &[("", "sum(weir_flow_agents{at instance})")],
        ),
    ],
};

const HEAVIEST: Row = Row {
    title: "The heaviest flows",
    panels: &[
        table(
            "Bits per second, with their 95 % interval",
            "bps",
            "Corrected for loss. The true rate is within the interval 95 times of 100.",
            &[
                ("Bits per second", "weir_flow_bytes_per_second{at flow} * 8"),
                ("Low", "weir_flow_bytes_per_second_low{at flow} * 8"),
                ("High", "weir_flow_bytes_per_second_high{at flow} * 8"),
            ],
        ),
        lines(
            "Bits per second",
            "bps",
            "The ten heaviest flows.",
            &[("__auto", "topk(10, weir_flow_bytes_per_second{at flow} * 8)")],
        ),
        lines(
            "Frames and samples per second",
            "cps",
            "The ten heaviest flows of definitions that count frames or samples.",
            &[
                ("__auto", "topk(10, weir_flow_frames_per_second{at flow} + 0)"),
                ("__auto", "topk(10, weir_flow_samples_per_second{at flow} + 0)"),
            ],
        ),
        lines(
            "Half the width of the interval, of the rate",
            "percentunit",
            "How far the true rate may be from the figure, for the ten heaviest flows. More samples make it narrower.",
            &[(
                "__auto",
                "(weir_flow_bytes_per_second_high{at flow} - weir_flow_bytes_per_second_low{at flow}) / 2 / weir_flow_bytes_per_second{at flow} and topk(10, weir_flow_bytes_per_second{at flow})",
            )],
        ),
        lines(
            "Samples behind each figure",
            "short",
            "How many samples of equal size would be as sure as the figure is: below ten it says little. The ten flows with the fewest.",
            &[("__auto", "bottomk(10, weir_flow_bytes_per_second_samples{at flow} + 0)")],
        ),
    ],
};

const READ: Row = Row {
    title: "Agents, datagrams, samples",
    panels: &[
        lines(
            "Datagrams received and read",
            "cps",
            "Datagrams that the analysis took per second, and those whose samples are in the figures.",
            &[
                (
                    "{{instance}} received",
                    "sum by (instance) (rate(weir_flows_received_datagrams_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} read",
                    "sum by (instance) (rate(weir_flows_read_datagrams_total{at instance}[rate]))",
                ),
            ],
        ),
        lines(
            "Datagrams not read, by reason",
            "cps",
            "duplicate_datagram is intended: its samples are counted once.",
            &[(
                "{{instance}} {{reason}}",
                "sum by (instance, reason) (rate(weir_flows_dropped_datagrams_total{at instance}[rate]))",
            )],
        ),
        lines(
            "Samples, by kind",
            "cps",
            "source_limit are samples scaled by the configured rate, because there are too many sources.",
            &[(
                "{{instance}} {{kind}}",
                "sum by (instance, kind) (rate(weir_flow_samples_total{at instance}[rate]))",
            )],
        ),
        lines(
            "Missing datagrams",
            "short",
            "Datagrams that agents numbered and that did not reach the analysis, since the start: all of them, and those that the network lost.",
            &[
                (
                    "{{instance}} all",
                    "sum by (instance) (weir_flows_missing_datagrams{at instance})",
                ),
                (
                    "{{instance}} network",
                    "sum by (instance) (weir_flows_network_missing_datagrams{at instance})",
                ),
            ],
        ),
        lines(
            "Agents",
            "short",
            "Agents that were heard in the last ten minutes. One that falls silent drops out after that.",
            &[("{{instance}}", "sum by (instance) (weir_flow_agents{at instance})")],
        ),
        lines(
            "Unknown and broken structures",
            "cps",
            "Structures that this version does not know are skipped; broken ones are counted by what is wrong.",
            &[
                (
                    "{{instance}} unknown",
                    "sum by (instance) (rate(weir_flow_unknown_structures_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} {{class}}",
                    "sum by (instance, class) (rate(weir_flow_faults_total{at instance}[rate]))",
                ),
            ],
        ),
    ],
};

const DEFINITIONS: Row = Row {
    title: "Definitions",
    panels: &[
        lines(
            "Samples of each definition",
            "cps",
            "counted, filtered, or without_key: they lack a part of the definition's key.",
            &[(
                "{{flow}} {{result}}",
                "sum by (flow, result) (rate(weir_flow_definition_samples_total{at flow}[rate]))",
            )],
        ),
        lines(
            "Flows kept",
            "short",
            "Flows that each definition keeps now.",
            &[("{{flow}}", "sum by (flow) (weir_flow_definition_flows{at flow})")],
        ),
        lines(
            "Flows that made room",
            "cps",
            "Flows that were given up because the definition has more than flows_max, samples that were not watched, and flows without series now.",
            &[
                (
                    "{{flow}}",
                    "sum by (flow) (rate(weir_flow_definition_evicted_total{at flow}[rate]))",
                ),
                (
                    "{{instance}} not watched",
                    "sum by (instance) (rate(weir_flows_unwatched_samples_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} without series",
                    "sum by (instance) (weir_flow_series_omitted{at instance})",
                ),
            ],
        ),
    ],
};
