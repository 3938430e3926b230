//! The dashboard of sinks.

use super::dashboard::{Dashboard, Row, lines, loss};

pub(super) const SINKS: Dashboard = Dashboard {
    file: "sinks",
    title: "Weir: sinks",
    description: "What sinks were offered, what their stores have, what was lost or refused, and how far they are behind.",
    choices: &[
        ("instance", "weir_sink_offered_records_total"),
        ("origin", "weir_sink_offered_records_total"),
        ("sink", "weir_sink_offered_records_total"),
    ],
    rows: &[LOST, RATES, BEHIND, STATE],
};

const LOST: Row = Row {
    title: "Is anything lost?",
    panels: &[
        loss(
            "Lost",
            "Records in the chosen time that were made for a sink and that its store did not get. What settings ask for is left out.",
            &[("", "sum(increase(weir_sink_dropped_records_total{at sink,lost at sink}[range]))")],
        ),
        loss(
            "Refused",
            "Records in the chosen time that a store refused permanently.",
            &[("", "sum(increase(weir_sink_rejected_records_total{at sink}[range]))")],
        ),
        loss(
            "Fate unknown",
            "Records in the chosen time that were sent and never answered: the store may have them or not.",
            &[("", "sum(increase(weir_sink_uncertain_records_total{at sink}[range]))")],
        ),
        loss(
            "Possibly stored twice",
            "Records in the chosen time that were acknowledged after an attempt without an answer.",
            &[("", "sum(increase(weir_sink_possible_duplicate_records_total{at sink}[range]))")],
        ),
        loss(
            "Sinks down",
            "Sinks whose destination fails now.",
            &[("", "sum(1 - weir_sink_up{at sink})")],
        ),
        loss(
            "Spools found after a crash",
            "Times in the chosen time that a spool was found as a crash leaves it: what was written after its last sync may be missing uncounted.",
            &[("", "sum(increase(weir_sink_unclosed_spools_total{at sink}[range]))")],
        ),
    ],
};

const RATES: Row = Row {
    title: "Rates and reasons",
    panels: &[
        lines(
            "Offered and delivered",
            "cps",
            "Records per second that were made for each sink, and that its store acknowledged.",
            &[
                (
                    "{{sink}} offered",
                    "sum by (sink) (rate(weir_sink_offered_records_total{at sink}[rate]))",
                ),
                (
                    "{{sink}} delivered",
                    "sum by (sink) (rate(weir_sink_delivered_records_total{at sink}[rate]))",
                ),
            ],
        ),
        lines(
            "Bytes delivered",
            "Bps",
            "As encoded.",
            &[("{{sink}}", "sum by (sink) (rate(weir_sink_delivered_bytes_total{at sink}[rate]))")],
        ),
        lines(
            "Dropped, refused, unknown",
            "cps",
            "By reason and class; docs/metrics.md says what helps against each. filtered, not_in_format, target_removed and follower_ended are what settings and clients ask for.",
            &[
                (
                    "{{sink}} dropped: {{reason}}",
                    "sum by (sink, reason) (rate(weir_sink_dropped_records_total{at sink}[rate]))",
                ),
                (
                    "{{sink}} refused: {{class}}",
                    "sum by (sink, class) (rate(weir_sink_rejected_records_total{at sink}[rate]))",
                ),
                (
                    "{{sink}} unknown",
                    "sum by (sink) (rate(weir_sink_uncertain_records_total{at sink}[rate]))",
                ),
            ],
        ),
    ],
};

const BEHIND: Row = Row {
    title: "Lag and in flight",
    panels: &[
        lines(
            "Not delivered yet",
            "short",
            "Records in the queue, in the spool, and in batches that the store has not answered.",
            &[
                ("{{sink}}", "sum by (sink) (weir_sink_pending_records{at sink})"),
                ("{{sink}} in its spool", "sum by (sink) (weir_sink_spool_records{at sink})"),
            ],
        ),
        lines(
            "Age of the oldest record",
            "s",
            "How far each sink is behind.",
            &[("{{sink}}", "max by (sink) (weir_sink_oldest_record_age_seconds{at sink})")],
        ),
        lines(
            "Queue and spool in use",
            "percentunit",
            "When the queue and the spool are full, the sink loses its oldest records.",
            &[
                (
                    "{{sink}} queue",
                    "sum by (sink) (weir_sink_queue_bytes{at sink}) / sum by (sink) (weir_sink_queue_limit_bytes{at sink})",
                ),
                (
                    "{{sink}} spool",
                    "sum by (sink) (weir_sink_spool_bytes{at sink}) / sum by (sink) (weir_sink_spool_capacity_bytes{at sink})",
                ),
            ],
        ),
    ],
};

const STATE: Row = Row {
    title: "State of the stores",
    panels: &[
        lines(
            "Up",
            "bool_yes_no",
            "1 while the store takes what it is given; circuit open is 1 while it is only probed, because it kept failing.",
            &[
                ("{{sink}}", "min by (sink) (weir_sink_up{at sink})"),
                ("{{sink}} circuit open", "max by (sink) (weir_sink_circuit_open{at sink})"),
            ],
        ),
        lines(
            "Attempts, retries and errors",
            "ops",
            "Batches handed to the store per second. A retry may succeed: losses are counted as dropped.",
            &[
                (
                    "{{sink}} attempts",
                    "sum by (sink) (rate(weir_sink_attempts_total{at sink}[rate]))",
                ),
                (
                    "{{sink}} retries",
                    "sum by (sink) (rate(weir_sink_retries_total{at sink}[rate]))",
                ),
                ("{{sink}} errors", "sum by (sink) (rate(weir_sink_errors_total{at sink}[rate]))"),
            ],
        ),
        lines(
            "Time since the last acknowledgment",
            "s",
            "Of anything by each store.",
            &[(
                "{{sink}}",
                "time() - max by (sink) (weir_sink_last_acknowledged_timestamp_seconds{at sink} > 0)",
            )],
        ),
        lines(
            "Batches in flight",
            "short",
            "Batches that the store was given and has not answered yet.",
            &[("{{sink}}", "sum by (sink) (weir_sink_in_flight_batches{at sink})")],
        ),
        lines(
            "Connections and circuit openings",
            "cps",
            "Connections made to each store, and times that sending stopped because it kept failing.",
            &[
                (
                    "{{sink}} connections",
                    "sum by (sink) (rate(weir_sink_connects_total{at sink}[rate]))",
                ),
                (
                    "{{sink}} circuit openings",
                    "sum by (sink) (rate(weir_sink_circuit_openings_total{at sink}[rate]))",
                ),
            ],
        ),
        lines(
            "Panics",
            "cps",
            "Panics of a sink's client, which is started again after a pause. Please report them.",
            &[("{{sink}}", "sum by (sink) (rate(weir_sink_panics_total{at sink}[rate]))")],
        ),
    ],
};
