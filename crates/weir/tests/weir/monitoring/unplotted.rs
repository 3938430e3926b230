//! Metrics that no panel of a dashboard plots.

/// Each with the reason why not. A metric that is neither plotted nor here fails the test, and so does one that is both.
pub(super) const UNPLOTTED: &[(&str, &str)] = &[
    ("weir_config_info", "its labels name a version, and nothing is counted"),
    ("weir_config_reloads_total", "whether the last reload succeeded is plotted"),
    ("weir_config_reload_failures_total", "whether the last reload succeeded is plotted"),
    ("weir_config_last_reload_timestamp_seconds", "whether the last reload succeeded is plotted"),
    (
        "weir_relay_accepted_datagrams_total",
        "received less what is dropped at the listener, which are plotted",
    ),
    ("weir_relay_empty_datagrams_total", "they are forwarded like others"),
    (
        "weir_flow_discrepancies_total",
        "figures are right all the same; `weir flows --agents` names who and what",
    ),
    (
        "weir_flow_definition_lacking_samples_total",
        "a part of a definition's samples; the flows' own answer counts them",
    ),
    ("weir_relay_receive_errors_total", "no datagram is lost by one"),
    ("weir_relay_overtaken_datagrams_total", "no datagram is lost by one"),
    (
        "weir_relay_link_packets_total",
        "the sender's side is plotted, and both ends agree or the ledger says so",
    ),
    ("weir_relay_link_hellos_refused_total", "counts handshakes, not datagrams"),
    ("weir_relay_link_hello_cookies_total", "counts handshakes, not datagrams"),
    ("weir_relay_link_repeated_datagrams_total", "what repairs cost is plotted at the sender"),
    ("weir_relay_link_packets_without_room_total", "they are sent again, and repairs are plotted"),
    ("weir_relay_link_sessions", "counts sessions, not datagrams"),
    (
        "weir_relay_member_received_datagrams_total",
        "a part of the listener's figures, which are plotted",
    ),
    (
        "weir_relay_member_dropped_datagrams_total",
        "a part of the listener's figures, which are plotted",
    ),
    (
        "weir_relay_target_offered_datagrams_total",
        "the sum of what was delivered, dropped and waits, which are plotted",
    ),
    ("weir_relay_target_retries_total", "outside the law: an attempt that succeeds loses nothing"),
    (
        "weir_relay_target_without_source_datagrams_total",
        "only where a target keeps source addresses, and no datagram is lost by it",
    ),
    (
        "weir_relay_target_without_port_datagrams_total",
        "only where a target keeps source addresses, and no datagram is lost by it",
    ),
    (
        "weir_relay_target_sender_turnover_total",
        "only where a target keeps source addresses, and no datagram is lost by it",
    ),
    ("weir_relay_socket_renewals_total", "counts sockets, not datagrams, and the log has each"),
    (
        "weir_relay_target_socket_renewals_total",
        "counts sockets, not datagrams, and the log has each",
    ),
    ("weir_sink_socket_renewals_total", "counts sockets, not records, and the log has each"),
    (
        "weir_relay_target_file_tails_mended_total",
        "once after a crash or a fault of the disk, and no datagram is lost by it",
    ),
    (
        "weir_relay_target_files_set_aside_total",
        "once after a crash or a fault of the disk, and no datagram is lost by it",
    ),
    ("weir_relay_target_link_repairs_spurious_total", "a part of the repairs, which are plotted"),
    ("weir_relay_target_link_sessions_total", "counts sessions, not datagrams"),
    (
        "weir_relay_target_link_peer_restarts_total",
        "counts sessions, not datagrams; what was lost in a crash is plotted",
    ),
    ("weir_relay_target_link_possible_duplicates_total", "beside the law: nothing is lost by it"),
    ("weir_relay_target_gso", "how datagrams leave, not whether"),
    ("weir_relay_target_queue_capacity_datagrams", "a constant; what waits is plotted"),
    ("weir_flows_received_bytes_total", "datagrams are plotted"),
    ("weir_flows_agents", "agents that were heard lately are plotted (weir_flow_agents)"),
    (
        "weir_sink_recovered_records_total",
        "once at the start; they count as received, which is plotted",
    ),
    ("weir_sink_spool_cut_bytes_total", "once at the start after a crash"),
    ("weir_sink_kept_records_total", "once at the end, for the next life"),
    ("weir_sink_queue_records", "the bytes of the queue are plotted with their limit"),
    ("weir_sink_encoder_bytes", "a part of the resident memory, which is plotted"),
    ("weir_host_udp_receive_errors_total", "the sum of the causes, which are plotted"),
    (
        "weir_host_interface_receive_errors_total",
        "bad packets of the wire; node_exporter plots them with the rest of the interface",
    ),
    ("weir_host_interfaces_omitted", "a constant of the host"),
    ("weir_flow_datagrams_total", "the ledger's counts of the same datagrams are plotted"),
    (
        "weir_flow_frames_per_second_low",
        "the interval is plotted for bytes, which most definitions add up",
    ),
    (
        "weir_flow_frames_per_second_high",
        "the interval is plotted for bytes, which most definitions add up",
    ),
    (
        "weir_flow_frames_per_second_samples",
        "the interval is plotted for bytes, which most definitions add up",
    ),
    (
        "weir_flow_samples_per_second_low",
        "the interval is plotted for bytes, which most definitions add up",
    ),
    (
        "weir_flow_samples_per_second_high",
        "the interval is plotted for bytes, which most definitions add up",
    ),
    (
        "weir_flow_samples_per_second_samples",
        "the interval is plotted for bytes, which most definitions add up",
    ),
    ("weir_statsd_pushes_total", "that server has the figures themselves"),
    ("weir_statsd_push_failures_total", "their counts are sent with the next push"),
    ("process_virtual_memory_bytes", "says little: rings and files are mapped whole"),
    ("process_threads", "as many as the configuration has parts"),
    ("process_start_time_seconds", "weir_start_time_seconds is plotted"),
];
