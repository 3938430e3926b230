//! The dashboard of the socket collector.

use super::dashboard::{Dashboard, Row, figure, lines, loss};

pub(super) const COLLECTOR: Dashboard = Dashboard {
    file: "collector",
    title: "Weir: socket collector",
    description: "Whether polls of the kernel's TCP sockets keep up, what they see, and which closes were missed. What the records say is in the ClickHouse dashboard sockets.json.",
    choices: &[("instance", "weir_sockets_polls_total")],
    rows: &[MISSED, POLLS, SEEN, CLOSES],
};

const MISSED: Row = Row {
    title: "Is anything missed?",
    panels: &[
        loss(
            "Closes lost",
            "Close events in the chosen time of which no record was made, for a reason that no setting asks for. event_buffer is what the kernel had no room for.",
            &[(
                "",
                "sum(increase(weir_sockets_dropped_close_records_total{at instance,lost at close}[range]))",
            )],
        ),
        loss(
            "Closes without an event",
            "Sockets that were gone at a poll and of which the kernel sent no close event, in the chosen time.",
            &[("", "sum(increase(weir_sockets_unobserved_closes_total{at instance}[range]))")],
        ),
        loss(
            "Closes before listening",
            "Connections that closed in new network namespaces before their closes could be heard, in the chosen time.",
            &[("", "sum(increase(weir_sockets_unheard_closes_total{at instance}[range]))")],
        ),
        loss(
            "Sockets not recorded",
            "Sockets that polls listed in the chosen time and of which no record was made, for a reason that no setting asks for.",
            &[(
                "",
                "sum(increase(weir_sockets_dropped_records_total{at instance,lost at poll}[range]))",
            )],
        ),
        loss(
            "Polls that began late",
            "Polls in the chosen time that took longer than the interval.",
            &[("", "sum(increase(weir_sockets_poll_overruns_total{at instance}[range]))")],
        ),
        loss(
            "Namespaces left out",
            "Network namespaces that are not collected now, because there are more than namespaces_max.",
            &[("", "sum(weir_sockets_left_out_namespaces{at instance})")],
        ),
    ],
};

const POLLS: Row = Row {
    title: "Polls",
    panels: &[
        lines(
            "Polls",
            "cps",
            "Polls per second, and those that took longer than the interval.",
            &[
                (
                    "{{instance}}",
                    "sum by (instance) (rate(weir_sockets_polls_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} late",
                    "sum by (instance) (rate(weir_sockets_poll_overruns_total{at instance}[rate]))",
                ),
            ],
        ),
        lines(
            "Duration of a poll",
            "s",
            "Median and 99th percentile of the time from the search for namespaces to the last record.",
            &[
                (
                    "{{instance}} median",
                    "histogram_quantile(0.5, sum by (instance, le) (rate(weir_sockets_poll_duration_seconds_bucket{at instance}[rate])))",
                ),
                (
                    "{{instance}} 99 %",
                    "histogram_quantile(0.99, sum by (instance, le) (rate(weir_sockets_poll_duration_seconds_bucket{at instance}[rate])))",
                ),
            ],
        ),
        lines(
            "Where polls spend their time",
            "percentunit",
            "Share of the wall clock: finding namespaces, entering them, waiting for the kernel, making records.",
            &[(
                "{{instance}} {{phase}}",
                "sum by (instance, phase) (rate(weir_sockets_phase_seconds_total{at instance}[rate]))",
            )],
        ),
        lines(
            "Sockets listed and recorded",
            "cps",
            "Sockets that the kernel listed per second, and records made of them.",
            &[
                (
                    "{{instance}} listed",
                    "sum by (instance) (rate(weir_sockets_visited_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} recorded",
                    "sum by (instance) (rate(weir_sockets_records_total{at instance}[rate]))",
                ),
            ],
        ),
        lines(
            "Listed and not recorded, by reason",
            "cps",
            "Mostly what settings ask for: unchanged, filtered, sampled. malformed is a loss.",
            &[(
                "{{instance}} {{reason}}",
                "sum by (instance, reason) (rate(weir_sockets_dropped_records_total{at instance}[rate]))",
            )],
        ),
        lines(
            "Namespaces that could not be visited",
            "cps",
            "By cause. gone is a namespace that ended during a poll, which is usual; permission means that the daemon lacks a capability.",
            &[(
                "{{instance}} {{cause}}",
                "sum by (instance, cause) (rate(weir_sockets_namespace_errors_total{at instance}[rate]))",
            )],
        ),
    ],
};

const SEEN: Row = Row {
    title: "What there is",
    panels: &[
        lines(
            "Sockets by state",
            "short",
            "At the last poll, of those that the filter lets through.",
            &[("{{state}}", "sum by (state) (weir_sockets_open{at instance})")],
        ),
        lines(
            "Namespaces",
            "short",
            "Network namespaces that the last poll found.",
            &[("{{instance}}", "sum by (instance) (weir_sockets_namespaces{at instance})")],
        ),
        lines(
            "New and quiet namespaces",
            "cps",
            "Namespaces found for the first time per second, and visits without a walk because TCP had done nothing there.",
            &[
                (
                    "{{instance}} new",
                    "sum by (instance) (rate(weir_sockets_new_namespaces_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} quiet",
                    "sum by (instance) (rate(weir_sockets_quiet_namespaces_total{at instance}[rate]))",
                ),
            ],
        ),
        lines(
            "Table of known sockets in use",
            "percentunit",
            "When it is full, the sockets it forgets have closing records without their history.",
            &[(
                "{{instance}}",
                "max by (instance) (weir_sockets_table_entries{at instance} / weir_sockets_table_capacity{at instance})",
            )],
        ),
        lines(
            "Sockets that the table forgot",
            "cps",
            "Because it was full. Raise table_entries_max.",
            &[(
                "{{instance}}",
                "sum by (instance) (rate(weir_sockets_table_evicted_total{at instance}[rate]))",
            )],
        ),
        lines(
            "Tables that changed during a walk",
            "cps",
            "Walks of which the kernel said that its table changed meanwhile, and attributes that this version does not know.",
            &[
                (
                    "{{instance}} interrupted",
                    "sum by (instance) (rate(weir_sockets_dump_interrupted_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} unknown",
                    "sum by (instance) (rate(weir_sockets_unknown_attributes_total{at instance}[rate]))",
                ),
            ],
        ),
    ],
};

const CLOSES: Row = Row {
    title: "Closes",
    panels: &[
        lines(
            "Close events and closing records",
            "cps",
            "Connections whose close the kernel reported per second, and records made of them.",
            &[
                (
                    "{{instance}} events",
                    "sum by (instance) (rate(weir_sockets_closes_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} records",
                    "sum by (instance) (rate(weir_sockets_close_records_total{at instance}[rate]))",
                ),
            ],
        ),
        lines(
            "How connections ended",
            "cps",
            "Resets, refusals and timeouts are connections that failed.",
            &[("{{how}}", "sum by (how) (rate(weir_sockets_closed_total{at instance}[rate]))")],
        ),
        lines(
            "Closes not recorded, by reason",
            "cps",
            "event_buffer and malformed are losses; the others are what settings ask for.",
            &[(
                "{{instance}} {{reason}}",
                "sum by (instance, reason) (rate(weir_sockets_dropped_close_records_total{at instance}[rate]))",
            )],
        ),
        lines(
            "Closes that were not heard",
            "cps",
            "Sockets that vanished without an event, and connections that closed in a new namespace before it was heard.",
            &[
                (
                    "{{instance}} without an event",
                    "sum by (instance) (rate(weir_sockets_unobserved_closes_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} before listening",
                    "sum by (instance) (rate(weir_sockets_unheard_closes_total{at instance}[rate]))",
                ),
            ],
        ),
        figure(
            "Closes recorded",
            "percentunit",
            "Share of the close events in the chosen time of which a record was made.",
            &[(
                "",
                "sum(increase(weir_sockets_close_records_total{at instance}[range])) / sum(increase(weir_sockets_closes_total{at instance}[range]))",
            )],
        ),
    ],
};
