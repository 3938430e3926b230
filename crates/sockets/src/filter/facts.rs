//! What is known about a socket besides the kernel's reply.

use super::ast::{Expr, Test, TextField};
use super::fields::{Field, Source};
use crate::attribution::{Cgroup, Process};
use std::time::Duration;

/// Information about a socket from other sources. Anything may be missing, and a test of something missing is open
/// ([`Verdict::Unknown`](super::Verdict)).
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts<'a> {
    /// The type of the message, which determines which of its fields are meaningful.
    pub origin: Origin,
    /// Name of the network namespace.
    pub netns: Option<&'a str>,
    /// Whether the namespace is known. If so, `netns` is `None` for one without a name.
    pub is_netns_known: bool,
    /// Name of the interface that the socket is bound to, for filters not compiled for a namespace.
    pub interface: Option<&'a str>,
    /// Path of the cgroup, from the root of the hierarchy.
    pub cgroup_path: Option<&'a str>,
    /// Uid of the Kubernetes pod. `None` although the path is known: the cgroup is in no pod. The same holds for container and
    /// unit.
    pub pod: Option<&'a str>,
    /// Id of the container.
    pub container: Option<&'a str>,
    /// Name of the systemd unit.
    pub unit: Option<&'a str>,
    /// Processes that hold the socket.
    pub processes: &'a [Process<'a>],
    /// How long the socket has been seen.
    pub age: Option<Duration>,
    /// First and last port that the namespace's kernel chooses from (`net.ipv4.ip_local_port_range`). 32768 to 60999 if unknown.
    pub local_ports: Option<(u16, u16)>,
}

impl<'a> Facts<'a> {
    /// The facts from a socket's cgroup. Empty if the cgroup is unknown.
    #[must_use]
    pub fn of_cgroup(cgroup: Option<&'a Cgroup>) -> Facts<'a> {
        Facts {
            cgroup_path: cgroup.map(Cgroup::path),
            pod: cgroup.and_then(Cgroup::pod_uid),
            container: cgroup.and_then(Cgroup::container_id),
            unit: cgroup.and_then(Cgroup::systemd_unit),
            ..Facts::default()
        }
    }
}

/// The kind of message that describes a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// A row of a dump, or the answer about one socket.
    #[default]
    Row,
    /// A close event. It lacks owner, inode, cgroup, mark, congestion control and memory, and after an abort also the peer, the
    /// queues and the counters.
    Close,
}

/// What a filter needs: which attributes to request from the kernel, and which [`Facts`] to find out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs(u16);

impl Needs {
    /// Nothing beyond the fixed part of a reply.
    pub const NONE: Needs = Needs(0);
    /// `INET_DIAG_INFO`.
    pub const TCP_INFO: Needs = Needs(1);
    /// `INET_DIAG_CONG`.
    pub const CONGESTION: Needs = Needs(1 << 1);
    /// `INET_DIAG_SKMEMINFO`.
    pub const MEMORY: Needs = Needs(1 << 2);
    /// The mark, which only readers with CAP_NET_ADMIN get.
    pub const MARK: Needs = Needs(1 << 3);
    /// The cgroup's id.
    pub const CGROUP_ID: Needs = Needs(1 << 4);
    /// [`Facts::cgroup_path`], [`Facts::pod`], [`Facts::container`] or [`Facts::unit`].
    pub const ATTRIBUTION: Needs = Needs(1 << 5);
    /// [`Facts::processes`].
    pub const PROCESSES: Needs = Needs(1 << 6);
    /// [`Facts::netns`].
    pub const NETNS: Needs = Needs(1 << 7);
    /// [`Facts::age`].
    pub const AGE: Needs = Needs(1 << 8);
    /// [`Facts::interface`].
    pub const INTERFACE: Needs = Needs(1 << 9);
    /// `INET_DIAG_TOS` and `INET_DIAG_TCLASS`.
    pub const TYPE_OF_SERVICE: Needs = Needs(1 << 10);

    /// Everything.
    pub const ALL: Needs = Needs((1 << 11) - 1);

    /// Whether all of `other` are needed.
    #[must_use]
    pub const fn contains(self, other: Needs) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union.
    #[must_use]
    pub const fn with(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }

    /// Those that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Needs) -> Needs {
        Needs(self.0 & !other.0)
    }

    /// What the tests of an expression need.
    #[must_use]
    pub fn of(expression: &Expr) -> Needs {
        let mut needs = Needs::NONE;
        expression.for_each_test(&mut |test| needs = needs.with(Needs::of_test(test)));
        needs
    }

    fn of_test(test: &Test) -> Needs {
        match test {
            Test::Mark { .. } => Needs::MARK,
            Test::Cgroup { .. } => Needs::CGROUP_ID,
            Test::Device(super::Device::Name(_)) => Needs::INTERFACE,
            Test::Number(field, ..) => Needs::of_field(*field),
            Test::Text(TextField::Netns, _) => Needs::NETNS,
            Test::Text(TextField::Process, _) => Needs::PROCESSES,
            Test::Text(TextField::CongestionControl, _) => Needs::CONGESTION,
            Test::Text(TextField::Limited, _) => Needs::TCP_INFO,
            Test::Text(..) => Needs::ATTRIBUTION,
            Test::Host(..) | Test::Port(..) | Test::Autobound => Needs::NONE,
            Test::Device(_) | Test::State(_) | Test::Family(_) => Needs::NONE,
        }
    }

    fn of_field(field: Field) -> Needs {
        match field.source() {
            Source::TcpInfo(_) | Source::Idle | Source::Sent => Needs::TCP_INFO,
            Source::Drops | Source::Memory(_) => Needs::MEMORY,
            Source::Dscp => Needs::TYPE_OF_SERVICE,
            Source::Age => Needs::AGE,
            Source::Pid => Needs::PROCESSES,
            Source::ReceiveQueue
            | Source::SendQueue
            | Source::Waiting
            | Source::Backlog
            | Source::Uid
            | Source::Inode
            | Source::Cookie => Needs::NONE,
        }
    }
}
