//! The filter language: what `ss` takes, plus words that the kernel does not know.
//!
//! A [`Filter`] is parsed once. [`Filter::compile`] splits it for one namespace: the states and the largest part that the kernel
//! can decide go into the request, and the rest is evaluated on each reply. [`Filter::matches`] evaluates all of it, for
//! captures.
//!
//! ```
//! use sockets::filter::{Filter, NoNames, Target};
//! let filter = Filter::parse_with("state established and dport = :443 and rtt > 100ms", &NoNames).unwrap();
//! let compiled = filter.compile(&Target::new(&NoNames));
//! assert_eq!(compiled.bytecode.len(), 8);
//! assert_eq!(compiled.rest.unwrap().to_string(), "rtt > 100ms");
//! ```

mod ast;
mod available;
mod display;
mod error;
mod evaluate;
mod explain;
mod facts;
mod fields;
mod host;
mod lex;
mod names;
mod parse;
mod quantity;
mod recorded;
mod split;
#[cfg(test)]
mod tests;
mod verdict;

use std::str::FromStr;

pub use ast::{Compare, Device, Expr, Test, TextField};
pub use error::{FilterError, Note};
pub use explain::{Explanation, Place};
pub use facts::{Facts, Needs, Origin};
pub use fields::{Field, words};
pub use names::{Names, NoNames, SystemNames};
pub use parse::COLUMNS_ONLY;
pub use recorded::RecordFilter;
pub use split::{Compiled, Target};
pub use verdict::Verdict;

pub(crate) use evaluate::of_close;

use wire::inet_diag::{Family, SocketMessage, States};

/// Maximum length of a filter, in bytes.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Maximum nesting. Without parentheses, each change between `and` and `or` counts as one level too.
pub const MAX_NESTING: usize = 64;

/// A parsed filter.
#[derive(Debug, Clone)]
pub struct Filter {
    text: String,
    states: Option<States>,
    expression: Option<Expr>,
    notes: Vec<Note>,
    devices: Vec<(String, std::ops::Range<usize>)>,
    /// What each word needs, and its position, for words that need more than the fixed part of a message.
    asks: Vec<(Needs, std::ops::Range<usize>)>,
}

impl Filter {
    /// Parses with this host's services, users, addresses and cgroups. A host that is not an address is resolved, which may take
    /// as long as the resolver does.
    ///
    /// # Errors
    ///
    /// [`FilterError`] points at the first wrong word.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Self::parse_with(text, &SystemNames)
    }

    /// Parses with names from another source.
    ///
    /// # Errors
    ///
    /// [`FilterError`] points at the first wrong word.
    pub fn parse_with(text: &str, names: &dyn Names) -> Result<Self, FilterError> {
        parse::parse(text, names)
    }

    /// The same filter, limited to sockets of one family.
    #[must_use]
    pub fn within(mut self, family: Family) -> Self {
        self.expression = parse::with_family(self.expression.take(), &[family]);
        self
    }

    /// The states named before the expression. `None` when none are.
    #[must_use]
    pub fn states(&self) -> Option<States> {
        self.states
    }

    /// The expression after the states.
    #[must_use]
    pub fn expression(&self) -> Option<&Expr> {
        self.expression.as_ref()
    }

    /// Behavior that the author of the filter may not expect, such as the order of `and` and `or`.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// What [`Filter::matches`] needs to know.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.expression.as_ref().map_or(Needs::NONE, Needs::of)
    }

    /// Whether the result of [`Filter::compile`] depends on the namespace, because the filter names an interface.
    #[must_use]
    pub fn depends_on_namespace(&self) -> bool {
        !self.devices.is_empty()
    }

    /// Whether the filter's names may change their meaning while the host runs: an interface is recreated with another index, or
    /// a service restarts with another cgroup. [`Filter::compile`] resolves them each time.
    #[must_use]
    pub fn names_may_change(&self) -> bool {
        let mut has_paths = false;
        if let Some(expression) = &self.expression {
            expression.for_each_test(&mut |test| has_paths |= matches!(test, Test::Cgroup { .. }));
        }
        has_paths || self.depends_on_namespace()
    }

    /// Reports the first interface that does not exist, as `ss` does. Where several namespaces are read, an interface may exist
    /// in only one of them: there, an unknown one simply matches no socket.
    ///
    /// # Errors
    ///
    /// [`FilterError`] at the name.
    pub fn check_devices(&self, names: &dyn Names) -> Result<(), FilterError> {
        match self.devices.iter().find(|(name, _)| names.device(name).is_none()) {
            None => Ok(()),
            Some((name, span)) => Err(FilterError::new(
                &self.text,
                span.clone(),
                format!("there is no interface `{name}` here"),
                Some("write one that `ip link` lists, or its index".to_owned()),
            )),
        }
    }

    /// Splits the filter for one namespace.
    #[must_use]
    pub fn compile(&self, target: &Target<'_>) -> Compiled {
        split::compile(Some(self), target)
    }

    /// Explains which part runs where, one line each.
    #[must_use]
    pub fn explain(&self, target: &Target<'_>) -> Vec<Explanation> {
        explain::explain(self, target)
    }

    /// The verdict on a socket, with the whole filter evaluated here. A socket's state counts only if the filter names states.
    ///
    /// `autobound` is answered from the local port alone: a reply does not say who chose the port.
    #[must_use]
    pub fn evaluate(&self, message: &SocketMessage<'_>, facts: &Facts<'_>) -> Verdict {
        let is_in =
            self.states.is_none_or(|states| evaluate::state_in(message.state, states)).into();
        let says = self.expression.as_ref().map(|expression| expression.evaluate(message, facts));
        Verdict::all([is_in].into_iter().chain(says))
    }

    /// Whether the socket certainly passes.
    #[must_use]
    pub fn matches(&self, message: &SocketMessage<'_>, facts: &Facts<'_>) -> bool {
        self.evaluate(message, facts).passes()
    }
}

/// Two filters are equal when they have the same states and expression, however they are written.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.states == other.states && self.expression == other.expression
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::parse(text)
    }
}
