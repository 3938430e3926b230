//! One question: a word, a sign, and a value.

use super::Parser;
use crate::filter::ast::{Compare, Device, Expr, Test, TextField};
use crate::filter::error::{FilterError, Note, nearest};
use crate::filter::facts::Needs;
use crate::filter::fields::{Field, words};
use crate::filter::host::{self, Host, Problem};
use crate::filter::lex::{Kind, Sign, Token};
use crate::filter::quantity::{Quantity, reason};
use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Range;
use wire::inet_diag::bytecode::{End, PortTest, Prefix};
use wire::inet_diag::{Family, State, States};

/// Words that begin a question and stand for no number.
const WORDS: &[&str] = &[
    "src",
    "dst",
    "sport",
    "dport",
    "dev",
    "fwmark",
    "mark",
    "cgroup",
    "autobound",
    "state",
    "exclude",
    "family",
    "netns",
    "pod",
    "container",
    "unit",
    "process",
    "cc",
    "not",
    "and",
    "or",
];

pub(super) const ONLY_EQUAL: &[Sign] = &[Sign::Equal, Sign::NotEqual];
const EVERY_SIGN: &[Sign] =
    &[Sign::Equal, Sign::NotEqual, Sign::AtLeast, Sign::AtMost, Sign::Above, Sign::Below];

/// A value and where it stands.
struct Value<'a> {
    text: Cow<'a, str>,
    span: Range<usize>,
    quoted: bool,
}

impl<'a> Parser<'a> {
    pub(super) fn predicate(
        &mut self,
        word: &'a str,
        span: Range<usize>,
    ) -> Result<Expr, FilterError> {
        let expression = self.question(word, &span)?;
        let needs = Needs::of(&expression);
        if needs != Needs::NONE {
            self.asks.push((needs, span));
        }
        Ok(expression)
    }

    fn question(&mut self, word: &'a str, span: &Range<usize>) -> Result<Expr, FilterError> {
        match word {
            "src" => self.host(End::Source, word),
            "dst" => self.host(End::Destination, word),
            "sport" => self.port(End::Source, word),
            "dport" => self.port(End::Destination, word),
            "autobound" => Ok(Expr::Test(Test::Autobound)),
            "dev" => self.device(word),
            "fwmark" | "mark" => self.mark(word),
            "cgroup" => self.cgroup(word),
            "state" => self.state(word, span),
            "exclude" | "excl" => Ok(self.state(word, span)?.negate()),
            "family" => self.family(word),
            _ => match (text_field(word), Field::from_word(word)) {
                (Some(field), _) => self.text(field, word),
                (None, Some(field)) => self.number(field, word),
                (None, None) => Err(self.unknown(word, span.clone())),
            },
        }
    }

    fn unknown(&self, word: &str, span: Range<usize>) -> FilterError {
        let lower = word.to_ascii_lowercase();
        let looks_like_host = word.parse::<IpAddr>().is_ok()
            || word.starts_with([':', '['])
            || (word.contains('/') && word.starts_with(|c: char| c.is_ascii_digit()));

        let help = if looks_like_host {
            Some(format!("write `src {word}` or `dst {word}`"))
        } else if word.bytes().all(|byte| byte.is_ascii_digit()) {
            Some(format!("write `sport = :{word}` or `dport = :{word}`"))
        } else if States::from_word(&lower).is_some() {
            Some(format!("write `state {lower}`"))
        } else {
            nearest(word, WORDS.iter().copied().chain(words()))
                .map(|word| format!("did you mean `{word}`?"))
        };

        self.error(span, format!("`{word}` is not a word of the filter language"), help)
    }

    /// The sign after a word, `=` if there is none. Only those in `allowed` make sense of it.
    pub(super) fn sign(&mut self, word: &str, allowed: &[Sign]) -> Result<Sign, FilterError> {
        let Some(Kind::Compare(sign)) = self.peek_kind() else { return Ok(Sign::Equal) };
        let sign = *sign;
        let span = self.next().map(|token| token.span).unwrap_or_default();
        if allowed.contains(&sign) {
            return Ok(sign);
        }

        Err(self.error(
            span,
            format!("`{word}` has no order"),
            Some("it takes `=` and `!=`".to_owned()),
        ))
    }

    fn value(&mut self, word: &str, what: &str) -> Result<Value<'a>, FilterError> {
        match self.next() {
            Some(Token { kind: Kind::Word(text), span }) => {
                Ok(Value { text: text.into(), span, quoted: false })
            }
            Some(Token { kind: Kind::Quoted(text), span }) => {
                Ok(Value { text, span, quoted: true })
            }
            Some(token) => {
                Err(self.error(token.span, format!("{what} is expected after `{word}`"), None))
            }
            None => Err(self.error(self.end(), format!("{what} is missing after `{word}`"), None)),
        }
    }

    fn host(&mut self, end: End, word: &str) -> Result<Expr, FilterError> {
        let sign = self.sign(word, ONLY_EQUAL)?;
        let value = self.value(word, "a host")?;
        let host =
            host::host(&value.text, self.names).map_err(|problem| self.locate(problem, &value))?;
        self.adopt(&host, &value);

        let of_prefix = |prefix: &Prefix| Expr::Test(Test::Host(end, Some(*prefix), host.port));
        let any = match host.port {
            Some(port) => Test::Port(end, PortTest::Equal, port),
            None => Test::Host(end, None, None),
        };

        // A host's name may stand for several addresses, of which any will do.
        let hosts = host.prefixes.iter().map(of_prefix).reduce(Expr::or);
        Ok(signed(sign, hosts.unwrap_or(Expr::Test(any))))
    }

    fn port(&mut self, end: End, word: &str) -> Result<Expr, FilterError> {
        let sign = self.sign(word, EVERY_SIGN)?;
        let value = self.value(word, "a port")?;
        let host =
            host::port(&value.text, self.names).map_err(|problem| self.locate(problem, &value))?;
        self.adopt(&host, &value);

        let Some(port) = host.port else {
            return match sign {
                Sign::Equal | Sign::NotEqual => {
                    Ok(signed(sign, Expr::Test(Test::Host(end, None, None))))
                }
                _ => Err(self.error(value.span, "any port has no order", None)),
            };
        };

        // The kernel's programs compare ports by `=`, `>=` and `<=`; the other signs are the opposites of these.
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

    fn adopt(&mut self, host: &Host, value: &Value<'_>) {
        self.families.extend(host.family);
        let notes = host
            .notes
            .iter()
            .map(|message| Note { span: value.span.clone(), message: message.clone() });
        self.notes.extend(notes);
    }

    /// The place of a problem within a value; the whole value where quotes or escapes stand between.
    fn locate(&self, problem: Problem, value: &Value<'_>) -> FilterError {
        let inside = !value.quoted && !problem.span.is_empty();
        let span = if inside {
            value.span.start + problem.span.start..value.span.start + problem.span.end
        } else {
            value.span.clone()
        };
        self.error(span, problem.message, problem.help)
    }

    fn device(&mut self, word: &str) -> Result<Expr, FilterError> {
        let sign = self.sign(word, ONLY_EQUAL)?;
        let value = self.value(word, "an interface")?;

        let device = match parse_u32(&value.text) {
            Some(index) if !value.quoted => Device::Index(index),
            // IFNAMSIZ is 16, the zero at the end included.
            _ if value.text.is_empty() || value.text.len() > 15 => {
                return Err(self.error(value.span, "an interface's name has 1 to 15 bytes", None));
            }
            _ => {
                let name = value.text.into_owned();
                self.devices.push((name.clone(), value.span));
                Device::Name(name)
            }
        };

        Ok(signed(sign, Expr::Test(Test::Device(device))))
    }

    fn mark(&mut self, word: &str) -> Result<Expr, FilterError> {
        let sign = self.sign(word, ONLY_EQUAL)?;
        let value = self.value(word, "a mark")?;
        let (mark, mask) = value.text.split_once('/').unwrap_or((&value.text, "0xffffffff"));
        let (Some(mark), Some(mask)) = (parse_u32(mark), parse_u32(mask)) else {
            let help = "it is a number, or a number and a mask: `0x10/0xff`".to_owned();
            return Err(self.error(
                value.span,
                format!("`{}` is not a mark", value.text),
                Some(help),
            ));
        };

        if mark & !mask != 0 {
            let message = "a mark with bits outside its mask matches no socket".to_owned();
            self.notes.push(Note { span: value.span, message });
        }

        Ok(signed(sign, Expr::Test(Test::Mark { value: mark, mask })))
    }

    fn cgroup(&mut self, word: &str) -> Result<Expr, FilterError> {
        let sign = self.sign(word, ONLY_EQUAL)?;
        let value = self.value(word, "a path")?;

        // A pattern is compared with paths, which the kernel's programs do not know: they compare ids.
        if value.text.contains('*') {
            return Ok(signed(
                sign,
                Expr::Test(Test::Text(TextField::CgroupPath, value.text.into_owned())),
            ));
        }

        let Some(id) = self.names.cgroup(&value.text) else {
            let help = "a pattern such as `/system.slice/*` is compared with paths and needs no such cgroup".to_owned();
            return Err(self.error(
                value.span,
                format!("there is no cgroup `{}`", value.text),
                Some(help),
            ));
        };
        Ok(signed(sign, Expr::Test(Test::Cgroup { path: value.text.into_owned(), id })))
    }

    fn state(&mut self, word: &str, span: &Range<usize>) -> Result<Expr, FilterError> {
        let sign = self.sign(word, ONLY_EQUAL)?;
        let (states, _) = self.state_word(span)?;
        Ok(signed(sign, Expr::Test(Test::State(states))))
    }

    /// The name of a state or a group of states.
    pub(super) fn state_word(
        &mut self,
        keyword: &Range<usize>,
    ) -> Result<(States, Range<usize>), FilterError> {
        let word = self.text.get(keyword.clone()).unwrap_or_default();
        let value = self.value(word, "a state")?;
        let printed =
            || State::KNOWN.iter().find(|state| state.printed().eq_ignore_ascii_case(&value.text));
        let states = States::from_word(&value.text).or_else(|| {
            // What `ss` prints is taken too, such as ESTAB. Its UNDEF stands for two states, and so names none.
            printed().filter(|state| state.printed() != "UNDEF").map(|state| States::of(*state))
        });

        match states {
            Some(states) => Ok((states, value.span)),
            None => {
                let known = State::KNOWN.iter().map(|state| state.word());
                let known = known.filter(|word| States::from_word(word).is_some());
                let groups = States::GROUPS.iter().map(|(name, _)| *name);
                let help = match nearest(&value.text, known.chain(groups)) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "states are established, syn-sent, syn-recv, fin-wait-1, fin-wait-2, time-wait, closed, close-wait, \
                             last-ack, listening, closing and bound-inactive; groups are all, connected, synchronized, bucket \
                             and big"
                        .to_owned(),
                };
                Err(self.error(value.span, format!("`{}` is not a state", value.text), Some(help)))
            }
        }
    }

    fn family(&mut self, word: &str) -> Result<Expr, FilterError> {
        let sign = self.sign(word, ONLY_EQUAL)?;
        let value = self.value(word, "a family")?;
        let family = match &*value.text {
            "inet" | "ipv4" | "v4" | "4" => Family::Inet,
            "inet6" | "ipv6" | "v6" | "6" => Family::Inet6,
            other => {
                let help = "the families are `inet` and `inet6`".to_owned();
                return Err(self.error(
                    value.span.clone(),
                    format!("`{other}` is not a family"),
                    Some(help),
                ));
            }
        };

        Ok(signed(sign, Expr::Test(Test::Family(family))))
    }

    fn text(&mut self, field: TextField, word: &str) -> Result<Expr, FilterError> {
        let sign = self.sign(word, ONLY_EQUAL)?;
        let value = self.value(word, "a name")?;
        Ok(signed(sign, Expr::Test(Test::Text(field, value.text.into_owned()))))
    }

    fn number(&mut self, field: Field, word: &str) -> Result<Expr, FilterError> {
        let allowed = if field.quantity() == Quantity::User { ONLY_EQUAL } else { EVERY_SIGN };
        let sign = self.sign(word, allowed)?;
        let value = self.value(word, field.quantity().example())?;

        // The name is looked up only if the text is not a number.
        let user = || self.names.user(&value.text).map(u64::from);
        let number = match field.quantity().parse(&value.text) {
            Ok(number) => number,
            Err(error) => match user().filter(|_| field.quantity() == Quantity::User) {
                Some(uid) => uid,
                None if field.quantity() == Quantity::User => {
                    return Err(self.error(
                        value.span,
                        format!("there is no user `{}`", value.text),
                        None,
                    ));
                }
                None => {
                    let help = format!("`{word}` takes {}", field.quantity().example());
                    let message = format!("`{}` {}", value.text, reason(&error));
                    return Err(self.error(value.span, message, Some(help)));
                }
            },
        };

        let test = |compare| Expr::Test(Test::Number(field, compare, number));
        Ok(match sign {
            Sign::Equal => test(Compare::Equal),
            Sign::NotEqual => test(Compare::Equal).negate(),
            Sign::AtLeast => test(Compare::AtLeast),
            Sign::AtMost => test(Compare::AtMost),
            Sign::Above => test(Compare::Above),
            Sign::Below => test(Compare::Below),
        })
    }
}

fn signed(sign: Sign, expression: Expr) -> Expr {
    if sign == Sign::NotEqual { expression.negate() } else { expression }
}

fn text_field(word: &str) -> Option<TextField> {
    Some(match word {
        "netns" => TextField::Netns,
        "pod" => TextField::Pod,
        "container" => TextField::Container,
        "unit" => TextField::Unit,
        "process" => TextField::Process,
        "cc" | "congestion" => TextField::CongestionControl,
        _ => return None,
    })
}

/// Decimal, or hexadecimal after `0x`.
fn parse_u32(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}
