//! Splits a filter into the part that the kernel can decide, and the rest.

use super::Filter;
use super::ast::{Device, Expr, Test};
use super::evaluate::DEFAULT_LOCAL_PORTS;
use super::facts::Facts;
use super::names::{Names, SystemNames};
use std::net::Ipv6Addr;
use wire::inet_diag::bytecode::{
    self, CompileError, Condition, End, Expression, Operations, PortTest, Prefix,
};
use wire::inet_diag::{Family, SocketMessage, States};

/// Where a filter will run: one namespace, as seen by one reader.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The operations that the kernel accepts. Leave out `mark` without CAP_NET_ADMIN.
    pub operations: Operations,
    /// States to request if the filter names none.
    pub default_states: States,
    /// Ports that the kernel chooses from, for `autobound` (`net.ipv4.ip_local_port_range`).
    pub local_ports: (u16, u16),
    /// Resolves the interfaces of the namespace.
    pub names: &'a dyn Names,
}

impl<'a> Target<'a> {
    /// A current kernel, without CAP_NET_ADMIN, with the states that `ss` shows without options.
    #[must_use]
    pub fn new(names: &'a dyn Names) -> Self {
        Target {
            operations: Operations { mark: false, ..Operations::ALL },
            default_states: States::DEFAULT,
            local_ports: DEFAULT_LOCAL_PORTS,
            names,
        }
    }
}

/// A filter for one namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    /// States to request. If empty, no socket can pass, and no request is needed.
    pub states: States,
    /// The whole expression with its names resolved. `None` when the filter has none.
    pub whole: Option<Expr>,
    /// Program for the request. Empty for none.
    pub bytecode: Vec<u8>,
    /// What is left to evaluate on each reply. `None` if every reply passes.
    pub rest: Option<Expr>,
    pub(super) parts: Vec<Part>,
}

/// One of the conditions that must all hold, and who decides it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) expression: Expr,
    pub(super) by: By,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// Fully decided by the request's states.
    States,
    /// Fully decided by the program.
    Kernel,
    /// The program or the states leave out some sockets, and the rest is decided here.
    Both,
    /// Decided here alone.
    Us,
    /// Decided here, because the kernel's program would be too long.
    UsTooLong,
}

impl Compiled {
    /// A filter with this host's names. Without a filter, every socket in these states.
    pub(crate) fn of(filter: Option<&Filter>, default_states: States) -> Compiled {
        let target = Target { default_states, ..Target::new(&SystemNames) };
        compile(filter, &target)
    }

    /// Whether a reply to a request with these states and this program passes.
    #[must_use]
    pub fn matches(&self, message: &SocketMessage<'_>, facts: &Facts<'_>) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.matches(message, facts))
    }
}

pub(super) fn compile(filter: Option<&Filter>, target: &Target<'_>) -> Compiled {
    let expression = filter.and_then(Filter::expression);
    let expression = expression.map(|expression| resolved(expression, target.names));
    // A filter that names a state anywhere decides about states itself.
    let named = filter.and_then(Filter::states).unwrap_or_else(|| match &expression {
        Some(expression) if names_states(expression) => States::ALL,
        _ => target.default_states,
    });

    let whole = expression.clone();
    let conjuncts = expression.map_or(Vec::new(), Expr::into_conjuncts);
    // Conditions on states go into the request's state mask, which costs nothing.
    let states = conjuncts.iter().fold(named, |states, part| states & possible_states(part));

    let mut program = Program { parts: Vec::new(), bytes: 0 };
    let parts: Vec<Part> = conjuncts
        .into_iter()
        .map(|expression| Part { by: place(&expression, &mut program, target), expression })
        .collect();

    let left = parts.iter().filter(|part| !matches!(part.by, By::States | By::Kernel));
    let rest = Expr::from_conjuncts(left.map(|part| part.expression.clone()).collect());

    Compiled { states, whole, bytecode: program.compile(target.operations), rest, parts }
}

/// What the kernel is to decide, as it is being collected.
struct Program {
    parts: Vec<Expression>,
    /// Length of the parts, in bytes. The program of a conjunction is as long as those of its parts together.
    bytes: usize,
}

impl Program {
    fn add(&mut self, part: Expression, operations: Operations) -> Result<(), CompileError> {
        let bytes = self.bytes + bytecode::compile(&part, operations)?.len();
        if bytes > bytecode::MAX_PROGRAM_BYTES {
            return Err(CompileError::TooLong);
        }
        self.bytes = bytes;
        self.parts.push(part);
        Ok(())
    }

    fn compile(self, operations: Operations) -> Vec<u8> {
        bytecode::compile(&Expression::All(self.parts), operations)
            .expect("each part compiles, and their lengths add up")
    }
}

/// Determines who decides one of the conditions, and adds to the program what the kernel can decide.
fn place(part: &Expr, program: &mut Program, target: &Target<'_>) -> By {
    if only_states(part) {
        return By::States;
    }

    let bound = bound(part, Bound::AtLeast, target);
    let exact = all_kernel(part, target);
    // A program that is always true would leave out nothing.
    if bound == Expression::Constant(true) {
        return if exact { By::Kernel } else { By::Us };
    }

    match program.add(bound, target.operations) {
        Ok(()) if exact => By::Kernel,
        Ok(()) => By::Both,
        Err(_) => By::UsTooLong,
    }
}

/// The expression with every existing interface replaced by its index, and every cgroup's id updated from its path. An interface
/// that does not exist matches no socket; a cgroup that does not exist keeps its last id.
fn resolved(expression: &Expr, names: &dyn Names) -> Expr {
    let each = |parts: &[Expr]| parts.iter().map(|part| resolved(part, names)).collect();
    match expression {
        Expr::All(parts) => Expr::All(each(parts)),
        Expr::Any(parts) => Expr::Any(each(parts)),
        Expr::Not(inner) => resolved(inner, names).negate(),
        Expr::Test(Test::Device(Device::Name(name))) => match names.device(name) {
            Some(index) => Expr::Test(Test::Device(Device::Index(index))),
            None => expression.clone(),
        },
        Expr::Test(Test::Cgroup { path, id }) => {
            let id = names.cgroup(path).unwrap_or(*id);
            Expr::Test(Test::Cgroup { path: path.clone(), id })
        }
        Expr::Test(_) => expression.clone(),
    }
}

/// On which side an approximation may err.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// True whenever the expression is.
    AtLeast,
    /// False whenever the expression is.
    AtMost,
}

/// The kernel's closest approximation to an expression from one side.
fn bound(expression: &Expr, side: Bound, target: &Target<'_>) -> Expression {
    let each = |part| bound(part, side, target);
    match expression {
        Expr::All(parts) => all(parts.iter().map(each)),
        Expr::Any(parts) => any(parts.iter().map(each)),
        Expr::Not(inner) => {
            // Under `not`, the approximation must err on the other side.
            let other = if side == Bound::AtLeast { Bound::AtMost } else { Bound::AtLeast };
            not(bound(inner, other, target))
        }
        Expr::Test(test) => {
            kernel(test, target).unwrap_or(Expression::Constant(side == Bound::AtLeast))
        }
    }
}

fn all(parts: impl Iterator<Item = Expression>) -> Expression {
    let kept: Vec<Expression> = parts.filter(|part| *part != Expression::Constant(true)).collect();
    if kept.contains(&Expression::Constant(false)) {
        return Expression::Constant(false);
    }
    if kept.is_empty() { Expression::Constant(true) } else { Expression::All(kept) }
}

fn any(parts: impl Iterator<Item = Expression>) -> Expression {
    let kept: Vec<Expression> = parts.filter(|part| *part != Expression::Constant(false)).collect();
    if kept.contains(&Expression::Constant(true)) {
        return Expression::Constant(true);
    }
    if kept.is_empty() { Expression::Constant(false) } else { Expression::Any(kept) }
}

fn not(inner: Expression) -> Expression {
    match inner {
        Expression::Constant(value) => Expression::Constant(!value),
        other => Expression::Not(Box::new(other)),
    }
}

/// Whether the kernel can decide every test of the expression.
fn all_kernel(expression: &Expr, target: &Target<'_>) -> bool {
    let mut exact = true;
    expression.for_each_test(&mut |test| exact &= kernel(test, target).is_some());
    exact
}

/// The test as a kernel condition, if there is one.
fn kernel(test: &Test, target: &Target<'_>) -> Option<Expression> {
    let allowed = |condition: Condition| {
        target.operations.allow(&condition).then_some(Expression::Condition(condition))
    };
    match test {
        Test::Host(_, None, None) => Some(Expression::Constant(true)),
        Test::Host(end, prefix, port) => allowed(Condition::Host(*end, *prefix, *port)),
        Test::Port(end, test, port) => allowed(Condition::Port(*end, *test, *port)),
        Test::Device(Device::Index(index)) => allowed(Condition::Device(*index)),
        // There is no such interface here.
        Test::Device(Device::Name(_)) => Some(Expression::Constant(false)),
        Test::Mark { value, mask } => allowed(Condition::Mark { value: *value, mask: *mask }),
        Test::Cgroup { id, .. } => allowed(Condition::Cgroup(*id)),
        Test::Family(family) => Some(family_condition(*family)),
        Test::Autobound => Some(autobound(target.local_ports)),
        // The kernel's programs have no operation for these.
        Test::State(_) | Test::Number(..) | Test::Text(..) => None,
    }
}

/// An IPv6 prefix of 0 bits contains every IPv6 socket; an IPv4 one would contain IPv4-mapped addresses too.
fn family_condition(family: Family) -> Expression {
    let every_inet6 = Prefix { address: Ipv6Addr::UNSPECIFIED.into(), bits: 0 };
    let is_inet6 = Expression::Condition(Condition::Host(End::Source, Some(every_inet6), None));
    match family {
        Family::Inet6 => is_inet6,
        Family::Inet => not(is_inet6),
    }
}

/// The kernel alone would call accepted sockets and TIME-WAIT autobound, although `bind` chose their ports: `sk_clone_lock` drops
/// the lock flag, and minisockets have none. `ss` checks both.
fn autobound((first, last): (u16, u16)) -> Expression {
    let port = |test, port| Expression::Condition(Condition::Port(End::Source, test, port));
    let by_kernel = Expression::Condition(Condition::Autobound);
    Expression::All(vec![by_kernel, port(PortTest::AtLeast, first), port(PortTest::AtMost, last)])
}

fn names_states(expression: &Expr) -> bool {
    let mut found = false;
    expression.for_each_test(&mut |test| found |= matches!(test, Test::State(_)));
    found
}

fn only_states(expression: &Expr) -> bool {
    let mut only = true;
    expression.for_each_test(&mut |test| only &= matches!(test, Test::State(_)));
    only
}

/// States that a passing socket may have.
fn possible_states(expression: &Expr) -> States {
    states_bound(expression, Bound::AtLeast)
}

fn states_bound(expression: &Expr, side: Bound) -> States {
    match expression {
        Expr::All(parts) => {
            parts.iter().fold(States::ALL, |states, part| states & states_bound(part, side))
        }
        Expr::Any(parts) => {
            parts.iter().fold(States::NONE, |states, part| states | states_bound(part, side))
        }
        Expr::Not(inner) => {
            let other = if side == Bound::AtLeast { Bound::AtMost } else { Bound::AtLeast };
            !states_bound(inner, other)
        }
        Expr::Test(Test::State(states)) => *states,
        Expr::Test(_) if side == Bound::AtLeast => States::ALL,
        Expr::Test(_) => States::NONE,
    }
}
