//! Names of listeners, targets, sinks and interfaces.

use crate::form::{Text, text};

/// Longest name of a listener, target or sink, in characters.
const NAME_CHARS_MAX: usize = 128;

/// The form of the name of a listener, target or sink.
pub(crate) const NAME: Text<String> =
    text("1 to 128 characters without space, quote or backslash", name);

fn name(text: &str) -> Result<String, String> {
    let wrong = match text.chars().count() {
        0 => "it is empty. Fix: write a name of letters, digits, `_` and `-`",
        1..=NAME_CHARS_MAX if text.chars().all(is_name_char) => return Ok(text.to_owned()),
        1..=NAME_CHARS_MAX => {
            "a name has no spaces, quotes, backslashes or control characters. Fix: use `-` or `_` instead"
        }
        _ => "it is too long. Fix: write at most 128 characters",
    };
    Err(wrong.to_owned())
}

fn is_name_char(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '\'' | '`' | '\\')
}

/// The default name, from an address: characters not allowed in names become `_`, and it is cut at the longest length.
pub(crate) fn name_of(addr: &impl ToString) -> String {
    let plain = |c| if is_name_char(c) { c } else { '_' };
    addr.to_string().chars().take(NAME_CHARS_MAX).map(plain).collect()
}

/// Interface names have at most 15 bytes (linux/if.h, IFNAMSIZ); a listener may name an address instead.
pub(crate) fn interface(text: &str) -> Result<String, String> {
    let is_name = (1..=15).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:".contains(&byte));
    let wrong = || {
        "it is not the name of an interface. Fix: write one that `ip link` lists, such as eth0"
            .to_owned()
    };
    is_name.then(|| text.to_owned()).ok_or_else(wrong)
}
