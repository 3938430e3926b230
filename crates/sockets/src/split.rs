//! A filter as the kernel and we divide it between us.

use crate::filter::{Expr, Filter, SystemNames, Target};
use wire::inet_diag::States;

/// What goes into the request, and what is left to evaluate on each reply.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub(crate) states: States,
    pub(crate) bytecode: Vec<u8>,
    pub(crate) rest: Option<Expr>,
    /// All of it, for what no request was made for: a close event.
    pub(crate) whole: Option<Expr>,
}

impl Split {
    /// Divides a filter; `states` are asked for where it names none.
    pub(crate) fn new(filter: Option<&Filter>, states: States) -> Split {
        let Some(filter) = filter else {
            return Split { states, bytecode: Vec::new(), rest: None, whole: None };
        };
        let names = SystemNames;
        let target = Target { default_states: states, ..Target::new(&names) };
        let compiled = filter.compile(&target);
        Split {
            states: compiled.states,
            bytecode: compiled.bytecode,
            rest: compiled.rest,
            whole: compiled.whole,
        }
    }
}
