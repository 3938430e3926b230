use crate::HopKind;
use serde::{Deserialize, Serialize};

macro_rules! is_intended {
    (lost) => {
        false
    };
    (intended) => {
        true
    };
}

/// Rows are `Name = "label", lost at [hops], "cause", "advice";`, with `intended` instead of `lost` if a setting asks for the
/// drop.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal, $fate:ident at [$($place:ident),+], $cause:literal, $advice:literal;)+) => {
        /// Why a datagram or record did not get through. One closed list for the whole program.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $name,)+ }

        impl Reason {
            /// Every reason, in the order of the path of a datagram.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)+];
            /// Number of reasons.
            pub const COUNT: usize = Reason::ALL.len();

            /// The label value in metrics and JSON.
            pub fn label(self) -> &'static str {
                match self { $(Reason::$name => $label,)+ }
            }

            /// Whether a setting asks for it, so that it is not a loss.
            pub fn is_intended(self) -> bool {
                match self { $(Reason::$name => is_intended!($fate),)+ }
            }

            /// The kinds of hops that can drop for it, in the order of the path.
            pub fn places(self) -> &'static [HopKind] {
                match self { $(Reason::$name => &[$(HopKind::$place),+],)+ }
            }

            /// What happened, as the end of the sentence "lost because …".
            pub fn cause(self) -> &'static str {
                match self { $(Reason::$name => $cause,)+ }
            }

            /// The setting or command that would help.
            pub fn advice(self) -> &'static str {
                match self { $(Reason::$name => $advice,)+ }
            }
        }
    };
}

impl Reason {
    /// Every reason for which a hop of this kind can drop, in the order of the table.
    pub fn at(hop: HopKind) -> impl Iterator<Item = Reason> {
        Reason::ALL.iter().copied().filter(move |reason| reason.places().contains(&hop))
    }
}

reasons! {
    /// Observed with `SO_MEMINFO`; exact for each socket. The kernel counts wrong checksums and datagrams refused
    /// while the relay stops in the same place.
    SocketBuffer = "socket_buffer", lost at [Socket, Member],
        "the listener's receive buffer in the kernel was full",
        "raise receive_buffer (and net.core.rmem_max: run `weir doctor`), or use fewer targets for this listener";
    /// Observed with `MSG_TRUNC`; exact.
    Truncated = "truncated", lost at [Receive, Member],
        "the datagram was larger than the receive buffer slot",
        "nothing over UDP is larger than 65,527 bytes: find the unix socket client that sends more";
    /// Counted by the admission filter; exact.
    SourceDenied = "source_denied", intended at [Receive, Member],
        "its source is not allowed by allow_sources or is denied by deny_sources",
        "change allow_sources or deny_sources of the listener if that source is yours";
    /// A datagram of a sender that `trust_header_from` names, without a whole PROXY header of version 2; exact.
    BadHeader = "bad_header", lost at [Receive, Member],
        "a sender of trust_header_from put no valid PROXY header (version 2) in front of it",
        "set header = \"proxy-v2\" where it comes from, or take the sender out of trust_header_from of the listener";
    /// Counted by the receiving thread; exact.
    RingGuard = "ring_guard", lost at [Receive, Member],
        "a sending thread still held the oldest part of the ring, so the newest datagrams had no room",
        "raise ring_size, or give the process more CPU time";
    /// Destroy events that the kernel had no room for. Observed with `SO_MEMINFO` at the netlink socket; exact.
    EventBuffer = "event_buffer", lost at [Close],
        "the buffer for the kernel's close events was full",
        "raise event_buffer of [sockets], and give the daemon CAP_NET_ADMIN, without which net.core.rmem_max limits it";
    /// A message of the kernel that is not what its format says; exact.
    Malformed = "malformed", lost at [Poll, Close],
        "the message could not be decoded",
        "report it, with `weir sockets --write FILE`: no kernel should send such a message";
    /// The kernel's table changed while it was read, so that a socket was listed twice; exact.
    Duplicate = "duplicate", intended at [Poll, Close],
        "the kernel listed the same socket twice in one poll",
        "intended: the socket's first row was taken";
    /// A datagram for the analysis that has no readable header of sFlow version 5; exact.
    NotSflow = "not_sflow", lost at [Analysis],
        "the datagram is not sFlow version 5",
        "find who sends to the listeners of [flows] (`weir flows --dump` shows what arrives), and set agents to sFlow version 5";
    /// By the number that its agent gave it, among the last 128; exact.
    DuplicateDatagram = "duplicate_datagram", intended at [Analysis],
        "the network or a relay delivered a datagram of an agent twice",
        "intended: its samples are counted once";
    /// Datagrams of agents that are not among the first `agents_max`; exact.
    AgentLimit = "agent_limit", lost at [Analysis],
        "there are more agents than agents_max of [flows]",
        "raise agents_max of [flows], or deny the sources that send for agents which are none";
    /// Counted by the target's source filter, by the collector's filter, or by that of a follower (`GET /records`); exact.
    Filtered = "filtered", intended at [Target, Poll, Close, Sink],
        "it does not pass the filter: only_sources of a target, filter and states of [sockets], filter of GET /records",
        "intended: change only_sources of the target, filter or states of [sockets], or filter of the request, if it should pass";
    /// Closes of connections that no poll has seen, of which the kernel's event does not say what the filter asks for; exact.
    Undecided = "undecided", intended at [Close],
        "no poll has seen the connection, and its close event does not say what the filter asks for",
        "intended: set closes_undecided = \"keep\" in [sockets] for their records, or lower interval so that polls see more";
    /// Listeners, and sockets that were never connected, when they are closed; exact.
    NeverConnected = "never_connected", intended at [Close],
        "the socket that closed was no connection: a listener, or one that was never connected",
        "intended: only connections have closing records";
    /// Closes in namespaces that `namespaces` of the collector does not name, or that it names and no poll has found; exact.
    Elsewhere = "elsewhere", intended at [Close],
        "it closed in a network namespace that is not collected, or that no poll had found yet",
        "intended: name the namespace in namespaces of [sockets], if it should be collected";
    /// Counted by the sampler; exact.
    Sampled = "sampled", intended at [Target, Poll, Close],
        "only one of every N is taken: sample = N of a target, or of [sockets]",
        "intended: change sample for more";
    /// Nothing about the socket had changed since its last record but the time; exact.
    Unchanged = "unchanged", intended at [Poll],
        "the socket had not changed since its last record",
        "intended: lower keyframe_every of [sockets], or set skip_unchanged = false";
    /// Counted by the token bucket; exact.
    RateLimited = "rate_limited", intended at [Target],
        "the target's rate_limit was reached",
        "intended: raise rate_limit of the target for more";
    /// Counted by the receiving thread when it takes the oldest datagrams from a target that is too far behind, and by a
    /// sink that drops its oldest payloads; exact.
    QueueFull = "queue_full", lost at [Receive, Member, Target, Sink],
        "the target or sink, or the merging of a listener's sockets, was slower than the stream for longer than its queue lasts, and lost the oldest",
        "raise ring_size of the listener, queue_size of the sink, or make it faster";
    /// `EMSGSIZE` for a single datagram; exact.
    TooBig = "too_big", lost at [Target, Egress, Sink],
        "the datagram is larger than the target's path or socket takes",
        "let the path fragment, raise its MTU, or make the sender's datagrams smaller";
    /// `ECONNREFUSED` after a retry, or the ICMP "port unreachable" about a datagram that was sent. Exact where the
    /// target is on this host; elsewhere a lower bound, because routers and hosts limit how many they report.
    Refused = "refused", lost at [Target, Egress, Sink],
        "nobody listens at the target",
        "start the receiver, or correct the target's address";
    /// `EHOSTUNREACH`: the neighbor did not answer. Counts everything handed over since the device was last idle.
    HostUnreachable = "host_unreachable", lost at [Target, Egress, Sink],
        "the next hop towards the target does not answer",
        "check the target's address and the network: `ip neigh`";
    /// At the socket of a receiver on this host, as the kernel counts them for it (`SK_MEMINFO_DROPS`, by sock_diag): its
    /// buffer was full, a filter or a checksum. All senders' together.
    ReceiverBuffer = "receiver_buffer", lost at [Receiver],
        "the receiver's own buffer was full: it reads slower than it is sent to",
        "make the receiver faster or its receive buffer larger (SO_RCVBUF, net.core.rmem_max); `weir sockets -ulp` shows it";
    /// `ENETUNREACH`, `ENETDOWN`; exact.
    NetworkUnreachable = "network_unreachable", lost at [Target, Egress, Sink],
        "there is no route to the target, or its interface is down",
        "check `ip route get` for the target";
    /// `ENOBUFS`; exact for single datagrams.
    EgressQueueFull = "egress_queue_full", lost at [Target, Sink],
        "the queue of the outgoing device was full",
        "slow the target down with rate_limit, or enlarge the queue: `tc qdisc show`";
    /// `EPERM`, `EACCES`; exact.
    Firewall = "firewall", lost at [Target, Sink],
        "a firewall rule on this host refused to let it out",
        "allow the target in the OUTPUT rules of this host";
    /// Any other error of a send call; exact.
    SendError = "send_error", lost at [Target, Sink],
        "the send call failed; the errors are counted by their names as well",
        "look at the target's send errors in the ledger";
    /// A write to a file target failed; exact.
    WriteError = "write_error", lost at [Target, Sink],
        "the target's file could not be written",
        "free disk space or fix the permissions of the target's folder";
    /// Rows of a kind that the sink's format cannot hold, such as totals in a table of sockets; exact.
    NotInFormat = "not_in_format", intended at [Sink],
        "the sink's format cannot hold rows of that kind, such as the totals of a poll",
        "intended: choose another format for the sink, if it should have them";
    /// An encoder could not write the row; exact.
    EncodeError = "encode_error", lost at [Sink],
        "the row could not be written in the sink's format",
        "report it, with what the daemon's log says: every row should have a form";
    /// Counted when a row is older than `expire_after`, or a datagram for another Weir older than `deadline`, and certainly did
    /// not reach the destination; exact.
    Expired = "expired", lost at [Target, Sink],
        "it waited longer than expire_after of the sink, or deadline of the target, while the destination did not answer or too much was lost on the way",
        "fix the destination or the way there, or raise expire_after of the sink, or deadline or bandwidth of the target";
    /// Counted when retries ended while the destination could not be reached or answered with an error that passes; exact.
    Unavailable = "unavailable", lost at [Sink],
        "the sink's destination could not be reached, or answered with an error that passes, until retries ended",
        "fix the destination (`weir ledger` shows the sink's trouble), or raise retry_max and give the sink a spool";
    /// Counted when the spool drops its oldest segments, or takes nothing more; exact.
    SpoolFull = "spool_full", lost at [Sink],
        "the sink's spool was full, or its disk",
        "raise spool_size of the sink, free disk space, or make the destination faster";
    /// A gap in the row numbers of the spool: entries whose checksum is wrong, or that never reached the disk; exact.
    SpoolCorrupt = "spool_corrupt", lost at [Sink],
        "a part of the sink's spool could not be read back",
        "check the disk (`dmesg`, `smartctl`); after a power failure, see spool_sync";
    /// Rows that the sink could not make durable in its spool when it ended. They may be there all the same: what the next start
    /// finds counts as recovered. Exact, but for their bytes where other rows of the same entry had left.
    SpoolUnsynced = "spool_unsynced", lost at [Sink],
        "the last sync of the sink's spool failed when the sink ended, so they may not be on its disk",
        "check the disk (`dmesg`, `smartctl`); what the next start finds in the spool is delivered, and counts as recovered";
    /// Rows of a sink that could not continue after a panic, and a datagram on which a sink panicked when a listener handed it
    /// over; exact.
    SinkPanicked = "sink_panicked", lost at [Target, Sink],
        "the sink panicked and could not continue",
        "report it, with the panic's message in the daemon's log";
    /// Rows of a sink whose thread could not be started, and those of a source that had lost its last sink; exact.
    NoSink = "no_sink", lost at [Sink],
        "no sink was there to take it: it could not be started, or a reload had just removed it",
        "see why in the daemon's log, raise the limit of tasks (TasksMax of the unit, `ulimit -u`), and reload";
    /// The target's name has no address and had none before; exact.
    TargetUnresolved = "target_unresolved", lost at [Target, Sink],
        "the target's name does not resolve, or its socket could not be opened",
        "correct the name, or fix the resolver: `getent hosts NAME`";
    /// Left in the ring, or in a sink's queue, when the drain's grace period ended; exact.
    Shutdown = "shutdown", lost at [Socket, Receive, Member, Target, Sink],
        "the daemon stopped before the target or sink had taken it",
        "raise drain_grace, or stop the senders first";
    /// Left in the ring, or in a sink's queue, when the target or sink was removed by a reload; exact.
    TargetRemoved = "target_removed", intended at [Target, Sink],
        "the target or sink was removed by a reload before it had taken it",
        "nothing: the configuration asked for it";
    /// What a follower (`GET /records`) had still to get when its client left, stopped reading, or had as many records as it asked
    /// for; exact.
    FollowerEnded = "follower_ended", intended at [Sink],
        "the client that followed the records had left, did not read, or had as many as it asked for",
        "nothing: raise limit of GET /records for more, or read faster";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_json_names_are_the_same() {
        for reason in Reason::ALL {
            let json = serde_json::to_string(reason).unwrap();
            assert_eq!(json, format!("\"{}\"", reason.label()));
        }
    }
}
