use ledger::{
    ConnectionEnd, Event, Gauge, HopKind, IcmpError, NamespaceError, PollPhase, SendError,
};

/// The type of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Never decreases while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts in buckets.
    Histogram,
}

impl Kind {
    /// The type's word in both formats.
    pub fn label(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One row of the table: everything about a metric except its values.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub id: FamilyId,
    pub name: &'static str,
    pub kind: Kind,
    /// Label names, in the order in which they are written.
    pub labels: &'static [&'static str],
    /// One line, without backslashes, quotes or line feeds, which the formats would have to escape.
    pub help: &'static str,
    /// For a family that shows one figure of the ledger: the kind of hop, and the figure.
    pub(crate) figure: Option<(HopKind, Figure)>,
}

/// The figure of a hop that a family shows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Figure {
    Received,
    ReceivedBytes,
    Delivered,
    DeliveredBytes,
    /// By reason, which is the family's last label.
    Dropped,
    /// All reasons together.
    AllDropped,
    /// By class, which is the family's last label.
    Rejected,
    Uncertain,
    /// Rows left in a spool when its sink ended.
    Kept,
    InFlight,
    Capacity,
    Delay,
    Event(Event),
    Gauge(Gauge),
}

macro_rules! help {
    ([$help:expr] $($figure:ident)*) => {
        $help
    };
    ([] $table:ident $figure:ident) => {
        $table::$figure.meaning()
    };
}

macro_rules! figure {
    () => {
        None
    };
    ($place:ident $figure:ident) => {
        Some((HopKind::$place, Figure::$figure))
    };
    ($place:ident $table:ident $figure:ident) => {
        Some((HopKind::$place, Figure::$table($table::$figure)))
    };
}

/// Rows are `Id Kind "name" ["label", …] "help";`. The figure that a family shows of each hop of one kind follows its name:
/// `= Hop Figure`, or `= Hop Event::Name`, whose help is the event's meaning.
macro_rules! families {
    ($($id:ident $kind:ident $name:literal $(= $place:ident $figure:ident $(::$key:ident)?)?
        [$($label:literal),*] $($help:expr)?;)+) => {
        /// The index of a row of [`FAMILIES`]: `FAMILIES[id as usize]`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum FamilyId { $($id,)+ }

        /// Every metric that Weir exports.
        pub const FAMILIES: &[Family] = &[$(Family {
            id: FamilyId::$id,
            name: $name,
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: help!([$($help)?] $($figure $($key)?)?),
            figure: figure!($($place $figure $($key)?)?),
        },)+];
    };
}

families! {
    BuildInfo Gauge "weir_build_info" ["version", "commit", "target"]
        "Always 1. The labels say what was built.";
    ConfigInfo Gauge "weir_config_info" ["hash", "generation"]
        "Always 1. The labels name the configuration in force; generation 1 is the first one.";
    StartTime Gauge "weir_start_time_seconds" []
        "When the daemon started, in seconds since 1970.";
    ConfigReloads Counter "weir_config_reloads_total" []
        "Reloads of the configuration that were asked for.";
    ConfigReloadFailures Counter "weir_config_reload_failures_total" []
        "Reloads that were refused; the former configuration stayed in force.";
    ConfigLastReloadSuccessful Gauge "weir_config_last_reload_successful" []
        "1 unless the last reload was refused.";
    ConfigLastReloadTimestamp Gauge "weir_config_last_reload_timestamp_seconds" []
        "When the configuration in force was applied, in seconds since 1970.";
    ComponentState Gauge "weir_component_state" ["component", "state"]
        "1 for the state that the component is in and 0 for the others, which are absent for a target: starting, ok, degraded (down, or it loses what no setting asks for), failed, stopping.";
    HeartbeatAge Gauge "weir_listener_heartbeat_age_seconds" ["origin"]
        "Time since the listener's data loops last moved.";

    LedgerLost Counter "weir_ledger_lost_total" ["origin"]
        "Datagrams and records of the origin that were lost, at whichever hop: loss and nothing else. What settings ask for (filters, samples, rate limits) is not in it; uncertain ones are.";
    LedgerResidual Gauge "weir_ledger_residual" ["hop", "origin", "target"]
        "Received less everything that left: what is inside the hop. 0 at rest, and absent then of targets; negative or above the hop's capacity is a bug of Weir.";
    LedgerViolations Counter "weir_ledger_violations_total" []
        "Moments at which the ledger did not balance at some hop. Anything but 0 is a bug of Weir.";

    SocketDropped Counter "weir_relay_socket_dropped_datagrams_total" = Socket Dropped ["origin", "reason"]
        "Datagrams that the kernel dropped at the listener's socket before they could be read (SO_MEMINFO).";
    ReceiveBuffer Gauge "weir_relay_receive_buffer_bytes" = Socket Gauge::ReceiveBufferBytes ["origin"];
    ReceiveBufferUsed Gauge "weir_relay_receive_buffer_used_bytes" = Socket Gauge::ReceiveQueueBytes ["origin"];
    Received Counter "weir_relay_received_datagrams_total" = Receive Received ["origin"]
        "Datagrams read from the listener's socket.";
    ReceivedBytes Counter "weir_relay_received_bytes_total" = Receive ReceivedBytes ["origin"]
        "Payload bytes read from the listener's socket.";
    Accepted Counter "weir_relay_accepted_datagrams_total" = Receive Delivered ["origin"]
        "Datagrams that were offered to the listener's targets.";
    Dropped Counter "weir_relay_dropped_datagrams_total" = Receive Dropped ["origin", "reason"]
        "Datagrams that were read and not offered to any target.";
    ReceiveBatches Counter "weir_relay_receive_batches_total" = Receive Event::Batches ["origin"];
    EmptyDatagrams Counter "weir_relay_empty_datagrams_total" = Receive Event::EmptyDatagrams ["origin"];
    ReceiveErrors Counter "weir_relay_receive_errors_total" = Receive Event::ReceiveErrors ["origin"];
    SocketRenewals Counter "weir_relay_socket_renewals_total" = Receive Event::SocketRenewals ["origin"];
    Overtaken Counter "weir_relay_overtaken_datagrams_total" = Receive Event::Overtaken ["origin"];
    LinkReceived Counter "weir_relay_link_packets_total" = Receive Event::Packets ["origin"];
    LinkForged Counter "weir_relay_link_forged_packets_total" = Receive Event::ForgedPackets ["origin"];
    LinkReplayed Counter "weir_relay_link_replayed_packets_total" = Receive Event::ReplayedPackets ["origin"];
    LinkStrange Counter "weir_relay_link_strange_packets_total" = Receive Event::StrangePackets ["origin"];
    LinkHellosRefused Counter "weir_relay_link_hellos_refused_total" = Receive Event::HellosRefused ["origin"];
    LinkHelloCookies Counter "weir_relay_link_hello_cookies_total" = Receive Event::HelloCookies ["origin"];
    LinkRepeated Counter "weir_relay_link_repeated_datagrams_total" = Receive Event::RepeatedDatagrams ["origin"];
    LinkLate Counter "weir_relay_link_late_datagrams_total" = Receive Event::LateDatagrams ["origin"];
    LinkWithoutRoom Counter "weir_relay_link_packets_without_room_total" = Receive Event::PacketsWithoutRoom ["origin"];
    LinkSessionsOpen Gauge "weir_relay_link_sessions" = Receive Gauge::SessionsOpen ["origin"];
    MemberReceived Counter "weir_relay_member_received_datagrams_total" = Member Received ["origin", "socket"]
        "Datagrams that arrived at one of several sockets of the listener. They are in the listener's figures too.";
    MemberDropped Counter "weir_relay_member_dropped_datagrams_total" = Member Dropped ["origin", "socket", "reason"]
        "Datagrams of one of several sockets that did not get as far as where they are merged. They are in the listener's figures too.";

    TargetUp Gauge "weir_relay_target_up" = Target Gauge::Up ["origin", "target"];
    TargetOffered Counter "weir_relay_target_offered_datagrams_total" = Target Received ["origin", "target"]
        "Datagrams accepted since the target joined.";
    TargetSent Counter "weir_relay_target_sent_datagrams_total" = Target Delivered ["origin", "target"]
        "Datagrams that were handed to the kernel for the target. What came back as undeliverable is counted as returned.";
    TargetSentBytes Counter "weir_relay_target_sent_bytes_total" = Target DeliveredBytes ["origin", "target"]
        "Payload bytes that were handed to the kernel for the target.";
    TargetDropped Counter "weir_relay_target_dropped_datagrams_total" = Target Dropped ["origin", "target", "reason"]
        "Datagrams that were offered to the target and not handed to the kernel.";
    TargetUnsent Counter "weir_relay_target_unsent_datagrams_total" = Target AllDropped ["origin", "target"]
        "Datagrams that were offered to the target and not handed to the kernel, for any reason: the sum of what weir_relay_target_dropped_datagrams_total says.";
    TargetReturned Counter "weir_relay_target_returned_datagrams_total" = Egress Dropped ["origin", "target", "reason"]
        "Datagrams that were handed to the kernel and reported as undeliverable. A lower bound: networks are silent about most losses.";
    TargetReceiverDropped Counter "weir_relay_target_receiver_dropped_datagrams_total" = Receiver Event::SocketDrops ["origin", "target"];
    TargetSendCalls Counter "weir_relay_target_send_calls_total" = Target Event::SendCalls ["origin", "target"];
    TargetSendErrors Counter "weir_relay_target_send_errors_total" ["origin", "target", "errno"]
        Event::SendErrors(SendError::Other).meaning();
    TargetRetries Counter "weir_relay_target_retries_total" = Target Event::Retries ["origin", "target"];
    TargetWithoutSource Counter "weir_relay_target_without_source_datagrams_total" = Target Event::WithoutSource ["origin", "target"];
    TargetWithoutPort Counter "weir_relay_target_without_port_datagrams_total" = Target Event::WithoutPort ["origin", "target"];
    TargetSenderTurnover Counter "weir_relay_target_sender_turnover_total" = Target Event::SenderTurnover ["origin", "target"];
    TargetSocketRenewals Counter "weir_relay_target_socket_renewals_total" = Target Event::SocketRenewals ["origin", "target"];
    TargetTailsMended Counter "weir_relay_target_file_tails_mended_total" = Target Event::FileTailsMended ["origin", "target"];
    TargetFilesSetAside Counter "weir_relay_target_files_set_aside_total" = Target Event::FilesSetAside ["origin", "target"];
    TargetUncertain Counter "weir_relay_target_uncertain_datagrams_total" = Target Uncertain ["origin", "target"]
        "Datagrams that were sent to another Weir, of which nobody will ever say whether they arrived: it lost its memory.";
    LinkPackets Counter "weir_relay_target_link_packets_total" = Target Event::Packets ["origin", "target"];
    LinkRepairs Counter "weir_relay_target_link_repairs_total" = Target Event::Repairs ["origin", "target"];
    LinkSpurious Counter "weir_relay_target_link_repairs_spurious_total" = Target Event::RepairsSpurious ["origin", "target"];
    LinkSessions Counter "weir_relay_target_link_sessions_total" = Target Event::Sessions ["origin", "target"];
    LinkPeerRestarts Counter "weir_relay_target_link_peer_restarts_total" = Target Event::PeerRestarts ["origin", "target"];
    LinkDuplicates Counter "weir_relay_target_link_possible_duplicates_total" = Target Event::PossibleDuplicates ["origin", "target"];
    LinkLostInCrash Counter "weir_relay_target_link_lost_in_crash_total" = Target Event::LostInCrash ["origin", "target"];
    LinkRoundTrip Gauge "weir_relay_target_link_round_trip_seconds" = Target Gauge::RoundTripUs ["origin", "target"];
    LinkLoss Gauge "weir_relay_target_link_loss_ppm" = Target Gauge::PathLossPpm ["origin", "target"];
    LinkRate Gauge "weir_relay_target_link_rate_bytes" = Target Gauge::RateBytes ["origin", "target"];
    TargetIcmpErrors Counter "weir_relay_target_icmp_errors_total" ["origin", "target", "code"]
        Event::IcmpErrors(IcmpError::Other).meaning();
    TargetGso Gauge "weir_relay_target_gso" = Target Gauge::Gso ["origin", "target"];
    TargetQueue Gauge "weir_relay_target_queue_datagrams" = Target InFlight ["origin", "target"]
        "Datagrams that wait for the target.";
    TargetQueueCapacity Gauge "weir_relay_target_queue_capacity_datagrams" = Target Capacity ["origin", "target"]
        "Most datagrams that can wait for the target.";
    TargetRingHeld Gauge "weir_relay_target_ring_held_ratio" = Target Gauge::RingHeldPpm ["origin", "target"];
    TargetOldestAge Gauge "weir_relay_target_queue_oldest_age_seconds" = Target Gauge::OldestAgeMs ["origin", "target"];
    TargetDelay Histogram "weir_relay_target_delay_seconds" = Target Delay ["origin", "target"]
        "Time from receiving a datagram to sending it.";

    Polls Counter "weir_sockets_polls_total" = Poll Event::Polls [];
    PollOverruns Counter "weir_sockets_poll_overruns_total" = Poll Event::Overruns [];
    PollDuration Histogram "weir_sockets_poll_duration_seconds" = Poll Delay []
        "Time that a poll took, from the search for namespaces to the last record.";
    PollPhase Counter "weir_sockets_phase_seconds_total" ["phase"]
        Event::Spent(PollPhase::Walk).meaning();
    PollVisited Counter "weir_sockets_visited_total" = Poll Received []
        "Sockets that the kernel listed. Equals records plus dropped records, by reason.";
    PollRecords Counter "weir_sockets_records_total" = Poll Delivered []
        "Records made of polled sockets.";
    PollDropped Counter "weir_sockets_dropped_records_total" = Poll Dropped ["reason"]
        "Sockets that were listed and of which no record was made: mostly intended, as unchanged is.";
    SocketsOpen Gauge "weir_sockets_open" ["state", "family"]
        "Sockets at the last poll, of those that the filter lets through.";
    SocketsNamespaces Gauge "weir_sockets_namespaces" = Poll Gauge::Namespaces [];
    SocketsNamespacesNew Counter "weir_sockets_new_namespaces_total" = Poll Event::NamespacesNew [];
    SocketsNamespacesLeftOut Gauge "weir_sockets_left_out_namespaces" = Poll Gauge::NamespacesLeftOut [];
    SocketsNamespaceErrors Counter "weir_sockets_namespace_errors_total" ["cause"]
        Event::NamespaceErrors(NamespaceError::Gone).meaning();
    SocketsQuiet Counter "weir_sockets_quiet_namespaces_total" = Poll Event::QuietNamespaces [];
    SocketsInterrupted Counter "weir_sockets_dump_interrupted_total" = Poll Event::Interrupted [];
    SocketsUnknownAttributes Counter "weir_sockets_unknown_attributes_total" = Poll Event::UnknownAttributes [];
    SocketsTable Gauge "weir_sockets_table_entries" = Poll Gauge::TableEntries [];
    SocketsTableCapacity Gauge "weir_sockets_table_capacity" = Poll Gauge::TableCapacity [];
    SocketsTableEvicted Counter "weir_sockets_table_evicted_total" = Poll Event::Evicted [];
    Closes Counter "weir_sockets_closes_total" = Close Received []
        "Close events of the kernel, lost ones included.";
    CloseRecords Counter "weir_sockets_close_records_total" = Close Delivered []
        "Closing records made of close events.";
    CloseDropped Counter "weir_sockets_dropped_close_records_total" = Close Dropped ["reason"]
        "Close events of which no closing record was made; event_buffer is what the kernel had no room for, exactly.";
    CloseEnds Counter "weir_sockets_closed_total" ["how"]
        Event::Ended(ConnectionEnd::Unknown).meaning();
    ClosesUnobserved Counter "weir_sockets_unobserved_closes_total" = Close Event::Unobserved [];
    ClosesUnheard Counter "weir_sockets_unheard_closes_total" = Close Event::Unheard [];

    FlowsReceived Counter "weir_flows_received_datagrams_total" = Analysis Received []
        "Datagrams of listeners that the analysis of sFlow took.";
    FlowsReceivedBytes Counter "weir_flows_received_bytes_total" = Analysis ReceivedBytes []
        "Bytes of those datagrams.";
    FlowsRead Counter "weir_flows_read_datagrams_total" = Analysis Delivered []
        "Datagrams whose samples are in the figures.";
    FlowsDropped Counter "weir_flows_dropped_datagrams_total" = Analysis Dropped ["reason"]
        "Datagrams whose samples were not read.";
    FlowsAgents Gauge "weir_flows_agents" = Analysis Gauge::FlowAgents [];
    FlowsMissing Gauge "weir_flows_missing_datagrams" = Analysis Gauge::MissingDatagrams [];
    FlowsNetworkMissing Gauge "weir_flows_network_missing_datagrams" = Analysis Gauge::NetworkMissing [];
    FlowsCollectorDropped Counter "weir_flows_collector_dropped_datagrams_total" = Analysis Event::CollectorDropped [];
    FlowsEventsMissed Counter "weir_flows_missed_events_total" = Analysis Event::EventsMissed [];
    FlowsUnwatched Counter "weir_flows_unwatched_samples_total" = Analysis Event::UnwatchedSamples [];
    FlowsAgentDropped Counter "weir_flows_agent_dropped_samples_total" = Analysis Event::AgentDroppedSamples [];

    SinkOffered Counter "weir_sink_offered_records_total" = Sink Received ["origin", "sink"]
        "Records that were made for the sink.";
    SinkRecovered Counter "weir_sink_recovered_records_total" = Sink Event::Recovered ["origin", "sink"];
    SinkSpoolsUnclosed Counter "weir_sink_unclosed_spools_total" = Sink Event::SpoolsUnclosed ["origin", "sink"];
    SinkSpoolCut Counter "weir_sink_spool_cut_bytes_total" = Sink Event::SpoolCutBytes ["origin", "sink"];
    SinkDelivered Counter "weir_sink_delivered_records_total" = Sink Delivered ["origin", "sink"]
        "Records that the sink's destination acknowledged; for one that never answers, such as UDP, those that the kernel took.";
    SinkDeliveredBytes Counter "weir_sink_delivered_bytes_total" = Sink DeliveredBytes ["origin", "sink"]
        "Bytes of those records as encoded.";
    SinkDropped Counter "weir_sink_dropped_records_total" = Sink Dropped ["origin", "sink", "reason"]
        "Records that were made for the sink and that its destination did not get.";
    SinkRejected Counter "weir_sink_rejected_records_total" = Sink Rejected ["origin", "sink", "class"]
        "Records that the sink's destination refused permanently.";
    SinkUncertain Counter "weir_sink_uncertain_records_total" = Sink Uncertain ["origin", "sink"]
        "Records that were sent, and no answer came before Weir stopped trying: the destination may have them or not.";
    SinkKept Counter "weir_sink_kept_records_total" = Sink Kept ["origin", "sink"]
        "Records that were in the sink's spool when the sink ended, for its next life, which counts them as recovered.";
    SinkPossibleDuplicates Counter "weir_sink_possible_duplicate_records_total" = Sink Event::PossibleDuplicates ["origin", "sink"];
    SinkPending Gauge "weir_sink_pending_records" = Sink InFlight ["origin", "sink"]
        "Records inside the sink: in its queue, its spool, and in batches that the destination has not answered.";
    SinkOldestAge Gauge "weir_sink_oldest_record_age_seconds" = Sink Gauge::OldestAgeMs ["origin", "sink"];
    SinkQueue Gauge "weir_sink_queue_records" = Sink Gauge::QueueRows ["origin", "sink"];
    SinkQueueBytes Gauge "weir_sink_queue_bytes" = Sink Gauge::QueueBytes ["origin", "sink"];
    SinkQueueLimit Gauge "weir_sink_queue_limit_bytes" = Sink Gauge::QueueLimitBytes ["origin", "sink"];
    SinkSpool Gauge "weir_sink_spool_records" = Sink Gauge::SpoolRows ["origin", "sink"];
    SinkSpoolBytes Gauge "weir_sink_spool_bytes" = Sink Gauge::SpoolBytes ["origin", "sink"];
    SinkSpoolCapacity Gauge "weir_sink_spool_capacity_bytes" = Sink Gauge::SpoolCapacityBytes ["origin", "sink"];
    SinkEncoder Gauge "weir_sink_encoder_bytes" = Sink Gauge::EncoderBytes ["origin", "sink"];
    SinkBatches Gauge "weir_sink_in_flight_batches" = Sink Gauge::BatchesInFlight ["origin", "sink"];
    SinkUp Gauge "weir_sink_up" = Sink Gauge::Up ["origin", "sink"];
    SinkCircuitOpen Gauge "weir_sink_circuit_open" = Sink Gauge::CircuitOpen ["origin", "sink"];
    SinkCircuitOpenings Counter "weir_sink_circuit_openings_total" = Sink Event::CircuitOpenings ["origin", "sink"];
    SinkLastAcknowledged Gauge "weir_sink_last_acknowledged_timestamp_seconds" = Sink Gauge::LastAcknowledgedUnixMs ["origin", "sink"];
    SinkAttempts Counter "weir_sink_attempts_total" = Sink Event::Attempts ["origin", "sink"];
    SinkRetries Counter "weir_sink_retries_total" = Sink Event::Retries ["origin", "sink"];
    SinkErrors Counter "weir_sink_errors_total" = Sink Event::Errors ["origin", "sink"];
    SinkSocketRenewals Counter "weir_sink_socket_renewals_total" = Sink Event::SocketRenewals ["origin", "sink"];
    SinkConnects Counter "weir_sink_connects_total" = Sink Event::Connects ["origin", "sink"];
    SinkPanics Counter "weir_sink_panics_total" = Sink Event::Panics ["origin", "sink"];

    HostUdpReceiveErrors Counter "weir_host_udp_receive_errors_total" ["family"]
        "All sockets of the network namespace: datagrams that arrived and were not delivered (InErrors). Contains the receiving causes below.";
    HostUdpErrors Counter "weir_host_udp_errors_total" ["family", "cause"]
        "All sockets of the network namespace, by the kernel's counter: RcvbufErrors, SndbufErrors, NoPorts, InCsumErrors, MemErrors.";
    HostSoftnetDropped Counter "weir_host_softnet_dropped_total" []
        "Packets dropped because a processor's backlog was full (net.core.netdev_max_backlog).";
    HostSoftnetSqueezed Counter "weir_host_softnet_squeezed_total" []
        "Times that packet processing stopped with work left (net.core.netdev_budget).";
    HostInterfaceReceiveDropped Counter "weir_host_interface_receive_dropped_total" ["device"]
        "Packets that the interface received and dropped (rx_dropped).";
    HostInterfaceReceiveMissed Counter "weir_host_interface_receive_missed_total" ["device"]
        "Packets that the interface had no room for (rx_missed_errors).";
    HostInterfaceReceiveErrors Counter "weir_host_interface_receive_errors_total" ["device"]
        "Bad packets that the interface received (rx_errors).";
    HostInterfaceTransmitDropped Counter "weir_host_interface_transmit_dropped_total" ["device"]
        "Packets that were dropped on their way out (tx_dropped).";
    HostInterfacesOmitted Gauge "weir_host_interfaces_omitted" []
        "Interfaces without series, because there are more than 128.";

    FlowAgents Gauge "weir_flow_agents" []
        "sFlow agents, or parts of one, that were heard lately.";
    FlowDatagrams Counter "weir_flow_datagrams_total" ["result"]
        "Datagrams of sFlow that were analyzed: read, duplicate, malformed, or agent_limit (of an agent beyond the limit).";
    FlowSamples Counter "weir_flow_samples_total" ["kind"]
        "Samples in them: flow, counter, dropped_packet; duplicate (counted before, left out); source_limit (scaled by the configured rate, as there are too many sources); implausible (claimed more than its interface can carry, and stands for what it can).";
    FlowUnknown Counter "weir_flow_unknown_structures_total" []
        "Structures of sFlow that are not known, and were skipped.";
    FlowFaults Counter "weir_flow_faults_total" ["class"]
        "Broken datagrams, samples and records.";
    FlowDiscrepancies Counter "weir_flow_discrepancies_total" ["kind"]
        "What agents say that contradicts what they say elsewhere, such as frames shorter than their packets; docs/flows.md says which of the two is used.";
    FlowDefinitionSamples Counter "weir_flow_definition_samples_total" ["flow", "result"]
        "Samples that a definition of flows saw: counted, filtered, or without_key (they lack a part of its key).";
    FlowDefinitionLacking Counter "weir_flow_definition_lacking_samples_total" ["flow", "key"]
        "Samples without a part of a definition's key, by the first part that they lack.";
    FlowDefinitionFlows Gauge "weir_flow_definition_flows" ["flow"]
        "Flows that a definition keeps.";
    FlowDefinitionEvicted Counter "weir_flow_definition_evicted_total" ["flow"]
        "Flows that made room for others: the definition has more than it may keep.";
    FlowSeriesOmitted Gauge "weir_flow_series_omitted" []
        "Flows without series, because the definitions with metrics have more than 1,000 together.";
    FlowBytes Gauge "weir_flow_bytes_per_second" ["flow"]
        "Bytes per second of the heaviest flows of a definition with metrics, corrected for loss. Its keys are labels as well.";
    FlowBytesLow Gauge "weir_flow_bytes_per_second_low" ["flow"]
        "The lower end of the 95 % interval.";
    FlowBytesHigh Gauge "weir_flow_bytes_per_second_high" ["flow"]
        "The upper end of the 95 % interval.";
    FlowBytesSamples Gauge "weir_flow_bytes_per_second_samples" ["flow"]
        "How many samples of equal size would be as sure as the figure is.";
    FlowFrames Gauge "weir_flow_frames_per_second" ["flow"]
        "Frames per second of the heaviest flows of a definition with metrics, corrected for loss. Its keys are labels as well.";
    FlowFramesLow Gauge "weir_flow_frames_per_second_low" ["flow"]
        "The lower end of the 95 % interval.";
    FlowFramesHigh Gauge "weir_flow_frames_per_second_high" ["flow"]
        "The upper end of the 95 % interval.";
    FlowFramesSamples Gauge "weir_flow_frames_per_second_samples" ["flow"]
        "How many samples of equal size would be as sure as the figure is.";
    FlowSampled Gauge "weir_flow_samples_per_second" ["flow"]
        "Samples per second of the heaviest flows of a definition with metrics, corrected for loss. Its keys are labels as well.";
    FlowSampledLow Gauge "weir_flow_samples_per_second_low" ["flow"]
        "The lower end of the 95 % interval.";
    FlowSampledHigh Gauge "weir_flow_samples_per_second_high" ["flow"]
        "The upper end of the 95 % interval.";
    FlowSampledSamples Gauge "weir_flow_samples_per_second_samples" ["flow"]
        "How many samples of equal size would be as sure as the figure is.";

    StatsdPushes Counter "weir_statsd_pushes_total" []
        "Datagrams of figures that were handed to the kernel for the StatsD server.";
    StatsdPushFailures Counter "weir_statsd_push_failures_total" []
        "Datagrams of figures that could not be sent. Their counts are sent with the next push.";
    HttpRequests Counter "weir_http_requests_total" ["handler"]
        "Requests to the admin server.";
    HttpRequestFailures Counter "weir_http_request_failures_total" ["handler"]
        "Requests that were answered with a 4xx or 5xx status.";
    HttpConnectionsDropped Counter "weir_http_connections_dropped_total" ["cause"]
        "Connections to the admin server that it closed: crowded (more than 64 at a time) or timeout (too slow).";

    ProcessCpu Counter "process_cpu_seconds_total" []
        "User and system time of the process.";
    ProcessResident Gauge "process_resident_memory_bytes" []
        "Resident memory of the process.";
    ProcessVirtual Gauge "process_virtual_memory_bytes" []
        "Virtual memory of the process.";
    ProcessOpenFds Gauge "process_open_fds" []
        "Open file descriptors.";
    ProcessMaxFds Gauge "process_max_fds" []
        "Most file descriptors that the process may open.";
    ProcessThreads Gauge "process_threads" []
        "Threads of the process.";
    ProcessStartTime Gauge "process_start_time_seconds" []
        "When the process started, in seconds since 1970.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_in_the_order_of_their_ids_and_follow_the_naming_rules() {
        let mut names = BTreeSet::new();
        for (at, family) in FAMILIES.iter().enumerate() {
            let name = family.name;
            assert_eq!(family.id as usize, at);
            assert!(names.insert(name), "{name} is there twice");
            assert!(name.starts_with("weir_") || name.starts_with("process_"), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
            assert!(!family.help.contains(['\\', '"', '\n']), "{name}");
            assert!(family.help.ends_with('.'), "{name}");
            assert!(!family.labels.contains(&"source"), "{name}");
        }
    }
}
