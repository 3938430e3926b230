//! The syntax tree of a filter.

use super::fields::Field;
use wire::inet_diag::bytecode::{End, PortTest, Prefix};
use wire::inet_diag::{Family, States};

/// A boolean tree of tests. By construction no `All` contains an `All` and no `Any` an `Any`, and both contain at least two
/// parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// All of these hold.
    All(Vec<Expr>),
    /// At least one of these holds.
    Any(Vec<Expr>),
    /// This does not hold.
    Not(Box<Expr>),
    /// A single test.
    Test(Test),
}

/// A test of one property of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// Address and port of one end. With neither, every socket passes.
    Host(End, Option<Prefix>, Option<u16>),
    /// A port comparison.
    Port(End, PortTest, u16),
    /// Whether the kernel chose the local port.
    Autobound,
    /// Bound to this interface.
    Device(Device),
    /// `mark & mask == value`.
    Mark {
        /// Required value of the masked mark.
        value: u32,
        /// Bits of the mark that count.
        mask: u32,
    },
    /// Member of this cgroup itself, not of one below it.
    Cgroup {
        /// The path as written.
        path: String,
        /// Its id.
        id: u64,
    },
    /// In one of these states: always the states that a single word of the language names.
    State(States),
    /// Of this address family. IPv4 connections of a dual-stack listener count as `inet6`.
    Family(Family),
    /// Comparison of a number of the socket. False if the socket does not have it.
    Number(Field, Compare, u64),
    /// Text about the socket matched against a pattern, in which `*` stands for any characters.
    Text(TextField, String),
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// By name, which each namespace resolves for itself.
    Name(String),
    /// By index. 0 means a socket bound to none.
    Index(u32),
}

/// How a number is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// The same.
    Equal,
    /// The same or more.
    AtLeast,
    /// The same or less.
    AtMost,
    /// More.
    Above,
    /// Less.
    Below,
}

impl Compare {
    /// Whether the comparison of `value` with `wanted` holds.
    #[must_use]
    pub fn holds(self, value: u64, wanted: u64) -> bool {
        match self {
            Compare::Equal => value == wanted,
            Compare::AtLeast => value >= wanted,
            Compare::AtMost => value <= wanted,
            Compare::Above => value > wanted,
            Compare::Below => value < wanted,
        }
    }
}

/// A text known about a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextField {
    /// Name of the network namespace.
    Netns,
    /// Uid of the Kubernetes pod.
    Pod,
    /// Id of the container.
    Container,
    /// Name of the systemd unit.
    Unit,
    /// Name of a process that holds the socket.
    Process,
    /// Path of the cgroup.
    CgroupPath,
    /// Name of the congestion control.
    CongestionControl,
    /// What limited sending: a word of [`Limit`](crate::Limit).
    Limited,
}

impl TextField {
    /// The word in the filter language.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            TextField::Netns => "netns",
            TextField::Pod => "pod",
            TextField::Container => "container",
            TextField::Unit => "unit",
            TextField::Process => "process",
            TextField::CgroupPath => "cgroup",
            TextField::CongestionControl => "cc",
            TextField::Limited => "limited",
        }
    }
}

impl Expr {
    /// Both expressions, flattened.
    #[must_use]
    pub fn and(self, other: Expr) -> Expr {
        let mut parts = self.into_conjuncts();
        parts.extend(other.into_conjuncts());
        Expr::All(parts)
    }

    /// Either expression, flattened.
    #[must_use]
    pub fn or(self, other: Expr) -> Expr {
        let alternatives = |expr| match expr {
            Expr::Any(parts) => parts,
            other => vec![other],
        };
        let mut parts = alternatives(self);
        parts.extend(alternatives(other));
        Expr::Any(parts)
    }

    /// The opposite.
    #[must_use]
    pub fn negate(self) -> Expr {
        Expr::Not(Box::new(self))
    }

    /// The parts that must all hold.
    #[must_use]
    pub fn into_conjuncts(self) -> Vec<Expr> {
        match self {
            Expr::All(parts) => parts,
            other => vec![other],
        }
    }

    /// The parts that must all hold.
    #[must_use]
    pub fn conjuncts(&self) -> &[Expr] {
        match self {
            Expr::All(parts) => parts,
            other => std::slice::from_ref(other),
        }
    }

    /// The conjunction of these parts. `None` when there are none.
    #[must_use]
    pub fn from_conjuncts(mut parts: Vec<Expr>) -> Option<Expr> {
        if parts.len() > 1 { Some(Expr::All(parts)) } else { parts.pop() }
    }

    /// Calls `visit` with every test.
    pub fn for_each_test<'a>(&'a self, visit: &mut dyn FnMut(&'a Test)) {
        match self {
            Expr::All(parts) | Expr::Any(parts) => {
                parts.iter().for_each(|part| part.for_each_test(visit))
            }
            Expr::Not(inner) => inner.for_each_test(visit),
            Expr::Test(test) => visit(test),
        }
    }

    /// Number of levels of the tree; a single test has 1.
    #[must_use]
    pub(super) fn depth(&self) -> usize {
        match self {
            Expr::All(parts) | Expr::Any(parts) => {
                1 + parts.iter().map(Expr::depth).max().unwrap_or(0)
            }
            Expr::Not(inner) => 1 + inner.depth(),
            Expr::Test(_) => 1,
        }
    }
}
