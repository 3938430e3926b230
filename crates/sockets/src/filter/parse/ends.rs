//! Tests of the two ends: addresses and ports, single or as lists.

use super::predicate::{EVERY_SIGN, ONLY_EQUAL, Value, signed};
use super::{Parser, help};
use crate::filter::ast::{Expr, Test};
use crate::filter::error::{FilterError, Note};
use crate::filter::host::{self, Host, Problem};
use crate::filter::lex::{Kind, Sign, Token};
use std::ops::Range;
use wire::inet_diag::bytecode::{End, PortTest, Prefix};

impl<'a> Parser<'a> {
    pub(super) fn host(&mut self, ends: &[End], word: &str) -> Result<Expr, FilterError> {
        if let Some(sign) = self.list_sign(word)? {
            let elements = self.elements(word, "a host")?;
            let each = elements.into_iter().map(|value| self.host_of(ends, &value));
            let each = each.collect::<Result<Vec<_>, _>>()?;
            return Ok(signed(sign, one_of(each)));
        }

        let sign = self.sign(word, ONLY_EQUAL)?;
        let value = self.value(word, "a host")?;
        Ok(signed(sign, self.host_of(ends, &value)?))
    }

    /// Matches if one of these ends is this host.
    fn host_of(&mut self, ends: &[End], value: &Value<'_>) -> Result<Expr, FilterError> {
        let host =
            host::host(&value.text, self.names).map_err(|problem| self.locate(problem, value))?;
        self.adopt(&host, value);

        // A host name may stand for several addresses, any of which will do.
        let tests = ends.iter().flat_map(|&end| -> Vec<Test> {
            match host.port {
                _ if !host.prefixes.is_empty() => {
                    let of = |prefix: &Prefix| Test::Host(end, Some(*prefix), host.port);
                    host.prefixes.iter().map(of).collect()
                }
                Some(port) => vec![Test::Port(end, PortTest::Equal, port)],
                None => vec![Test::Host(end, None, None)],
            }
        });
        Ok(one_of(tests.map(Expr::Test).collect()))
    }

    pub(super) fn port(&mut self, end: End, word: &str) -> Result<Expr, FilterError> {
        if let Some(sign) = self.list_sign(word)? {
            let elements = self.elements(word, "a port or a range of ports")?;
            let each = elements.into_iter().map(|value| self.ports_of(end, &value));
            let each = each.collect::<Result<Vec<_>, _>>()?;
            return Ok(signed(sign, one_of(each)));
        }

        let sign = self.sign(word, EVERY_SIGN)?;
        let value = self.value(word, "a port")?;
        let Some(port) = self.one_port(&value)? else {
            return match sign {
                Sign::Equal | Sign::NotEqual => {
                    Ok(signed(sign, Expr::Test(Test::Host(end, None, None))))
                }
                _ => Err(self.error(value.span, "any port has no order", help("write a number"))),
            };
        };

        // The kernel's programs compare ports with `=`, `>=` and `<=`; the other operators are the opposites of these.
        let test = |test| Expr::Test(Test::Port(end, test, port));
        Ok(match sign {
            Sign::Equal => test(PortTest::Equal),
            Sign::NotEqual => test(PortTest::Equal).negate(),
            Sign::AtLeast => test(PortTest::AtLeast),
            Sign::AtMost => test(PortTest::AtMost),
            Sign::Above => test(PortTest::AtMost).negate(),
            Sign::Below => test(PortTest::AtLeast).negate(),
        })
    }

    /// Parses a port or service. `None` for any.
    fn one_port(&mut self, value: &Value<'_>) -> Result<Option<u16>, FilterError> {
        let host =
            host::port(&value.text, self.names).map_err(|problem| self.locate(problem, value))?;
        self.adopt(&host, value);
        Ok(host.port)
    }

    /// Parses an element of a list of ports: one port, or a range.
    fn ports_of(&mut self, end: End, value: &Value<'_>) -> Result<Expr, FilterError> {
        let test = |test, port| Expr::Test(Test::Port(end, test, port));
        let as_one = self.one_port(value);
        // Service names may contain a hyphen too.
        let (first, last) = match (as_one, value.text.split_once('-')) {
            (Ok(Some(port)), _) => return Ok(test(PortTest::Equal, port)),
            (Err(error), None) => return Err(error),
            (Err(_), Some(range)) => range,
            (Ok(None), _) => {
                let message = "any port is not an element of a list";
                return Err(self.error(value.span.clone(), message, help("leave it out")));
            }
        };

        if [first, last].iter().any(|end| matches!(*end, "" | "*")) {
            let help = Some("write both, or `>=` or `<=` with one".to_owned());
            return Err(self.error(value.span.clone(), "a range has two ends", help));
        }

        let (low, high) = value.split(first, last);
        match (self.one_port(&low)?, self.one_port(&high)?) {
            (Some(low), Some(high)) if low <= high => {
                Ok(test(PortTest::AtLeast, low).and(test(PortTest::AtMost, high)))
            }
            _ => Err(self.error(
                value.span.clone(),
                "this range ends before it begins",
                help("write the smaller port first"),
            )),
        }
    }

    /// Parses `in` or `not in` if a list follows.
    fn list_sign(&mut self, word: &str) -> Result<Option<Sign>, FilterError> {
        match self.peek_kind() {
            Some(Kind::Word("in")) => {
                self.next();
                Ok(Some(Sign::Equal))
            }
            Some(Kind::Not) => {
                let not = self.next().map(|token| token.span).unwrap_or_default();
                match self.next() {
                    Some(Token { kind: Kind::Word("in"), .. }) => Ok(Some(Sign::NotEqual)),
                    _ => {
                        let help = Some(format!("write `not {word} …`, or `{word} not in …`"));
                        Err(self.error(not, format!("`in` is expected after `{word} not`"), help))
                    }
                }
            }
            _ => Ok(None),
        }
    }

    /// Parses the elements between commas. A space may follow a comma but not precede it.
    fn elements(&mut self, word: &str, what: &str) -> Result<Vec<Value<'a>>, FilterError> {
        let mut elements = Vec::new();
        loop {
            let value = self.value(word, what)?;
            let mut at = value.span.start;
            let mut is_last = true;

            for text in value.text.split(',') {
                let span = at..at + text.len();
                at = span.end + 1;
                // Nothing after the last comma: the list continues after the space.
                is_last = !(text.is_empty() && at > value.span.end && !value.quoted);
                if text.is_empty() && is_last {
                    let message = format!("{what} is missing next to a comma");
                    return Err(self.error(value.span, message, help("remove the comma")));
                }
                if is_last {
                    let span = if value.quoted { value.span.clone() } else { span };
                    let text = text.to_owned().into();
                    elements.push(Value { text, span, quoted: value.quoted });
                }
            }

            if is_last {
                return Ok(elements);
            }
        }
    }

    fn adopt(&mut self, host: &Host, value: &Value<'_>) {
        self.families.extend(host.family);
        let notes = host
            .notes
            .iter()
            .map(|message| Note { span: value.span.clone(), message: message.clone() });
        self.notes.extend(notes);
    }

    /// The position of a problem within a value; the whole value if it has quotes or escapes.
    fn locate(&self, problem: Problem, value: &Value<'_>) -> FilterError {
        let inside = !value.quoted && !problem.span.is_empty();
        let span = if inside {
            value.span.start + problem.span.start..value.span.start + problem.span.end
        } else {
            value.span.clone()
        };
        self.error(span, problem.message, problem.help)
    }
}

impl Value<'_> {
    /// The two parts of a range, one at the start of the value and one at its end.
    fn split(&self, first: &str, last: &str) -> (Value<'static>, Value<'static>) {
        let part = |text: &str, span: Range<usize>| Value {
            text: text.to_owned().into(),
            span: if self.quoted { self.span.clone() } else { span },
            quoted: self.quoted,
        };
        let Range { start, end } = self.span;
        let low = part(first, start..(start + first.len()).min(end));
        let high = part(last, end.saturating_sub(last.len()).max(start)..end);
        (low, high)
    }
}

/// Matches any of these, of which there is at least one.
fn one_of(each: Vec<Expr>) -> Expr {
    each.into_iter().reduce(Expr::or).unwrap_or(Expr::Any(Vec::new()))
}
