//! Explains which part of a filter runs where.

use super::Filter;
use super::ast::{Expr, Test};
use super::split::{By, Target};
use std::fmt;
use wire::inet_diag::{State, States};

/// Where a part of a filter is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the kernel, before it copies a socket.
    Kernel,
    /// The kernel leaves out some sockets, and the rest is decided here.
    Both,
    /// Here, on each of the kernel's replies.
    Here,
}

/// One part of a filter, and where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Where the part is decided.
    pub place: Place,
    /// The part, in the filter language.
    pub part: String,
    /// How the kernel decides it, or why it cannot.
    pub reason: String,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Kernel => "kernel",
            Place::Both => "both",
            Place::Here => "weir",
        };
        write!(f, "{place:<6}  {}  ({})", self.part, self.reason)
    }
}

pub(super) fn explain(filter: &Filter, target: &Target<'_>) -> Vec<Explanation> {
    let compiled = filter.compile(target);
    // A state internal to the kernel: replies call it SYN-RECV.
    let asked = compiled.states.iter().filter(|state| *state != State::NewSynReceived);
    let asked: Vec<&str> = asked.map(State::word).collect();

    let states = match compiled.states {
        States::ALL => "every state".to_owned(),
        _ if asked.is_empty() => "no state".to_owned(),
        _ => asked.join(", "),
    };
    let source = if filter.states().is_none() && compiled.states == target.default_states {
        "the states asked for; the filter names none"
    } else {
        "the states asked for"
    };

    let first = Explanation { place: Place::Kernel, part: states, reason: source.to_owned() };
    let parts = compiled.parts.iter().filter(|part| part.by != By::States).map(|part| {
        let (place, reason) = match part.by {
            By::States | By::Kernel => (Place::Kernel, "a program of the request".to_owned()),
            By::Both => {
                let why = hindrance(&part.expression, target);
                (Place::Both, format!("a program leaves out what it can, weir decides: {why}"))
            }
            By::Us => (Place::Here, hindrance(&part.expression, target)),
            By::UsTooLong => {
                (Place::Here, "the program would be too long for the kernel".to_owned())
            }
        };
        Explanation { place, part: part.expression.to_string(), reason }
    });

    std::iter::once(first).chain(parts).collect()
}

/// The first reason why the kernel cannot decide an expression.
fn hindrance(expression: &Expr, target: &Target<'_>) -> String {
    let mut reason = None;
    expression.for_each_test(&mut |test| {
        let found = match test {
            Test::Number(field, ..) => {
                Some(format!("the kernel's programs do not know `{}`", field.word()))
            }
            Test::Text(field, _) => {
                Some(format!("the kernel's programs do not know `{}`", field.word()))
            }
            Test::Mark { .. } if !target.operations.mark => {
                Some("a mark is shown to CAP_NET_ADMIN only: without it none matches".to_owned())
            }
            Test::Cgroup { .. } if !target.operations.cgroup => {
                Some("this kernel's programs do not know cgroups (Linux 5.8 does)".to_owned())
            }
            Test::State(_) => Some("a state next to other tests".to_owned()),
            _ => None,
        };

        if reason.is_none() {
            reason = found;
        }
    });

    reason.unwrap_or_else(|| "the kernel's programs do not know it".to_owned())
}
