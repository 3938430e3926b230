//! What hops count and measure outside the law: attempts, errors, sizes, states. Two closed tables provide the names, units and
//! meanings for JSON, for metrics and for their documentation.

use serde::{Serialize, Serializer};
use std::fmt;

/// The unit of an [`Event`] or a [`Gauge`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A count of the things named by the meaning.
    Count,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// 1 for yes, 0 for no.
    Flag,
    /// A number that encodes something.
    Code,
    /// Parts of a whole, in millionths.
    Millionths,
}

impl Unit {
    /// The word or symbol of the unit.
    pub const fn label(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Bytes => "bytes",
            Unit::Milliseconds => "ms",
            Unit::Microseconds => "µs",
            Unit::Flag => "0 or 1",
            Unit::Code => "code",
            Unit::Millionths => "ppm",
        }
    }
}

/// A value that JSON refers to by name.
pub(crate) trait Named: Sized {
    fn named(name: &str) -> Option<Self>;
}

/// Declares a closed set of labels: rows are `Name = "label";`.
macro_rules! labels {
    ($($(#[$doc:meta])* $set:ident { $($name:ident = $label:literal;)+ })+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $set { $(#[doc = concat!("`", $label, "`")] $name,)+ }

        impl $set {
            /// Every label, in the order of the table.
            pub const ALL: &'static [$set] = &[$($set::$name,)+];

            /// The name in JSON and the value of a metric's label.
            pub const fn label(self) -> &'static str {
                match self { $($set::$name => $label,)+ }
            }

            /// The value with this label.
            pub fn named(label: &str) -> Option<$set> {
                match label { $($label => Some($set::$name),)+ _ => None }
            }
        }
    )+ };
}

/// Declares a table: rows are `Name = "name", Unit, "meaning";`. Below `each`, a row is one figure per label of a set, with the
/// label between two texts: `Name(Set) = "before" "after", Unit, "meaning";`.
macro_rules! figures {
    (
        $(#[$doc:meta])*
        $table:ident { $($name:ident = $text:literal, $unit:ident, $meaning:literal;)+ }
        each { $($row:ident($set:ident) = $before:literal $after:literal, $row_unit:ident, $row_meaning:literal;)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $table {
            $(#[doc = $meaning] $name,)+
            $(#[doc = $row_meaning] $row($set),)+
        }

        impl $table {
            /// Every row once; rows with labels are represented by their first label.
            pub const ROWS: &'static [$table] =
                &[$($table::$name,)+ $($table::$row($set::ALL[0]),)+];

            /// The unit of its number.
            pub const fn unit(self) -> Unit {
                match self {
                    $($table::$name => Unit::$unit,)+
                    $($table::$row(_) => Unit::$row_unit,)+
                }
            }

            /// Its meaning, as a sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $($table::$name => $meaning,)+
                    $($table::$row(_) => $row_meaning,)+
                }
            }

            /// Its row's name, with `*` in place of the label.
            pub const fn row_name(self) -> &'static str {
                match self {
                    $($table::$name => $text,)+
                    $($table::$row(_) => concat!($before, "*", $after),)+
                }
            }
        }

        impl Named for $table {
            fn named(name: &str) -> Option<$table> {
                match name {
                    $($text => return Some($table::$name),)+
                    _ => {}
                }
                $(
                    let label = name.strip_prefix($before).and_then(|rest| rest.strip_suffix($after));
                    if let Some(label) = label.and_then($set::named) {
                        return Some($table::$row(label));
                    }
                )+
                None
            }
        }

        impl fmt::Display for $table {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($table::$name => f.write_str($text),)+
                    $($table::$row(label) => write!(f, concat!($before, "{}", $after), label.label()),)+
                }
            }
        }

        impl Serialize for $table {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

figures! {
    /// A count outside the law, which never goes back while the process lives.
    Event {
        DroppedBeforeStart = "dropped_before_start", Count,
            "Datagrams that the kernel had dropped at the listener's socket before this count of them began.";
        Batches = "batches", Count,
            "Calls that read datagrams; datagrams per batch is the quotient.";
        EmptyDatagrams = "empty_datagrams", Count,
            "Datagrams without payload. They are forwarded like others.";
        ReceiveErrors = "receive_errors", Count,
            "Calls that failed to read. No datagram is lost by one.";
        Overtaken = "overtaken", Count,
            "Datagrams that left behind one that had arrived after them, because their socket's thread was kept from running for longer than order_wait.";
        SendCalls = "send_calls", Count,
            "Calls that sent; datagrams per call is the quotient.";
        Retries = "retries", Count,
            "Attempts to send a datagram, or what a sink had kept, again.";
        WithoutSource = "without_source", Count,
            "Datagrams that were to keep their source address and were sent from this host's: they have none, or one of another kind than the target's.";
        WithoutPort = "without_port", Count,
            "Datagrams that were to keep their source port and left from another one, with their source address: this host has the port in use or may not use it (below 1024), or no descriptor was left.";
        SenderTurnover = "sender_turnover", Count,
            "Sockets of senders that were closed to make room for other senders' (`source_sockets`). No datagram is lost by one.";
        SocketRenewals = "socket_renewals", Count,
            "Times that an open socket was replaced by a new one, or joined its group anew: an address, a route, an interface or a name of this host's has changed, the receiver's socket file has, or rebind_interval has passed.";
        FileTailsMended = "file_tails_mended", Count,
            "Files found to end in a part of a record, which was cut off, or in a line without a line feed, which got one.";
        FilesSetAside = "files_set_aside", Count,
            "Files that could not be continued: they got another name, and a new one was begun.";
        SocketDrops = "socket_drops", Count,
            "Datagrams that the kernel dropped at the socket of a receiver on this host (sock_diag), from all its senders. Absent where no such socket was seen.";
        Polls = "polls", Count,
            "Polls that were finished: one visit of every network namespace each.";
        Overruns = "overruns", Count,
            "Polls that took longer than the interval, so that the next one began late.";
        Interrupted = "interrupted", Count,
            "Walks of which the kernel said that its table changed meanwhile (NLM_F_DUMP_INTR).";
        UnknownAttributes = "unknown_attributes", Count,
            "Attributes of the kernel that this version does not know. They are kept raw.";
        Evicted = "evicted", Count,
            "Sockets that the full table forgot. Their closing records have nothing of earlier polls.";
        QuietNamespaces = "quiet_namespaces", Count,
            "Visits of namespaces that were read without a walk, because TCP had done nothing there since the last.";
        NamespacesNew = "namespaces_new", Count,
            "Network namespaces that were found for the first time, by polls and between them.";
        Queries = "queries", Count,
            "Questions about sockets that the collector answered (`GET /sockets`).";
        Unobserved = "unobserved", Count,
            "Sockets that were gone at a poll and of which no close event came.";
        Unheard = "unheard", Count,
            "Connections that closed in new network namespaces before these could be heard, by the namespaces' own counters.";
        Unpolled = "unpolled", Count,
            "Closed connections that no poll had seen.";
        NeverConnected = "never_connected", Count,
            "Close events of listeners, and of sockets that were never connected.";
        Undecided = "undecided", Count,
            "Close events that do not say what the filter asks for, whatever became of them.";
        RejectedOverflow = "rejected_overflow", Count,
            "Connections that polls rejected and that could not be remembered as such, because there were too many.";
        Errors = "errors", Count,
            "Attempts to deliver that failed. A retry may have succeeded: losses are counted as dropped.";
        Rotations = "rotations", Count,
            "Times that a sink's file was put aside and a next one begun.";
        Reopens = "reopens", Count,
            "Times that a sink's file was opened again because its path led elsewhere: it had been moved or removed.";
        FilesRemoved = "files_removed", Count,
            "Files that the sink had written and removed again, because they were older or together larger than it keeps.";
        LeftoversRemoved = "leftovers_removed", Count,
            "Files that an earlier run of the sink had begun and not finished, which were removed. Their records were not acknowledged.";
        Attempts = "attempts", Count,
            "Times that a batch, or the rest of one, was handed to the sink's destination, retries included.";
        PossibleDuplicates = "possible_duplicates", Count,
            "Records acknowledged after an earlier attempt without an answer: the destination may have them twice.";
        Recovered = "recovered", Count,
            "Records that the sink's spool held at the start. They count as received.";
        SpoolsUnclosed = "spools_unclosed", Count,
            "Times that the sink's spool was found as a crash leaves it: what was written to it after its last sync may be missing uncounted.";
        SpoolCutBytes = "spool_cut_bytes", Bytes,
            "Bytes at the end of the sink's spool that were no whole entry after a crash, and were cut off. They were never synced.";
        Panics = "panics", Count,
            "Panics of the sink's client, which is started again after a pause.";
        Connects = "connects", Count,
            "Connections made to the sink's destination.";
        CircuitOpenings = "circuit_openings", Count,
            "Times that the sink stopped sending because its destination kept failing.";
        AgentDroppedSamples = "agent_dropped_samples", Count,
            "Samples that agents of sFlow lost before they sent them, as they say themselves.";
        CollectorDropped = "collector_dropped", Count,
            "Datagrams that this program received for the analysis, or the kernel for it, and that the analysis did not get: the drops at its listeners' sockets, at their rings, and at their targets called flows.";
        EventsMissed = "events_missed", Count,
            "Events of thresholds that no sink was given: more came at once than Weir buffers (events_max). Mitigations are told what goes on all the same.";
        UnwatchedSamples = "unwatched_samples", Count,
            "Samples of flows that came to a threshold's level while 16,384 others of their definition were: the lighter ones are not looked at.";
        Packets = "packets", Count,
            "Packets with datagrams that were sent to the other Weir, repeats included; of a listener, authentic packets that arrived.";
        Repairs = "repairs", Count,
            "Packets that carried again what an earlier one had carried, because it was not reported as arrived.";
        RepairsSpurious = "repairs_spurious", Count,
            "Packets that were taken for lost and arrived all the same, so that they were repeated for nothing.";
        Reports = "reports", Count,
            "Reports of what has arrived, heard by the sender or said by the receiver.";
        Sessions = "sessions", Count,
            "Sessions between two Weirs that began.";
        PeerRestarts = "peer_restarts", Count,
            "Sessions with another Weir that had lost its memory of what it received.";
        Contradictions = "contradictions", Count,
            "Reports of another Weir that cannot be true. Anything but 0 is a bug of Weir.";
        LostInCrash = "lost_in_crash", Count,
            "Datagrams that former processes of this link had sent or were about to send when they ended without a stop, and that the other Weir did not get. Known where the target has a state.";
        ForgedPackets = "forged_packets", Count,
            "Packets that were not made with the key.";
        ReplayedPackets = "replayed_packets", Count,
            "Packets that had come before, first packets of sessions too.";
        StrangePackets = "strange_packets", Count,
            "Packets of no session that is known, and datagrams that are no packets of Weir's. None is answered.";
        RepeatedDatagrams = "repeated_datagrams", Count,
            "Packets whose datagram was there already: they were sent again for nothing, or their report was lost.";
        LateDatagrams = "late_datagrams", Count,
            "Packets whose datagram the sender had given up and counted.";
        PacketsWithoutRoom = "packets_without_room", Count,
            "Packets for which the window or the memory for datagrams had no room. They are not acknowledged, so they are sent again until they expire.";
        HellosRefused = "hellos_refused", Count,
            "First packets of sessions that came faster than they are looked at or answered.";
        HelloCookies = "hello_cookies", Count,
            "First packets of sessions that were answered with a cookie, because more than 1,000 came in a second, or because they may be recordings: the sender's clock is off, or the receiver has just begun. A sender that receives at its address returns it and gets its session.";
        ReturnedDatagrams = "returned_datagrams", Count,
            "Datagrams that the network gave back after they were counted as delivered: the network lost at least these.";
    } each {
        SendErrors(SendError) = "send_errors_" "", Count,
            "Attempts to send that failed, by the error's name or other. A retry may have succeeded: losses are counted as dropped.";
        IcmpErrors(IcmpError) = "icmp_" "", Count,
            "ICMP errors that came back, by type/code: 3/x is IPv4, 1/x is IPv6. Advisory.";
        NamespaceErrors(NamespaceError) = "namespace_errors_" "", Count,
            "Namespaces that could not be visited, or not be heard (no_id), by cause. The others were.";
        Spent(PollPhase) = "" "_us", Microseconds,
            "Time spent in polls: discover (finding namespaces), open (entering them), walk (waiting for the kernel), records (decoding and encoding).";
        Ended(ConnectionEnd) = "ended_" "", Count,
            "Connections by the way they ended: our_close, peer_close, our_reset, peer_reset, refused, timed_out, unknown.";
    }
}

figures! {
    /// A value of a hop that goes up and down.
    Gauge {
        ReceiveBufferBytes = "receive_buffer_bytes", Bytes,
            "Receive buffer of the listener's socket as the kernel granted it.";
        ReceiveQueueBytes = "receive_queue_bytes", Bytes,
            "How much of the receive buffer waits to be read, as the kernel charges it.";
        OldestAgeMs = "oldest_age_ms", Milliseconds,
            "Age of the oldest datagram that waits for the target, or of the oldest record inside the sink.";
        RingHeldPpm = "ring_held_ppm", Millionths,
            "Share of the ring that is held for the target: of its bytes or of its places for datagrams, whichever is more. Above seven eighths the target loses its oldest datagrams.";
        Gso = "gso", Flag,
            "1 while runs of equal length leave as one message (UDP_SEGMENT).";
        Up = "up", Flag,
            "1 while the target or sink takes what it is given. A target has 0 for five seconds after it refused any, while its next hop does not answer, while every call fails, and while it has had something for a second and let nothing go; a sink has 0 after its destination failed.";
        Namespaces = "namespaces", Count,
            "Network namespaces that the last poll found.";
        NamespacesLeftOut = "namespaces_left_out", Count,
            "Network namespaces that the last poll found and that are not collected, because there are more than namespaces_max.";
        TableEntries = "table_entries", Count,
            "Sockets that the table of known sockets holds.";
        TableCapacity = "table_capacity", Count,
            "Most sockets that the table of known sockets holds.";
        RejectedEntries = "rejected_entries", Count,
            "Connections that polls rejected and that are remembered for their close.";
        EventBufferBytes = "event_buffer_bytes", Bytes,
            "Buffer for the kernel's close events, as the kernel granted it.";
        QueueBytes = "queue_bytes", Bytes,
            "Bytes that wait for the sink.";
        QueueLimitBytes = "queue_limit_bytes", Bytes,
            "Most bytes that can wait for the sink.";
        QueueRows = "queue_rows", Count,
            "Records that wait in the sink's queue.";
        SpoolRows = "spool_rows", Count,
            "Records that wait in the sink's spool.";
        SpoolBytes = "spool_bytes", Bytes,
            "Bytes that the sink's spool has on disk.";
        SpoolCapacityBytes = "spool_capacity_bytes", Bytes,
            "Most bytes that the sink's spool may have on disk.";
        EncoderBytes = "encoder_bytes", Bytes,
            "Memory that the sink's encoder uses for the batch that it is filling.";
        BatchesInFlight = "batches_in_flight", Count,
            "Batches that the destination was given and has not answered yet.";
        CircuitOpen = "circuit_open", Flag,
            "1 while the sink only probes its destination now and then, because it kept failing.";
        LastAcknowledgedUnixMs = "last_acknowledged_unix_ms", Milliseconds,
            "When the destination last acknowledged anything, counted from 1970.";
        FolderBytes = "folder_bytes", Bytes,
            "Bytes of all files that the sink has in its folder.";
        LastErrno = "last_errno", Code,
            "Number of the last error of the sink's destination.";
        MissingDatagrams = "missing_datagrams", Count,
            "Datagrams that agents of sFlow numbered and that did not reach the analysis, by the gaps in their numbers. One that comes late is taken off again.";
        NetworkMissing = "network_missing_datagrams", Count,
            "Missing datagrams of agents but for those that were dropped at this collector: at least so many were lost on the network. Exact where nothing but sFlow is sent to the listeners.";
        FlowAgents = "flow_agents", Count,
            "Agents of sFlow that are known.";
        RoundTripUs = "round_trip_us", Microseconds,
            "Time to the other Weir and back, smoothed.";
        PathLossPpm = "path_loss_ppm", Count,
            "Packets in a million that were lost on the way, of the last thousand that were reported on.";
        RateBytes = "rate_bytes", Bytes,
            "Bytes that may be sent to the other Weir in a second: the bandwidth that is set, or less while the way is full.";
        SessionsOpen = "sessions_open", Count,
            "Sessions of other Weirs that there are.";
        StateKept = "state_kept", Flag,
            "1 while what is to name losses after a crash is kept in the link's state.";
        DatagramLimitBytes = "datagram_limit_bytes", Bytes,
            "Largest datagram that the path to the sink's destination takes, in bytes of UDP payload.";
    } each {
        OpenIpv4(TcpState) = "open_" "_ipv4", Count,
            "IPv4 sockets at the last poll by state, of those that the filter lets through.";
        OpenIpv6(TcpState) = "open_" "_ipv6", Count,
            "IPv6 sockets at the last poll by state, of those that the filter lets through.";
    }
}

labels! {
    /// An error of a send call that is counted by its name; the rest share one count.
    SendError {
        Acces = "EACCES";
        ConnRefused = "ECONNREFUSED";
        HostUnreach = "EHOSTUNREACH";
        Inval = "EINVAL";
        Io = "EIO";
        MsgSize = "EMSGSIZE";
        NetDown = "ENETDOWN";
        NetUnreach = "ENETUNREACH";
        NoBufs = "ENOBUFS";
        NoEnt = "ENOENT";
        NoSpc = "ENOSPC";
        Perm = "EPERM";
        Other = "other";
        // Not an error of a call: without an address none is made.
        Unresolved = "unresolved";
    }
    /// An ICMP error that is counted by type and code (RFC 792, RFC 4443); the rest share one count.
    IcmpError {
        V4Net = "3_0";
        V4Host = "3_1";
        V4Protocol = "3_2";
        V4Port = "3_3";
        V4TooBig = "3_4";
        V4Prohibited = "3_13";
        V6NoRoute = "1_0";
        V6Prohibited = "1_1";
        V6Address = "1_3";
        V6Port = "1_4";
        V6TooBig = "2_0";
        Other = "other";
    }
    /// Why a network namespace was not visited to its end, or is not heard.
    NamespaceError {
        Permission = "permission";
        Gone = "gone";
        Open = "open";
        NoId = "no_id";
        Syscall = "syscall";
        Refused = "refused";
        NoTcpDiag = "no_tcp_diag";
        Truncated = "truncated";
        Malformed = "malformed";
        Incomplete = "incomplete";
    }
    /// A part of a poll.
    PollPhase {
        Discover = "discover";
        Open = "open";
        Walk = "walk";
        Records = "records";
    }
    /// How a connection ended, in the order of the numbers in its record.
    ConnectionEnd {
        Unknown = "unknown";
        OurClose = "our_close";
        PeerClose = "peer_close";
        OurReset = "our_reset";
        PeerReset = "peer_reset";
        Refused = "refused";
        TimedOut = "timed_out";
    }
    /// A state of a TCP socket that the kernel's list can have.
    TcpState {
        Established = "established";
        SynSent = "syn_sent";
        SynReceived = "syn_recv";
        FinWait1 = "fin_wait_1";
        FinWait2 = "fin_wait_2";
        TimeWait = "time_wait";
        Closed = "closed";
        CloseWait = "close_wait";
        LastAck = "last_ack";
        Listen = "listen";
        Closing = "closing";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_figure_is_found_by_its_name() {
        let mut names = BTreeSet::new();
        let plain = Event::ROWS.iter().filter(|event| !event.row_name().contains('*')).copied();
        let by_label = SendError::ALL.iter().map(|label| Event::SendErrors(*label));
        let by_label = by_label.chain(PollPhase::ALL.iter().map(|label| Event::Spent(*label)));
        for event in plain.chain(by_label) {
            assert!(names.insert(event.to_string()), "{event} is there twice");
            assert_eq!(Event::named(&event.to_string()), Some(event));
        }
        for state in TcpState::ALL {
            for gauge in [Gauge::OpenIpv4(*state), Gauge::OpenIpv6(*state)] {
                assert_eq!(Gauge::named(&gauge.to_string()), Some(gauge));
            }
        }
        assert_eq!(Event::Spent(PollPhase::Walk).to_string(), "walk_us");
        assert_eq!(Event::named("send_errors_EWHATEVER"), None);
    }

    #[test]
    fn a_meaning_is_a_sentence_that_a_metric_can_carry() {
        let events = Event::ROWS.iter().map(|event| event.meaning());
        for meaning in events.chain(Gauge::ROWS.iter().map(|gauge| gauge.meaning())) {
            assert!(meaning.ends_with('.') && !meaning.contains(['\\', '"', '\n']), "{meaning}");
        }
    }
}
