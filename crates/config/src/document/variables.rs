//! Environment variables in a document: `${NAME}`, `${NAME:-default}`, and `$$` for a dollar sign.

use super::{Item, Table, Value, below};
use crate::reader::Report;
use serde_json::{Map, Value as Json, json};

/// Looks up an environment variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The part of a value that came from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Borrowed {
    /// The value as written, with the names of the variables.
    pub(crate) written: Json,
    /// The origin of each part, in words.
    pub(crate) origins: Vec<String>,
}

impl Table {
    /// Replaces variables in values, not in the names of keys. What cannot be replaced is reported.
    pub(crate) fn resolve(&mut self, path: &str, environment: Environment<'_>, report: &Report) {
        for entry in &mut self.entries {
            let path = below(path, &entry.key);
            let written = entry.item.value.as_json();
            let mut origins = Vec::new();
            entry.item.resolve(&path, environment, report, &mut origins);
            if !origins.is_empty() {
                entry.borrowed = Some(Borrowed { written, origins });
            }
        }
    }
}

impl Item {
    fn resolve(
        &mut self,
        path: &str,
        environment: Environment<'_>,
        report: &Report,
        origins: &mut Vec<String>,
    ) {
        match &mut self.value {
            Value::Text(text) => match resolved(text, environment, origins) {
                Ok(value) => self.value = value,
                Err(message) => report.error(self.line, path, message),
            },
            Value::List(items) => {
                for item in items {
                    item.resolve(path, environment, report, origins);
                }
            }
            Value::Table(table) => {
                table.resolve(path, environment, report);
                let inner = table.entries.iter().filter_map(|entry| entry.borrowed.as_ref());
                origins.extend(inner.flat_map(|borrowed| borrowed.origins.iter().cloned()));
            }
            Value::Bare(_) | Value::Integer(_) | Value::Other { .. } => {}
        }
    }
}

/// The value of a text. One that is a single variable and nothing else may become a number.
fn resolved(
    text: &str,
    environment: Environment<'_>,
    origins: &mut Vec<String>,
) -> Result<Value, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out += before;
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let variable = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let (inside, after) = variable.ok_or(
            "a $ begins the name of a variable: write ${NAME}, or ${NAME:-default}, or $$ for a dollar",
        )?;
        out += &value_of(inside, environment, origins)?;
        rest = after;
    }
    out += rest;

    let is_one_variable = text.starts_with("${") && text.find('}') == Some(text.len() - 1);
    Ok(if is_one_variable { Value::Bare(out) } else { Value::Text(out) })
}

/// The value of a variable; `inside` is the text between the braces.
fn value_of(
    inside: &str,
    environment: Environment<'_>,
    origins: &mut Vec<String>,
) -> Result<String, String> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        let name = name.escape_debug();
        return Err(format!(
            "\"{name}\" is not the name of a variable, which is letters, digits and _. Fix: write ${{NAME}} or ${{NAME:-default}}"
        ));
    }
    if default.is_some_and(|default| default.contains('$')) {
        return Err(format!("the default of {name} has a $, and a default is plain text"));
    }

    let found = environment(name);
    // As in a shell, `:-` also replaces an empty value.
    match (found.filter(|value| default.is_none() || !value.is_empty()), default) {
        (Some(value), _) => {
            origins.push(format!("environment {name}"));
            Ok(value)
        }
        (None, Some(default)) => {
            origins.push(format!("default of {name}"));
            Ok(default.to_owned())
        }
        (None, None) => Err(format!(
            "the variable {name} of the environment is not set. Fix: set it where this is started, or write ${{{name}:-default}}"
        )),
    }
}

impl Value {
    /// The value as JSON, for `weir config show`.
    fn as_json(&self) -> Json {
        match self {
            Value::Text(text) | Value::Bare(text) => text.as_str().into(),
            Value::Integer(number) => json!(i64::try_from(*number).ok()),
            Value::Other { text, .. } => serde_json::from_str(text).unwrap_or(json!(text)),
            Value::List(items) => items.iter().map(|item| item.value.as_json()).collect(),
            Value::Table(table) => {
                let pairs = table.entries.iter();
                let pairs = pairs.map(|entry| (entry.key.clone(), entry.item.value.as_json()));
                Json::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "PORT" => Some("514".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${PORT} $$".to_owned()),
            _ => None,
        }
    }

    fn check(text: &str, expected: Result<&str, &str>) {
        match (resolved(text, &environment, &mut Vec::new()), expected) {
            (Ok(Value::Text(found) | Value::Bare(found)), Ok(expected)) => {
                assert_eq!(found, expected)
            }
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{text}: {found}"),
            (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn variables_in_texts() {
        check("", Ok(""));
        check("plain", Ok("plain"));
        check("127.0.0.1:${PORT}", Ok("127.0.0.1:514"));
        check("${PORT}${PORT}", Ok("514514"));
        check("${PORT:-5514}", Ok("514"));
        check("${NOT:-5514}", Ok("5514"));
        check("${NOT:-}", Ok(""));
        check("${EMPTY}", Ok(""));
        check("${EMPTY:-x}", Ok("x"));
        check("a $$ b", Ok("a $ b"));
        check("$${PORT}", Ok("${PORT}"));
        // A variable's value is not expanded again.
        check("${TRICK}", Ok("${PORT} $$"));
        check("${NOT}", Err("the variable NOT of the environment is not set"));
        for text in ["$", "a$", "$PORT", "${PORT", "$ {PORT}"] {
            check(text, Err("write ${NAME}"));
        }
        for text in ["${}", "${1}", "${A B}", "${PORT:5}", "${PORT-5}", "${:-x}"] {
            check(text, Err("is not the name of a variable"));
        }
        check("${NOT:-${PORT}}", Err("the default of NOT has a $"));
    }

    #[test]
    fn a_text_that_is_one_variable_may_be_a_number() {
        let is_bare =
            |text| matches!(resolved(text, &environment, &mut Vec::new()), Ok(Value::Bare(_)));
        assert!(is_bare("${PORT}") && is_bare("${NOT:-1}"));
        assert!(!is_bare("1${PORT}") && !is_bare("${PORT}${PORT}") && !is_bare("$${PORT}"));
    }
}
