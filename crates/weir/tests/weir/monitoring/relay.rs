//! The dashboard of the relay.

use super::dashboard::{Dashboard, Row, figure, lines, loss, table};

pub(super) const RELAY: Dashboard = Dashboard {
    file: "relay",
    title: "Weir: relay",
    description: "What listeners receive, what their targets get, and what is lost on the way: where and why.",
    choices: &[
        ("instance", "weir_build_info"),
        ("origin", "weir_relay_received_datagrams_total"),
        ("target", "weir_relay_target_offered_datagrams_total"),
    ],
    rows: &[LOST, RATES, REASONS, WAITING, STATE, LINKS, HOST],
};

const LOST: Row = Row {
    title: "Is anything lost?",
    panels: &[
        loss(
            "Lost",
            "Datagrams of listeners that were lost in the chosen time, at whichever hop, and no setting asked for it.",
            &[("", "sum(increase(weir_ledger_lost_total{at origin}[range]))")],
        ),
        loss(
            "Dropped by the kernel",
            "Datagrams that the kernel dropped at listeners' sockets in the chosen time, because their receive buffers were full.",
            &[("", "sum(increase(weir_relay_socket_dropped_datagrams_total{at origin}[range]))")],
        ),
        loss(
            "Dropped after reading",
            "Datagrams that were read and offered to no target in the chosen time. Sources that a setting denies are left out.",
            &[(
                "",
                "sum(increase(weir_relay_dropped_datagrams_total{at origin,lost at receive}[range]))",
            )],
        ),
        loss(
            "Lost at targets",
            "Datagrams that were offered to a target and not sent in the chosen time, each target's counted. What settings ask for (filters, samples, rate limits) is left out.",
            // A series begins with a target's first loss, which is no increase of it.
            &[(
                "",
                "sum((weir_relay_target_dropped_datagrams_total{at target,lost at target} unless weir_relay_target_dropped_datagrams_total offset range) or increase(weir_relay_target_dropped_datagrams_total{at target,lost at target}[range])) or vector(0)",
            )],
        ),
        loss(
            "Returned by the network",
            "Datagrams that were sent in the chosen time and reported as undeliverable. A lower bound: networks are silent about most losses.",
            &[(
                "",
                "sum((weir_relay_target_returned_datagrams_total{at target} unless weir_relay_target_returned_datagrams_total offset range) or increase(weir_relay_target_returned_datagrams_total{at target}[range])) or vector(0)",
            )],
        ),
        loss(
            "Targets down",
            "Targets that refuse, do not answer, or take nothing of what waits for them, now.",
            &[("", "sum(1 - weir_relay_target_up{at target})")],
        ),
        loss(
            "Ledger violations",
            "Moments in the chosen time at which the ledger did not balance. Anything but 0 is a defect of Weir: please report it.",
            &[("", "sum(increase(weir_ledger_violations_total{at instance}[range]))")],
        ),
    ],
};

const RATES: Row = Row {
    title: "Rates",
    panels: &[
        lines(
            "Received",
            "cps",
            "Datagrams read from each listener's socket per second.",
            &[(
                "{{origin}}",
                "sum by (origin) (rate(weir_relay_received_datagrams_total{at origin}[rate]))",
            )],
        ),
        lines(
            "Sent",
            "cps",
            "Datagrams handed to the kernel for each target per second.",
            &[(
                "{{origin}} to {{target}}",
                "sum by (origin, target) (rate(weir_relay_target_sent_datagrams_total{at target}[rate]))",
            )],
        ),
        lines(
            "Bytes",
            "Bps",
            "Payload bytes per second, received and sent to all targets together.",
            &[
                (
                    "{{origin}} received",
                    "sum by (origin) (rate(weir_relay_received_bytes_total{at origin}[rate]))",
                ),
                (
                    "{{origin}} sent",
                    "sum by (origin) (rate(weir_relay_target_sent_bytes_total{at target}[rate]))",
                ),
            ],
        ),
        lines(
            "Datagrams per system call",
            "none",
            "How many datagrams each call receives or sends. More means less CPU time for each.",
            &[
                (
                    "{{origin}} receiving",
                    "sum by (origin) (rate(weir_relay_received_datagrams_total{at origin}[rate])) / sum by (origin) (rate(weir_relay_receive_batches_total{at origin}[rate]))",
                ),
                (
                    "{{origin}} to {{target}}",
                    "sum by (origin, target) (rate(weir_relay_target_sent_datagrams_total{at target}[rate])) / sum by (origin, target) (rate(weir_relay_target_send_calls_total{at target}[rate]))",
                ),
            ],
        ),
        lines(
            "Not sent, for any reason",
            "cps",
            "Datagrams per second that were offered to a target and not sent, including what settings ask for. It shows the first loss of a target, which the curves by reason cannot.",
            &[(
                "{{origin}} to {{target}}",
                "sum by (origin, target) (rate(weir_relay_target_unsent_datagrams_total{at target}[rate]))",
            )],
        ),
        lines(
            "CPU time",
            "percentunit",
            "Processor time of the daemon; 100 % is one core.",
            &[(
                "{{instance}}",
                "rate(process_cpu_seconds_total{at instance}[rate]) and on (instance, job) weir_build_info",
            )],
        ),
    ],
};

const REASONS: Row = Row {
    title: "Where and why",
    panels: &[
        lines(
            "Dropped by the kernel",
            "cps",
            "At the listeners' sockets, before Weir could read them. Raise receive_buffer, or use `weir doctor` to see what limits it.",
            &[(
                "{{origin}}: {{reason}}",
                "sum by (origin, reason) (rate(weir_relay_socket_dropped_datagrams_total{at origin}[rate]))",
            )],
        ),
        lines(
            "Dropped after reading",
            "cps",
            "Datagrams that were read and offered to no target, by reason. docs/metrics.md says what helps against each.",
            &[(
                "{{origin}}: {{reason}}",
                "sum by (origin, reason) (rate(weir_relay_dropped_datagrams_total{at origin}[rate]))",
            )],
        ),
        lines(
            "Not sent, by reason",
            "cps",
            "Datagrams offered to a target and not sent, by reason. filtered, sampled, rate_limited and target_removed are what settings ask for.",
            &[(
                "{{origin}} to {{target}}: {{reason}}",
                "sum by (origin, target, reason) (rate(weir_relay_target_dropped_datagrams_total{at target}[rate]))",
            )],
        ),
        lines(
            "Returned by the network, by reason",
            "cps",
            "Sent and reported as undeliverable.",
            &[(
                "{{origin}} to {{target}}: {{reason}}",
                "sum by (origin, target, reason) (rate(weir_relay_target_returned_datagrams_total{at target}[rate]))",
            )],
        ),
        lines(
            "Dropped at receivers on this host",
            "cps",
            "Datagrams that the kernel dropped at a receiver's own socket, because that program reads too slowly. From all its senders.",
            &[(
                "{{origin}} to {{target}}",
                "sum by (origin, target) (rate(weir_relay_target_receiver_dropped_datagrams_total{at target}[rate]))",
            )],
        ),
        lines(
            "Failed send calls, by error",
            "cps",
            "Attempts that failed. A retry may have succeeded: losses are in the panels of reasons.",
            &[
                (
                    "{{origin}} to {{target}}: {{errno}}",
                    "sum by (origin, target, errno) (rate(weir_relay_target_send_errors_total{at target}[rate]))",
                ),
                (
                    "{{origin}} to {{target}}: ICMP {{code}}",
                    "sum by (origin, target, code) (rate(weir_relay_target_icmp_errors_total{at target}[rate]))",
                ),
            ],
        ),
    ],
};

const WAITING: Row = Row {
    title: "Lag and in flight",
    panels: &[
        lines(
            "Waiting for targets",
            "short",
            "Datagrams in the ring that a target has still to send.",
            &[(
                "{{origin}} to {{target}}",
                "sum by (origin, target) (weir_relay_target_queue_datagrams{at target})",
            )],
        ),
        lines(
            "Oldest datagram that waits",
            "s",
            "How far each target is behind.",
            &[(
                "{{origin}} to {{target}}",
                "max by (origin, target) (weir_relay_target_queue_oldest_age_seconds{at target})",
            )],
        ),
        lines(
            "Ring in use",
            "percentunit",
            "How much of the ring is held for each target. Above seven eighths a target loses its oldest.",
            &[(
                "{{origin}} to {{target}}",
                "max by (instance, origin, target) (weir_relay_target_ring_held_ratio{at target})",
            )],
        ),
        lines(
            "Delay from receiving to sending",
            "s",
            "Median and 99th percentile for each target.",
            &[
                (
                    "{{origin}} to {{target}} median",
                    "histogram_quantile(0.5, sum by (origin, target, le) (rate(weir_relay_target_delay_seconds_bucket{at target}[rate])))",
                ),
                (
                    "{{origin}} to {{target}} 99 %",
                    "histogram_quantile(0.99, sum by (origin, target, le) (rate(weir_relay_target_delay_seconds_bucket{at target}[rate])))",
                ),
            ],
        ),
        lines(
            "Receive buffer in use",
            "percentunit",
            "How much of each listener's receive buffer waits to be read, as the kernel charges it. At 100 % the kernel drops.",
            &[(
                "{{origin}}",
                "max by (origin) (weir_relay_receive_buffer_used_bytes{at origin} / weir_relay_receive_buffer_bytes{at origin})",
            )],
        ),
        lines(
            "Inside each hop",
            "short",
            "Received less everything that left: what is in flight at each hop of the ledger. 0 at rest, never negative.",
            &[("{{hop}} of {{origin}}", "sum by (hop, origin) (weir_ledger_residual{at origin})")],
        ),
    ],
};

const STATE: Row = Row {
    title: "State",
    panels: &[
        lines(
            "Targets up",
            "bool_yes_no",
            "1 while the target takes what it is given.",
            &[(
                "{{origin}} to {{target}}",
                "min by (origin, target) (weir_relay_target_up{at target})",
            )],
        ),
        lines(
            "Time since a listener last moved",
            "s",
            "Age of the last turn of a listener's data loops. Seconds mean that a thread is stuck or has no processor.",
            &[("{{origin}}", "max by (origin) (weir_listener_heartbeat_age_seconds{at origin})")],
        ),
        lines(
            "Resident memory",
            "bytes",
            "Memory of the daemon. The rings are the largest part.",
            &[(
                "{{instance}}",
                "process_resident_memory_bytes{at instance} and on (instance, job) weir_build_info",
            )],
        ),
        table(
            "Components that are not well",
            "none",
            "Listeners, targets and sinks that are starting, degraded (down, or losing what no setting asks for), failed or stopping. Empty when all is well.",
            &[("Now", "weir_component_state{at instance,state!=\"ok\"} == 1")],
        ),
        table(
            "Daemons",
            "none",
            "Version of each daemon, and whether its last reload was taken (1) or refused (0).",
            &[(
                "Reload taken",
                "weir_config_last_reload_successful{at instance} * on (instance, job) group_left (version, commit) weir_build_info",
            )],
        ),
    ],
};

const LINKS: Row = Row {
    title: "Links to other Weirs",
    panels: &[
        lines(
            "Packets and repairs",
            "cps",
            "Packets sent to the other Weir per second, and how many of them carried again what was lost on the way.",
            &[
                (
                    "{{origin}} to {{target}}",
                    "sum by (origin, target) (rate(weir_relay_target_link_packets_total{at target}[rate]))",
                ),
                (
                    "{{origin}} to {{target}} repairs",
                    "sum by (origin, target) (rate(weir_relay_target_link_repairs_total{at target}[rate]))",
                ),
            ],
        ),
        lines(
            "Lost on the way",
            "percentunit",
            "Share of the last thousand reported packets that were lost on the way. They are repaired while the deadline and the bandwidth allow it.",
            &[(
                "{{origin}} to {{target}}",
                "max by (origin, target) (weir_relay_target_link_loss_ppm{at target}) / 1e6",
            )],
        ),
        lines(
            "Round trip",
            "s",
            "Time to the other Weir and back.",
            &[(
                "{{origin}} to {{target}}",
                "max by (origin, target) (weir_relay_target_link_round_trip_seconds{at target})",
            )],
        ),
        lines(
            "Rate allowed",
            "Bps",
            "Bytes per second that may be sent to the other Weir: the configured bandwidth, or less while the way is full.",
            &[(
                "{{origin}} to {{target}}",
                "min by (origin, target) (weir_relay_target_link_rate_bytes{at target})",
            )],
        ),
        lines(
            "Fate unknown, or lost in a crash",
            "cps",
            "Datagrams sent to another Weir that lost its memory of them, and those that a crash of this one lost.",
            &[
                (
                    "{{origin}} to {{target}} unknown",
                    "sum by (origin, target) (rate(weir_relay_target_uncertain_datagrams_total{at target}[rate]))",
                ),
                (
                    "{{origin}} to {{target}} in a crash",
                    "sum by (origin, target) (rate(weir_relay_target_link_lost_in_crash_total{at target}[rate]))",
                ),
            ],
        ),
        lines(
            "Packets that a listener refused",
            "cps",
            "Packets not made with a known key, replayed, or of no known session; and datagrams that came after their sender had given up.",
            &[
                (
                    "{{origin}} forged",
                    "sum by (origin) (rate(weir_relay_link_forged_packets_total{at origin}[rate]))",
                ),
                (
                    "{{origin}} replayed",
                    "sum by (origin) (rate(weir_relay_link_replayed_packets_total{at origin}[rate]))",
                ),
                (
                    "{{origin}} strange",
                    "sum by (origin) (rate(weir_relay_link_strange_packets_total{at origin}[rate]))",
                ),
                (
                    "{{origin}} late",
                    "sum by (origin) (rate(weir_relay_link_late_datagrams_total{at origin}[rate]))",
                ),
            ],
        ),
    ],
};

const HOST: Row = Row {
    title: "The host, where other programs share the counters",
    panels: &[
        lines(
            "UDP errors",
            "cps",
            "All sockets of the network namespace, by the kernel's counter. RcvbufErrors contains the drops at Weir's own sockets.",
            &[(
                "{{instance}} {{family}} {{cause}}",
                "sum by (instance, family, cause) (rate(weir_host_udp_errors_total{at instance}[rate]))",
            )],
        ),
        lines(
            "Dropped before any socket",
            "cps",
            "Packets dropped because a processor's backlog was full, and times that packet processing stopped with work left.",
            &[
                (
                    "{{instance}} dropped",
                    "sum by (instance) (rate(weir_host_softnet_dropped_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} squeezed",
                    "sum by (instance) (rate(weir_host_softnet_squeezed_total{at instance}[rate]))",
                ),
            ],
        ),
        lines(
            "Dropped by interfaces",
            "cps",
            "Packets that an interface received and dropped, had no room for, or dropped on their way out.",
            &[
                (
                    "{{instance}} {{device}} received",
                    "sum by (instance, device) (rate(weir_host_interface_receive_dropped_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} {{device}} missed",
                    "sum by (instance, device) (rate(weir_host_interface_receive_missed_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} {{device}} sent",
                    "sum by (instance, device) (rate(weir_host_interface_transmit_dropped_total{at instance}[rate]))",
                ),
            ],
        ),
        lines(
            "Open files",
            "short",
            "Descriptors that the daemon has open, and the most that it may open.",
            &[
                (
                    "{{instance}} open",
                    "process_open_fds{at instance} and on (instance, job) weir_build_info",
                ),
                (
                    "{{instance}} most",
                    "process_max_fds{at instance} and on (instance, job) weir_build_info",
                ),
            ],
        ),
        lines(
            "Requests to the admin server",
            "reqps",
            "Pages, metrics and commands that ask the daemon; those that it refused, and connections that it closed.",
            &[
                (
                    "{{instance}} {{handler}}",
                    "sum by (instance, handler) (rate(weir_http_requests_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} {{handler}} refused",
                    "sum by (instance, handler) (rate(weir_http_request_failures_total{at instance}[rate]))",
                ),
                (
                    "{{instance}} closed: {{cause}}",
                    "sum by (instance, cause) (rate(weir_http_connections_dropped_total{at instance}[rate]))",
                ),
            ],
        ),
        figure(
            "Time since the start",
            "s",
            "Of the daemon that started last.",
            &[("", "time() - max(weir_start_time_seconds{at instance})")],
        ),
    ],
};
