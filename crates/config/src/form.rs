//! The forms of values: how each is described, read and shown.

use crate::document::{Entry, Item, TRUTH_VALUE, Value};
use crate::errors::nearest;
use crate::keys::Key;
use crate::reader::Reader;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use text::units::{self, UnitError};

/// What a key's value looks like.
///
/// A form is a value, not a type: it holds the range and the wording, and one type, such as `Duration`, has many forms. The
/// table of keys, the reader and `weir config show` need nothing else of a key.
pub(crate) trait Form {
    type Value;

    /// The text for the documentation.
    fn describe(&self) -> String;

    /// Reads the value. `None` if it is wrong, which is reported.
    fn read(&self, slot: &Slot<'_>) -> Option<Self::Value>;

    /// The value for TOML and JSON; null if it is not set.
    fn show(&self, value: &Self::Value) -> Json;

    /// An example value, for the message about a missing key.
    fn example(&self) -> &'static str {
        "\"…\""
    }
}

/// The form of a field of type `T`, checked by the compiler.
pub(crate) fn of<T, F: Form<Value = T>>(form: F) -> F {
    form
}

/// The form of a field that may have no value.
pub(crate) fn optional<T: IntoIterator, F: Form<Value = T::Item>>(form: F) -> F {
    form
}

/// A value at the place where it was written.
pub(crate) struct Slot<'a> {
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) key: &'a Key,
    pub(crate) line: Option<usize>,
    pub(crate) value: &'a Value,
}

impl Slot<'_> {
    pub(crate) fn error(&self, message: impl Into<String>) {
        self.reader.error_at(self.line, self.key, message);
    }

    /// Parses a text value; the error of `parse` becomes the message.
    pub(crate) fn parse<T, E: ToString>(&self, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        let form = || (self.key.form)();
        let text =
            self.value.text().map_err(|what| format!("{what}. Fix: write {}, in quotes", form()));
        let value = text.and_then(|text| {
            let wrong = |error: E| {
                let message = format!("\"{}\": {}", text.escape_debug(), error.to_string());
                without_user(text, message)
            };
            parse(text).map_err(wrong)
        });
        value.map_err(|message| self.error(message)).ok()
    }

    /// Parses a list of texts, separated by commas on the command line. Reports wrong items and leaves them out.
    pub(crate) fn list<T>(&self, parse: impl Fn(&str) -> Result<T, String>) -> Option<Vec<T>> {
        // Each item keeps its line, so that the message points at the wrong item of a long list.
        let items = match self.value {
            Value::List(items) => items.clone(),
            Value::Bare(text) => text
                .split(',')
                .filter(|part| !part.is_empty())
                .map(|part| Item { line: self.line, value: Value::Bare(part.to_owned()) })
                .collect(),
            other => {
                let (what, name) = (other.describe(), self.key.name);
                self.error(format!("{what} is not a list. Fix: write {name} = [\"…\"]"));
                return None;
            }
        };

        let mut values = Vec::with_capacity(items.len());
        for Item { line, value } in &items {
            let text = value.text().map_err(|what| format!("{what}. Fix: write it in quotes"));
            match text.and_then(&parse) {
                Ok(value) => values.push(value),
                Err(message) => self.reader.error_at(*line, self.key, message),
            }
        }
        Some(values)
    }

    /// Whether a quantity has a unit; reports it if not. `hint` says what else could be written.
    fn has_unit(&self, unit: &str, hint: &str) -> bool {
        let number = match self.value {
            Value::Integer(number) => number.to_string(),
            Value::Other { what: "the number", text } => text.clone(),
            _ => return true,
        };
        self.error(format!(
            "the number {number} has no unit. Fix: write \"{number}{unit}\" {hint}"
        ));
        false
    }
}

/// Removes what stands before the `@` of an address from a message: it may be a password, and messages are logged.
fn without_user(address: &str, message: String) -> String {
    let rest = address.split_once("//").map_or(address, |(_, rest)| rest);
    match rest.rsplit_once('@') {
        Some((user, _)) if !user.is_empty() => {
            message.replace(&user.escape_debug().to_string(), "…").replace(user, "…")
        }
        _ => message,
    }
}

/// A list as shown; null if it is empty.
pub(crate) fn show_list<T: ToString>(values: &[T]) -> Json {
    if values.is_empty() {
        return Json::Null;
    }
    values.iter().map(ToString::to_string).collect()
}

/// Integer types of configuration fields.
pub(crate) trait Number: Copy {
    /// `None` if it does not fit.
    fn of(number: u64) -> Option<Self>;
    fn number(self) -> u64;
}

macro_rules! number {
    ($($Type:ty),+) => {$(
        impl Number for $Type {
            fn of(number: u64) -> Option<$Type> {
                <$Type>::try_from(number).ok()
            }

            fn number(self) -> u64 {
                self as u64
            }
        }
    )+};
}

number!(u8, u16, u32, u64, usize);

impl Number for NonZeroU32 {
    fn of(number: u64) -> Option<NonZeroU32> {
        u32::try_from(number).ok().and_then(NonZeroU32::new)
    }

    fn number(self) -> u64 {
        self.get().into()
    }
}

/// A size with its unit, from a minimum to a maximum in bytes.
pub(crate) struct Size<T>(u64, u64, PhantomData<T>);

/// A size from `min` to `max` bytes.
pub(crate) const fn size<T>(min: u64, max: u64) -> Size<T> {
    Size(min, max, PhantomData)
}

impl<T: Number> Form for Size<T> {
    type Value = T;

    fn describe(&self) -> String {
        format!("size, {} to {}", units::display_size(self.0), units::display_size(self.1))
    }

    fn read(&self, slot: &Slot<'_>) -> Option<T> {
        if !slot.has_unit("B", "for bytes, or a size such as \"8MiB\"") {
            return None;
        }
        let bytes = slot.parse(|text| {
            let bytes = units::parse_size(text).map_err(|error| error.to_string())?;
            in_range(bytes, self.0, self.1, units::display_size)
        })?;
        T::of(bytes)
    }

    fn show(&self, value: &T) -> Json {
        units::display_size(value.number()).into()
    }
}

/// A duration with its unit, from a minimum to a maximum.
pub(crate) struct Span(pub(crate) Duration, pub(crate) Duration);

impl Span {
    /// Parses a duration and checks its range.
    pub(crate) fn parse(&self, text: &str) -> Result<Duration, String> {
        let duration = units::parse_duration(text).map_err(|error| error.to_string())?;
        in_range(duration, self.0, self.1, units::display_duration)
    }
}

impl Form for Span {
    type Value = Duration;

    fn describe(&self) -> String {
        let shown = units::display_duration;
        format!("duration, {} to {}", shown(self.0), shown(self.1))
    }

    fn read(&self, slot: &Slot<'_>) -> Option<Duration> {
        // A bare number has its own hint: the usual one would say to put it in quotes.
        let has_unit = slot.has_unit("s", "for seconds, or a duration such as \"250ms\"");
        if has_unit { slot.parse(|text| self.parse(text)) } else { None }
    }

    fn show(&self, value: &Duration) -> Json {
        units::display_duration(*value).into()
    }
}

/// A value of another form, or the word `off` for `None`.
pub(crate) struct OrOff<F>(pub(crate) F);

impl<F: Form> Form for OrOff<F> {
    type Value = Option<F::Value>;

    fn describe(&self) -> String {
        format!("{}, or `off`", self.0.describe())
    }

    fn read(&self, slot: &Slot<'_>) -> Option<Option<F::Value>> {
        if slot.value.text() == Ok("off") { Some(None) } else { self.0.read(slot).map(Some) }
    }

    fn show(&self, value: &Option<F::Value>) -> Json {
        value.as_ref().map_or_else(|| "off".into(), |value| self.0.show(value))
    }
}

/// A value of another form, or the word `auto` for `None`.
pub(crate) struct OrAuto<F>(pub(crate) F);

impl<F: Form> Form for OrAuto<F> {
    type Value = Option<F::Value>;

    fn describe(&self) -> String {
        format!("{}, or `auto`", self.0.describe())
    }

    fn read(&self, slot: &Slot<'_>) -> Option<Option<F::Value>> {
        if slot.value.text() == Ok("auto") { Some(None) } else { self.0.read(slot).map(Some) }
    }

    fn show(&self, value: &Option<F::Value>) -> Json {
        value.as_ref().map_or_else(|| "auto".into(), |value| self.0.show(value))
    }
}

/// A whole number, from a minimum to a maximum.
pub(crate) struct Whole<T> {
    what: &'static str,
    parse: fn(&str) -> Result<u64, UnitError>,
    min: u64,
    max: u64,
    of: PhantomData<T>,
}

/// A whole number from `min` to `max`.
pub(crate) const fn whole<T>(min: u64, max: u64) -> Whole<T> {
    Whole { what: "whole number", parse: units::parse_count, min, max, of: PhantomData }
}

/// How many in a second, from `min` to `max`.
pub(crate) const fn per_sec<T>(min: u64, max: u64) -> Whole<T> {
    Whole { what: "number per second", parse: units::parse_per_sec, min, max, of: PhantomData }
}

impl<T: Number> Form for Whole<T> {
    type Value = T;

    fn describe(&self) -> String {
        format!("{}, {} to {}", self.what, self.min, self.max)
    }

    fn read(&self, slot: &Slot<'_>) -> Option<T> {
        let (min, max) = (self.min, self.max);
        let number = match slot.value {
            Value::Integer(number) => u64::try_from(*number).map_err(|_| UnitError::TooLarge),
            Value::Bare(text) | Value::Text(text) => (self.parse)(text),
            _ => Err(UnitError::NoNumber("1000")),
        };

        let shown = match slot.value {
            Value::Integer(number) => number.to_string(),
            other => other.describe(),
        };
        match number {
            Ok(number) if (min..=max).contains(&number) => return T::of(number),
            Ok(_) | Err(UnitError::TooLarge) => slot
                .error(format!("{shown} is out of range. Fix: write a number from {min} to {max}")),
            Err(error @ (UnitError::UnknownUnit { .. } | UnitError::Ambiguous { .. })) => {
                slot.error(format!("{shown}: {error}"));
            }
            Err(_) => slot.error(format!(
                "{shown} is not a whole number. Fix: write a number from {min} to {max}"
            )),
        }
        None
    }

    fn show(&self, value: &T) -> Json {
        value.number().into()
    }
}

/// One of a set of words, each with the value it stands for.
pub(crate) struct Choice<T: 'static>(pub(crate) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Choice<T> {
    /// The value of a word, or a message that names the nearest word.
    pub(crate) fn parse(&self, text: &str) -> Result<T, String> {
        let words = || self.0.iter().map(|(word, _)| *word);
        let found = self.0.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let all = words().collect::<Vec<_>>().join(", ");
            match nearest(text, words()) {
                Some(word) => format!("it is not one of {all}. Fix: did you mean {word}?"),
                None => format!("it is none of these words. Fix: write one of {all}"),
            }
        })
    }

    /// The word for a value.
    pub(crate) fn word(&self, value: T) -> &'static str {
        self.0.iter().find(|(_, of)| *of == value).map_or("", |(word, _)| word)
    }
}

impl<T: Copy + PartialEq> Form for Choice<T> {
    type Value = T;

    fn describe(&self) -> String {
        self.0.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    }

    fn read(&self, slot: &Slot<'_>) -> Option<T> {
        slot.parse(|text| self.parse(text))
    }

    fn show(&self, value: &T) -> Json {
        self.word(*value).into()
    }
}

/// `true` or `false`.
pub(crate) struct Bool;

impl Form for Bool {
    type Value = bool;

    fn describe(&self) -> String {
        "`true` or `false`".to_owned()
    }

    fn read(&self, slot: &Slot<'_>) -> Option<bool> {
        let value = match slot.value {
            Value::Bare(text) | Value::Other { what: TRUTH_VALUE, text } => text.parse().ok(),
            _ => None,
        };

        if value.is_none() {
            let hint = match slot.value {
                Value::Text(text) if text.parse::<bool>().is_ok() => "write it without quotes",
                _ => "write true or false",
            };
            let what = slot.value.describe();
            slot.error(format!("{what} is neither true nor false. Fix: {hint}"));
        }
        value
    }

    fn show(&self, value: &bool) -> Json {
        (*value).into()
    }
}

/// Text with a described form, and the functions that parse and show it.
pub(crate) struct Text<T> {
    form: &'static str,
    parse: fn(&str) -> Result<T, String>,
    show: fn(&T) -> String,
}

/// Text that `parse` turns into a value.
pub(crate) const fn text<T: Display>(
    form: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> Text<T> {
    Text { form, parse, show: T::to_string }
}

/// A path that `parse` checks.
pub(crate) const fn path(
    form: &'static str,
    parse: fn(&str) -> Result<PathBuf, String>,
) -> Text<PathBuf> {
    Text { form, parse, show: |path| path.display().to_string() }
}

impl<T> Form for Text<T> {
    type Value = T;

    fn describe(&self) -> String {
        self.form.to_owned()
    }

    fn read(&self, slot: &Slot<'_>) -> Option<T> {
        slot.parse(self.parse)
    }

    fn show(&self, value: &T) -> Json {
        (self.show)(value).into()
    }
}

/// An address that selects one of several kinds, and reads the keys of that kind.
pub(crate) struct Kind<T> {
    pub(crate) form: fn() -> String,
    pub(crate) read: fn(&Slot<'_>) -> Option<T>,
}

impl<T: Display> Form for Kind<T> {
    type Value = T;

    fn describe(&self) -> String {
        (self.form)()
    }

    fn read(&self, slot: &Slot<'_>) -> Option<T> {
        (self.read)(slot)
    }

    fn show(&self, value: &T) -> Json {
        value.to_string().into()
    }
}

/// Parses a type from text.
pub(crate) fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// A list of items of the described kind.
pub(crate) struct List<T> {
    pub(crate) of: &'static str,
    pub(crate) parse: fn(&str) -> Result<T, String>,
}

impl<T: Display> Form for List<T> {
    type Value = Vec<T>;

    fn describe(&self) -> String {
        format!("list of {}", self.of)
    }

    fn read(&self, slot: &Slot<'_>) -> Option<Vec<T>> {
        slot.list(self.parse)
    }

    fn show(&self, value: &Vec<T>) -> Json {
        show_list(value)
    }

    fn example(&self) -> &'static str {
        "[\"…\"]"
    }
}

/// A list of addresses and prefixes.
pub(crate) const PREFIXES: List<relay::Prefix> =
    List { of: "addresses and prefixes", parse: parsed };

/// Names with values, of which `parse` reads each pair.
pub(crate) struct Pairs<T> {
    pub(crate) of: &'static str,
    pub(crate) example: &'static str,
    pub(crate) parse: fn(&str, &str) -> Result<T, String>,
}

/// Names with text values, each pair checked by the function.
pub(crate) const fn pairs(parse: fn(&str, &str) -> Result<String, String>) -> Pairs<String> {
    Pairs { of: "names with values in braces", example: "site = \"fra1\"", parse }
}

impl<T: Display> Form for Pairs<T> {
    type Value = BTreeMap<String, T>;

    fn describe(&self) -> String {
        self.of.to_owned()
    }

    fn read(&self, slot: &Slot<'_>) -> Option<BTreeMap<String, T>> {
        let Value::Table(table) = slot.value else {
            let (what, name, example) = (slot.value.describe(), slot.key.name, self.example);
            slot.error(format!(
                "{what} is not a table of names and values. Fix: write {name} = {{ {example} }}"
            ));
            return None;
        };

        let mut pairs = BTreeMap::new();
        for Entry { line, key, item, .. } in &table.entries {
            let text = item.value.text();
            let text = text.map_err(|what| format!("{key}: {what}. Fix: write it in quotes"));
            match text.and_then(|text| (self.parse)(key, text)) {
                Ok(value) => drop(pairs.insert(key.clone(), value)),
                Err(message) => slot.reader.error_at(*line, slot.key, message),
            }
        }
        Some(pairs)
    }

    fn show(&self, value: &BTreeMap<String, T>) -> Json {
        let shown = |(name, value): (&String, &T)| (name.clone(), value.to_string().into());
        if value.is_empty() { Json::Null } else { Json::Object(value.iter().map(shown).collect()) }
    }
}

fn in_range<T: PartialOrd + Copy>(
    value: T,
    min: T,
    max: T,
    shown: impl Fn(T) -> String,
) -> Result<T, String> {
    if value < min {
        return Err(format!("it is too little. Fix: write {} or more", shown(min)));
    }
    if value > max {
        return Err(format!("it is too much. Fix: write {} or less", shown(max)));
    }
    Ok(value)
}
