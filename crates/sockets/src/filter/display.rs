//! Prints filters so that parsing the output gives the same filter. The output may be longer than the input, and longer than
//! [`MAX_TEXT_BYTES`](super::MAX_TEXT_BYTES).

use super::Filter;
use super::ast::{Compare, Device, Expr, Test};
use super::lex::{is_reserved, is_special};
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;
use wire::inet_diag::bytecode::{End, PortTest, Prefix};
use wire::inet_diag::{State, States};

impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(states) = self.states {
            write_states(states, f)?;
        }
        match (&self.expression, self.states) {
            (None, _) => Ok(()),
            (Some(expression @ Expr::Any(_)), Some(_)) => write!(f, " and ( {expression} )"),
            (Some(expression), Some(_)) => write!(f, " and {expression}"),
            // A state at the very start would be read as the states of the whole filter.
            (Some(expression), None) if begins_with_state(expression) => {
                write!(f, "( {expression} )")
            }
            (Some(expression), None) => write!(f, "{expression}"),
        }
    }
}

fn begins_with_state(expression: &Expr) -> bool {
    match expression {
        Expr::All(parts) | Expr::Any(parts) => parts.first().is_some_and(begins_with_state),
        Expr::Not(inner) => matches!(**inner, Expr::Test(Test::State(_))),
        Expr::Test(test) => matches!(test, Test::State(_)),
    }
}

/// Writes a sequence of `state` or `exclude` words, or one group.
fn write_states(states: States, f: &mut Formatter<'_>) -> fmt::Result {
    if let Some(word) = states_word(states) {
        return write!(f, "state {word}");
    }

    // Sets derived from `all` contain a state that no word names.
    let (keyword, listed) = if states.contains(State::NewSynReceived) {
        ("exclude", !states)
    } else {
        ("state", states)
    };

    for (index, state) in listed.iter().enumerate() {
        let space = if index > 0 { " " } else { "" };
        write!(f, "{space}{keyword} {}", state.word())?;
    }
    Ok(())
}

/// The word for exactly these states.
fn states_word(states: States) -> Option<&'static str> {
    let group = States::GROUPS.iter().find(|(_, group)| *group == states).map(|(name, _)| *name);
    group.or_else(|| {
        State::KNOWN.iter().find(|state| States::of(**state) == states).map(|state| state.word())
    })
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expr::All(parts) => write_joined(parts, " and ", f),
            Expr::Any(parts) => write_joined(parts, " or ", f),
            Expr::Test(test) => write_test(test, Sense::Plain, f),
            Expr::Not(inner) => match &**inner {
                Expr::Test(test) if has_opposite(test) => write_test(test, Sense::Opposite, f),
                Expr::All(_) | Expr::Any(_) => write!(f, "not ( {inner} )"),
                _ => write!(f, "not {inner}"),
            },
        }
    }
}

fn write_joined(parts: &[Expr], separator: &str, f: &mut Formatter<'_>) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        match part {
            Expr::All(_) | Expr::Any(_) => write!(f, "( {part} )")?,
            _ => write!(f, "{part}")?,
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sense {
    Plain,
    Opposite,
}

/// Whether the opposite of a test has an operator of its own.
fn has_opposite(test: &Test) -> bool {
    !matches!(test, Test::Autobound)
        && !matches!(test, Test::Number(_, compare, _) if *compare != Compare::Equal)
}

fn write_test(test: &Test, sense: Sense, f: &mut Formatter<'_>) -> fmt::Result {
    let equal = if sense == Sense::Plain { "=" } else { "!=" };
    let opposite = if sense == Sense::Plain { "" } else { "!= " };

    match test {
        Test::Host(end, prefix, port) => {
            write!(f, "{} {opposite}", host_word(*end))?;
            write_host(*prefix, *port, f)
        }
        Test::Port(end, test, port) => {
            let word = match end {
                End::Source => "sport",
                End::Destination => "dport",
            };
            write!(f, "{word} {} :{port}", port_sign(*test, sense))
        }
        Test::Autobound => f.write_str("autobound"),
        // A name that starts with a digit would be read as an index.
        Test::Device(Device::Name(name)) if name.starts_with(|c: char| c.is_ascii_digit()) => {
            write!(f, "dev {equal} \"{}\"", escaped(name))
        }
        Test::Device(Device::Name(name)) => write!(f, "dev {equal} {}", Value(name)),
        Test::Device(Device::Index(index)) => write!(f, "dev {equal} {index}"),
        Test::Mark { value, mask: u32::MAX } => write!(f, "fwmark {equal} {value:#x}"),
        Test::Mark { value, mask } => write!(f, "fwmark {equal} {value:#x}/{mask:#x}"),
        Test::Cgroup { path, .. } => write!(f, "cgroup {equal} {}", Value(path)),
        Test::State(states) => {
            write!(f, "state {opposite}{}", states_word(*states).unwrap_or("all"))
        }
        Test::Family(family) => write!(f, "family {equal} {}", family.name()),
        Test::Text(field, pattern) => write!(f, "{} {equal} {}", field.word(), Value(pattern)),
        Test::Number(field, compare, value) => {
            let sign = match compare {
                Compare::Equal => equal,
                Compare::AtLeast => ">=",
                Compare::AtMost => "<=",
                Compare::Above => ">",
                Compare::Below => "<",
            };
            write!(f, "{} {sign} ", field.word())?;
            field.quantity().write(*value, f)
        }
    }
}

fn host_word(end: End) -> &'static str {
    match end {
        End::Source => "src",
        End::Destination => "dst",
    }
}

fn port_sign(test: PortTest, sense: Sense) -> &'static str {
    match (test, sense) {
        (PortTest::Equal, Sense::Plain) => "=",
        (PortTest::Equal, Sense::Opposite) => "!=",
        (PortTest::AtLeast, Sense::Plain) => ">=",
        (PortTest::AtLeast, Sense::Opposite) => "<",
        (PortTest::AtMost, Sense::Plain) => "<=",
        (PortTest::AtMost, Sense::Opposite) => ">",
    }
}

fn write_host(prefix: Option<Prefix>, port: Option<u16>, f: &mut Formatter<'_>) -> fmt::Result {
    match prefix {
        None => f.write_str("*")?,
        Some(Prefix { address: IpAddr::V4(address), bits: 32 }) => write!(f, "{address}")?,
        Some(Prefix { address: IpAddr::V4(address), bits }) => write!(f, "{address}/{bits}")?,
        Some(Prefix { address: IpAddr::V6(address), bits: 128 }) => write!(f, "[{address}]")?,
        Some(Prefix { address: IpAddr::V6(address), bits }) => write!(f, "[{address}/{bits}]")?,
    }
    port.map_or(Ok(()), |port| write!(f, ":{port}"))
}

/// A value, quoted if it could be read as something else.
struct Value<'a>(&'a str);

impl Display for Value<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plain = !self.0.is_empty()
            && !is_reserved(self.0)
            && !self.0.contains(|c| is_special(c) || c == '\\');
        if plain { f.write_str(self.0) } else { write!(f, "\"{}\"", escaped(self.0)) }
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"")
}
