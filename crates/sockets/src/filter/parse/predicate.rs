//! Parses one test: a word, an operator, and a value.

use super::{Parser, help};
use crate::Limit;
use crate::filter::ast::{Compare, Device, Expr, Test, TextField};
use crate::filter::error::{FilterError, Note, nearest};
use crate::filter::evaluate::fits;
use crate::filter::facts::Needs;
use crate::filter::fields::{Field, words};
use crate::filter::lex::{Kind, Sign, Token};
use crate::filter::quantity::{Quantity, reason};
use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Range;
use wire::inet_diag::bytecode::End;
use wire::inet_diag::{Family, State, States};

/// Words that start a test and do not name a number.
const WORDS: &[&str] = &[
    "src",
    "dst",
    "sport",
    "dport",
    "local",
    "peer",
    "host",
    "in",
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
    "namespace",
    "limited",
    "not",
    "and",
    "or",
];

/// Columns of the table that are not words of the language, and why.
pub const COLUMNS_ONLY: &[(&str, &str)] = &[
    ("out", RATE),
    ("in", RATE),
    ("retrans/s", RATE),
    ("segs_out/s", RATE),
    ("segs_in/s", RATE),
    ("drops/s", RATE),
    ("time", "every socket of a look has the same time; `age` and `idle` are words"),
    (
        "ended",
        "how a connection ended is worked out after the filter: choose among what `--closed` prints",
    ),
];
const RATE: &str = "a rate between two looks is not known to a filter: `--sort` sorts by it; `rate`, `sent`, `received`, `retrans` and `drops` are words";

/// What people type who know tcpdump, and what it is here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("port", "write `sport = :443` or `dport = :443`"),
    ("net", "write `src 10.0.0.0/8` or `dst 10.0.0.0/8`"),
    ("tcp", "leave it out, as TCP sockets are shown anyway"),
    ("udp", "write it as an option, --udp, in front of the filter"),
    ("ip6", "write it as an option, --ipv6, in front of the filter"),
    ("cong", "write `cc = bbr`"),
    ("kb", "write the unit next to the number, such as `1kB`"),
    ("mb", "write the unit next to the number, such as `1MB`"),
    ("kib", "write the unit next to the number, such as `1KiB`"),
    ("mib", "write the unit next to the number, such as `1MiB`"),
    ("ms", "write the unit next to the number, such as `1ms`"),
];

pub(super) const ONLY_EQUAL: &[Sign] = &[Sign::Equal, Sign::NotEqual];
pub(super) const EVERY_SIGN: &[Sign] =
    &[Sign::Equal, Sign::NotEqual, Sign::AtLeast, Sign::AtMost, Sign::Above, Sign::Below];

/// A value and its position.
pub(super) struct Value<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) span: Range<usize>,
    pub(super) quoted: bool,
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
            "src" | "local" => self.host(&[End::Source], word),
            "dst" | "peer" => self.host(&[End::Destination], word),
            "host" => self.host(&[End::Source, End::Destination], word),
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

        let column = COLUMNS_ONLY.iter().find(|(name, _)| *name == word);
        let help = if let Some((_, why)) = column {
            Some((*why).to_owned())
        } else if looks_like_host {
            Some(format!("write `src {word}` or `dst {word}`"))
        } else if word.bytes().all(|byte| byte.is_ascii_digit()) {
            Some(format!("write `sport = :{word}` or `dport = :{word}`"))
        } else if States::from_word(&lower).is_some() {
            Some(format!("write `state {lower}`"))
        } else if let Some((_, meant)) = ELSEWHERE.iter().find(|(typed, _)| *typed == lower) {
            Some((*meant).to_owned())
        } else {
            let near = nearest(word, WORDS.iter().copied().chain(words()))
                .map(|word| format!("did you mean `{word}`?"));
            Some(near.unwrap_or_else(|| {
                "write a field that `weir sockets --columns help` lists".to_owned()
            }))
        };

        self.error(span, format!("`{word}` is not a word of the filter language"), help)
    }

    /// Parses the operator after a word; `=` if there is none. Only those in `allowed` are accepted.
    pub(super) fn sign(&mut self, word: &str, allowed: &[Sign]) -> Result<Sign, FilterError> {
        let Some(Kind::Compare(sign)) = self.peek_kind() else { return Ok(Sign::Equal) };
        let sign = *sign;
        let span = self.next().map(|token| token.span).unwrap_or_default();
        if allowed.contains(&sign) {
            return Ok(sign);
        }

        Err(self.error(span, format!("`{word}` has no order"), Some("use `=` or `!=`".to_owned())))
    }

    pub(super) fn value(&mut self, word: &str, what: &str) -> Result<Value<'a>, FilterError> {
        match self.next() {
            Some(Token { kind: Kind::Word(text), span }) => {
                Ok(Value { text: text.into(), span, quoted: false })
            }
            Some(Token { kind: Kind::Quoted(text), span }) => {
                Ok(Value { text, span, quoted: true })
            }
            Some(token) => Err(self.error(
                token.span,
                format!("{what} is expected after `{word}`"),
                Some(format!("write {what} there")),
            )),
            None => Err(self.error(
                self.end(),
                format!("{what} is missing after `{word}`"),
                Some(format!("add {what}")),
            )),
        }
    }

    fn device(&mut self, word: &str) -> Result<Expr, FilterError> {
        let sign = self.sign(word, ONLY_EQUAL)?;
        let value = self.value(word, "an interface")?;

        let device = match parse_u32(&value.text) {
            Some(index) if !value.quoted => Device::Index(index),
            // IFNAMSIZ is 16, including the terminating zero.
            _ if value.text.is_empty() || value.text.len() > 15 => {
                return Err(self.error(
                    value.span,
                    "an interface's name has 1 to 15 bytes",
                    Some("write one that `ip link` lists".to_owned()),
                ));
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
            let help = "write a number, or a number and a mask, such as `0x10/0xff`".to_owned();
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

        // A pattern is matched against paths, which the kernel's programs do not know: they compare ids.
        if value.text.contains('*') {
            return Ok(signed(
                sign,
                Expr::Test(Test::Text(TextField::CgroupPath, value.text.into_owned())),
            ));
        }

        let Some(id) = self.names.cgroup(&value.text) else {
            let help = "write a pattern such as `/system.slice/*`, which is compared with paths"
                .to_owned();
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

    /// Parses the name of a state or of a group of states.
    pub(super) fn state_word(
        &mut self,
        keyword: &Range<usize>,
    ) -> Result<(States, Range<usize>), FilterError> {
        let word = self.text.get(keyword.clone()).unwrap_or_default();
        let value = self.value(word, "a state")?;
        let printed =
            || State::KNOWN.iter().find(|state| state.printed().eq_ignore_ascii_case(&value.text));
        let states = States::from_word(&value.text).or_else(|| {
            // What `ss` prints is accepted too, such as ESTAB. Its UNDEF stands for two states and so is not accepted.
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
                    None => "write one of established, syn-sent, syn-recv, fin-wait-1, fin-wait-2, time-wait, closed, close-wait, \
                             last-ack, listening, closing and bound-inactive, or of all, connected, synchronized, bucket \
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
                let help = "write `inet` or `inet6`".to_owned();
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
        let is_limit = |word: &&str| fits(&value.text, word);
        if field == TextField::Limited && !Limit::WORDS.iter().any(is_limit) {
            let help = Some(format!("write one of {}", Limit::WORDS.join(", ")));
            let message = format!("`{}` is not a limit", value.text);
            return Err(self.error(value.span, message, help));
        }
        Ok(signed(sign, Expr::Test(Test::Text(field, value.text.into_owned()))))
    }

    fn number(&mut self, field: Field, word: &str) -> Result<Expr, FilterError> {
        let allowed = if field.quantity() == Quantity::User { ONLY_EQUAL } else { EVERY_SIGN };
        let sign = self.sign(word, allowed)?;
        let value = self.value(word, field.quantity().example())?;

        // The name is resolved only if the text is not a number.
        let user = || self.names.user(&value.text).map(u64::from);
        let number = match field.quantity().parse(&value.text) {
            Ok(number) => number,
            Err(error) => match user().filter(|_| field.quantity() == Quantity::User) {
                Some(uid) => uid,
                None if field.quantity() == Quantity::User => {
                    return Err(self.error(
                        value.span,
                        format!("there is no user `{}`", value.text),
                        help("write a name of /etc/passwd, or a number"),
                    ));
                }
                None => {
                    let help = format!("write {}", field.quantity().example());
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

pub(super) fn signed(sign: Sign, expression: Expr) -> Expr {
    if sign == Sign::NotEqual { expression.negate() } else { expression }
}

fn text_field(word: &str) -> Option<TextField> {
    Some(match word {
        "netns" | "namespace" => TextField::Netns,
        "pod" => TextField::Pod,
        "container" => TextField::Container,
        "unit" => TextField::Unit,
        "process" => TextField::Process,
        "cc" | "congestion" => TextField::CongestionControl,
        "limited" => TextField::Limited,
        _ => return None,
    })
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
fn parse_u32(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}
