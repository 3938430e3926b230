//! The grammar.
//!
//! ```text
//! filter = { ("state" | "exclude") STATE } [ [ "and" | "or" ] list ]
//! list   = unit { ( "and" | "or" | nothing ) unit }        from left to right; `and` does not bind tighter
//! unit   = "not" unit | "(" list ")" | WORD [ SIGN ] VALUE | WORD [ "not" ] "in" VALUE { "," VALUE } | "autobound"
//! ```
//!
//! `and` and `or` have the same precedence and associate from left to right. So they do in `ss`, whatever ss(8) says
//! (misc/ssfilter.y, `exprlist`).

mod ends;
mod predicate;

use super::ast::{Expr, Test};
use super::error::{FilterError, Note};
use super::facts::Needs;
use super::lex::{Kind, Sign, Token, lex};
use super::names::Names;
use super::{Filter, MAX_NESTING, MAX_TEXT_BYTES};
pub use predicate::COLUMNS_ONLY;
use predicate::ONLY_EQUAL;
use std::ops::Range;
use wire::inet_diag::{Family, States};

/// What helps, as errors have it.
fn help(text: &str) -> Option<String> {
    Some(text.to_owned())
}

pub(super) fn parse(text: &str, names: &dyn Names) -> Result<Filter, FilterError> {
    if text.len() > MAX_TEXT_BYTES {
        let message = format!("the filter is longer than {MAX_TEXT_BYTES} bytes");
        return Err(FilterError::new(
            text,
            MAX_TEXT_BYTES..MAX_TEXT_BYTES,
            message,
            help("write less"),
        ));
    }

    let mut parser = Parser::new(text, lex(text)?, names);
    let (states, expression) = parser.filter()?;
    if let Some(token) = parser.next() {
        return Err(parser.error(token.span, "this ) was never opened", help("remove it")));
    }

    let Parser { notes, devices, asks, families, .. } = parser;
    let expression = with_family(expression, &families);
    Ok(Filter { text: text.to_owned(), states, expression, notes, devices, asks })
}

/// `inet:` and `inet6:` apply to the whole filter, as in `ss`. Both together limit nothing.
pub(super) fn with_family(expression: Option<Expr>, families: &[Family]) -> Option<Expr> {
    let limit = match families {
        [] => return expression,
        [first, others @ ..] if others.iter().all(|family| family == first) => *first,
        _ => return expression,
    };

    let limit = Expr::Test(Test::Family(limit));
    Some(match expression {
        Some(expression) if !expression.conjuncts().contains(&limit) => limit.and(expression),
        Some(expression) => expression,
        None => limit,
    })
}

struct Parser<'a> {
    text: &'a str,
    tokens: std::iter::Peekable<std::vec::IntoIter<Token<'a>>>,
    names: &'a dyn Names,
    notes: Vec<Note>,
    devices: Vec<(String, Range<usize>)>,
    /// What words need beyond the fixed part of a message.
    asks: Vec<(Needs, Range<usize>)>,
    families: Vec<Family>,
    /// Number of open parentheses and `not`s.
    open: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    And,
    Or,
}

/// The meaning of the words `state` and `exclude` at the start of a filter.
struct Header {
    states: States,
    expression: Expr,
    span: Range<usize>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, tokens: Vec<Token<'a>>, names: &'a dyn Names) -> Self {
        let tokens = tokens.into_iter().peekable();
        Self {
            text,
            tokens,
            names,
            notes: Vec::new(),
            devices: Vec::new(),
            asks: Vec::new(),
            families: Vec::new(),
            open: 0,
        }
    }

    fn peek(&mut self) -> Option<&Token<'a>> {
        self.tokens.peek()
    }

    fn peek_kind(&mut self) -> Option<&Kind<'a>> {
        self.tokens.peek().map(|token| &token.kind)
    }

    fn next(&mut self) -> Option<Token<'a>> {
        self.tokens.next()
    }

    fn error(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        help: Option<String>,
    ) -> FilterError {
        FilterError::new(self.text, span, message, help)
    }

    fn end(&self) -> Range<usize> {
        let end = self.text.trim_end().len();
        end..end
    }

    fn filter(&mut self) -> Result<(Option<States>, Option<Expr>), FilterError> {
        let header = self.header()?;
        let Some(header) = header else {
            let empty = self.peek().is_none();
            return Ok((None, if empty { None } else { Some(self.list(None)?) }));
        };

        match self.peek_kind() {
            // The states are one side of an `or`, so they do not apply to the whole filter.
            Some(Kind::Or) => {
                let all = self.list(Some(header.expression))?;
                Ok((None, Some(all)))
            }
            following => {
                let joined = following == Some(&Kind::And);
                let ends = matches!(following, None | Some(Kind::Close));
                if joined {
                    self.next();
                }
                if header.states.is_empty() {
                    return Err(self.error(
                        header.span,
                        "no state is left",
                        help("write `state all`, or remove an `exclude`"),
                    ));
                }
                let expression = if ends { None } else { Some(self.list(None)?) };
                Ok((Some(header.states), expression))
            }
        }
    }

    /// Parses any number of `state X` and `exclude X`. A first `state` starts from no states, a first `exclude` from all.
    fn header(&mut self) -> Result<Option<Header>, FilterError> {
        let mut header: Option<Header> = None;
        while let Some(Kind::Word(word @ ("state" | "exclude" | "excl"))) = self.peek_kind() {
            let includes = *word == "state";
            let keyword = self.next().map(|token| token.span).unwrap_or_default();
            // `state != x` removes, and `exclude != x` adds.
            let adds = includes == (self.sign("state", ONLY_EQUAL)? == Sign::Equal);
            let (states, span) = self.state_word(&keyword)?;
            let named = Expr::Test(Test::State(states));

            let known = header.take();
            let start = known.as_ref().map_or(keyword.start, |known| known.span.start);
            let (states, expression) = match (known, adds) {
                (None, true) => (states, named),
                (None, false) => (!states, named.negate()),
                (Some(known), true) => (known.states | states, known.expression.or(named)),
                (Some(known), false) => {
                    (known.states - states, known.expression.and(named.negate()))
                }
            };

            self.limit_depth(&expression, &span)?;
            header = Some(Header { states, expression, span: start..span.end });
        }
        Ok(header)
    }

    /// Parses units joined by `and`, `or` or nothing. `first` is a unit that was already read and is followed by an operator.
    fn list(&mut self, first: Option<Expr>) -> Result<Expr, FilterError> {
        let mut joins: Vec<(Join, Range<usize>)> = Vec::new();
        let mut list = match first {
            Some(first) => first,
            None => self.unit()?,
        };

        loop {
            let join = match self.peek() {
                None | Some(Token { kind: Kind::Close, .. }) => break,
                Some(Token { kind: Kind::And, span }) => (Join::And, span.clone()),
                Some(Token { kind: Kind::Or, span }) => (Join::Or, span.clone()),
                // Nothing between two units means `and`.
                Some(Token { span, .. }) => (Join::And, span.start..span.start),
            };
            if !join.1.is_empty() {
                self.next();
            }
            let unit = self.unit()?;

            // One more test in the same list makes it no deeper, and measuring a long list each time would be quadratic.
            let may_deepen =
                !matches!(unit, Expr::Test(_)) || joins.last().is_none_or(|last| last.0 != join.0);
            list = if join.0 == Join::And { list.and(unit) } else { list.or(unit) };
            if may_deepen {
                self.limit_depth(&list, &join.1)?;
            }

            joins.push(join);
        }

        self.note_order(&joins);
        Ok(list)
    }

    /// Adds a note if the order of `and` and `or` differs from the usual precedence.
    fn note_order(&mut self, joins: &[(Join, Range<usize>)]) {
        let first_or = joins.iter().position(|(join, _)| *join == Join::Or);
        let later =
            first_or.and_then(|at| joins.iter().skip(at).find(|(join, _)| *join == Join::And));
        if let Some((_, span)) = later {
            self.notes.push(Note {
                span: span.clone(),
                message: "`and` does not bind tighter than `or`: both are taken from left to right, as ss does. \
                          Parentheses make it clear"
                    .to_owned(),
            });
        }
    }

    fn unit(&mut self) -> Result<Expr, FilterError> {
        let Some(token) = self.next() else {
            return Err(self.error(
                self.end(),
                "something to test is missing here",
                help("add a test, such as `dport = :443`"),
            ));
        };
        // The parser recurses for each level, and the text may come from a stranger (`GET /sockets?filter=…`).
        if self.open >= MAX_NESTING {
            return Err(self.error(
                token.span,
                format!("nested deeper than {MAX_NESTING}"),
                help("leave parentheses out"),
            ));
        }

        match token.kind {
            Kind::Not => {
                self.open += 1;
                let inner = self.unit()?;
                self.open -= 1;
                let expression = inner.negate();
                self.limit_depth(&expression, &token.span)?;
                Ok(expression)
            }
            Kind::Open => self.parenthesized(&token.span),
            Kind::Word(word) => self.predicate(word, token.span),
            Kind::Close | Kind::And | Kind::Or => {
                let found = self.text.get(token.span.clone()).unwrap_or_default();
                Err(self.error(
                    token.span.clone(),
                    format!("something to test is missing before `{found}`"),
                    help("add a test, such as `dport = :443`"),
                ))
            }
            Kind::Compare(_) => Err(self.error(
                token.span,
                "there is nothing to compare before this",
                help("write a word before it, such as `dport`"),
            )),
            Kind::Quoted(_) => Err(self.error(
                token.span,
                "a word of the language is expected, not a quoted one",
                help("remove the quotes"),
            )),
        }
    }

    fn parenthesized(&mut self, open: &Range<usize>) -> Result<Expr, FilterError> {
        if self.peek_kind() == Some(&Kind::Close) {
            let end = self.peek().map_or(open.end, |token| token.span.end);
            return Err(self.error(
                open.start..end,
                "there is nothing between the parentheses",
                help("remove them"),
            ));
        }

        self.open += 1;
        let inner = self.list(None)?;
        self.open -= 1;
        match self.next() {
            Some(Token { kind: Kind::Close, .. }) => Ok(inner),
            _ => Err(self.error(open.clone(), "this ( is never closed", help("add a `)`"))),
        }
    }

    fn limit_depth(&self, expression: &Expr, span: &Range<usize>) -> Result<(), FilterError> {
        if expression.depth() <= MAX_NESTING {
            return Ok(());
        }
        let help = "use parentheses: each change between `and` and `or` without them is a level of its own";
        Err(self.error(
            span.clone(),
            format!("nested deeper than {MAX_NESTING}"),
            Some(help.to_owned()),
        ))
    }
}
