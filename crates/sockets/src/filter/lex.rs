//! Splits a filter into words and operators.

use super::error::FilterError;
use std::borrow::Cow;
use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    /// Its bytes in the filter.
    pub(super) span: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Open,
    Close,
    And,
    Or,
    Not,
    Compare(Sign),
    Word(&'a str),
    /// A word in quotes, or with an escape: never one of the language's own words.
    Quoted(Cow<'a, str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Equal,
    NotEqual,
    AtLeast,
    AtMost,
    Above,
    Below,
}

/// Longest first.
const SIGNS: &[(&str, Kind<'static>)] = &[
    ("&&", Kind::And),
    ("||", Kind::Or),
    ("==", Kind::Compare(Sign::Equal)),
    ("!=", Kind::Compare(Sign::NotEqual)),
    (">=", Kind::Compare(Sign::AtLeast)),
    ("<=", Kind::Compare(Sign::AtMost)),
    ("&", Kind::And),
    ("|", Kind::Or),
    ("!", Kind::Not),
    ("=", Kind::Compare(Sign::Equal)),
    (">", Kind::Compare(Sign::Above)),
    ("<", Kind::Compare(Sign::Below)),
    ("(", Kind::Open),
    (")", Kind::Close),
];

const WORDS: &[(&str, Kind<'static>)] = &[
    ("and", Kind::And),
    ("or", Kind::Or),
    ("not", Kind::Not),
    ("eq", Kind::Compare(Sign::Equal)),
    ("ne", Kind::Compare(Sign::NotEqual)),
    ("neq", Kind::Compare(Sign::NotEqual)),
    ("ge", Kind::Compare(Sign::AtLeast)),
    ("geq", Kind::Compare(Sign::AtLeast)),
    ("le", Kind::Compare(Sign::AtMost)),
    ("leq", Kind::Compare(Sign::AtMost)),
    ("gt", Kind::Compare(Sign::Above)),
    ("lt", Kind::Compare(Sign::Below)),
];

/// Whether a character ends a word.
pub(super) fn is_special(c: char) -> bool {
    c.is_whitespace() || "()<>=!&|\"'".contains(c)
}

/// Whether a word must be quoted to be a value.
pub(super) fn is_reserved(word: &str) -> bool {
    WORDS.iter().any(|(reserved, _)| *reserved == word)
}

pub(super) fn lex(text: &str) -> Result<Vec<Token<'_>>, FilterError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }

        let token = next(text, at)?;
        at = token.span.end;
        tokens.push(token);
    }

    Ok(tokens)
}

/// The token that starts at `at`, where there is a character other than white space.
fn next(text: &str, at: usize) -> Result<Token<'_>, FilterError> {
    let rest = text.get(at..).unwrap_or_default();
    if let Some((sign, kind)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
        return Ok(Token { kind: kind.clone(), span: at..at + sign.len() });
    }
    if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        return quoted(text, at, quote);
    }

    let (word, len) = bare(rest);
    let span = at..at + len;
    let kind = match word {
        Cow::Owned(word) => Kind::Quoted(Cow::Owned(word)),
        Cow::Borrowed(word) => {
            let reserved = WORDS.iter().find(|(name, _)| *name == word);
            reserved.map_or(Kind::Word(word), |(_, kind)| kind.clone())
        }
    };

    Ok(Token { kind, span })
}

/// A word without quotes. A backslash escapes a special character, another backslash or a quote. Before anything else it is
/// literal, as in the `\x2d` of a systemd unit.
fn bare(rest: &str) -> (Cow<'_, str>, usize) {
    let mut unescaped = String::new();
    let mut escaped = false;
    let mut characters = rest.char_indices().peekable();
    let mut end = rest.len();

    while let Some((at, c)) = characters.next() {
        let following = characters.peek().map(|&(_, next)| next);
        match following.filter(|&next| c == '\\' && (is_special(next) || next == '\\')) {
            Some(next) => {
                unescaped.push(next);
                escaped = true;
                characters.next();
            }
            None if is_special(c) => {
                end = at;
                break;
            }
            None => unescaped.push(c),
        }
    }

    // A word without escapes is borrowed, and may be one of the language's own.
    if escaped {
        (unescaped.into(), end)
    } else {
        (rest.get(..end).unwrap_or_default().into(), end)
    }
}

/// In quotes, only the quote itself and the backslash can be escaped.
fn quoted(text: &str, start: usize, quote: char) -> Result<Token<'_>, FilterError> {
    let rest = text.get(start + 1..).unwrap_or_default();
    let mut value = String::new();
    let mut characters = rest.char_indices().peekable();

    while let Some((at, c)) = characters.next() {
        if c == quote {
            return Ok(Token { kind: Kind::Quoted(value.into()), span: start..start + at + 2 });
        }

        let escaped =
            characters.peek().filter(|(_, next)| c == '\\' && (*next == quote || *next == '\\'));
        match escaped.copied() {
            Some((_, next)) => {
                value.push(next);
                characters.next();
            }
            None => value.push(c),
        }
    }

    Err(FilterError::new(
        text,
        start..text.len(),
        format!("the {quote} is never closed"),
        Some(format!("add a {quote} at its end")),
    ))
}
