use std::fmt;

/// A name inside a path, in the path's own escaping. `Display` unescapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    raw: &'a str,
    escape: Escape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    /// Not escaped.
    None,
    /// The kubelet writes `_` for `-`, because `-` separates the levels of a slice.
    Underscores,
    /// systemd.unit(5): `-` for `/`, `\xHH` for a byte.
    Systemd,
}

impl<'a> Name<'a> {
    pub(super) fn plain(raw: &'a str) -> Name<'a> {
        Name { raw, escape: Escape::None }
    }

    pub(super) fn with_underscores(raw: &'a str) -> Name<'a> {
        Name { raw, escape: Escape::Underscores }
    }

    pub(super) fn of_systemd(raw: &'a str) -> Name<'a> {
        Name { raw, escape: Escape::Systemd }
    }

    /// The slice of the path, still escaped.
    pub fn raw(self) -> &'a str {
        self.raw
    }

    /// The name, if the path holds it unescaped.
    pub fn as_plain(self) -> Option<&'a str> {
        let escaped = match self.escape {
            Escape::None => false,
            Escape::Underscores => self.raw.contains('_'),
            Escape::Systemd => self.raw.contains('\\'),
        };
        if escaped { None } else { Some(self.raw) }
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.escape {
            Escape::None => f.write_str(self.raw),
            Escape::Underscores => parts(f, self.raw.split('_'), "-"),
            Escape::Systemd => unescape(f, self.raw),
        }
    }
}

fn parts<'a>(
    f: &mut fmt::Formatter<'_>,
    parts: impl Iterator<Item = &'a str>,
    between: &str,
) -> fmt::Result {
    for (index, part) in parts.enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        f.write_str(part)?;
    }
    Ok(())
}

/// Writes `\xHH` as its character if that is printable ASCII and not a slash. Anything else stays escaped, so a name made to look
/// like a path or to control a terminal does neither.
fn unescape(f: &mut fmt::Formatter<'_>, raw: &str) -> fmt::Result {
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once("\\x") {
        f.write_str(before)?;
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());

        match (byte, after.get(2..)) {
            (Some(byte), Some(tail)) if byte.is_ascii_graphic() && byte != b'/' => {
                write!(f, "{}", char::from(byte))?;
                rest = tail;
            }
            _ => {
                f.write_str("\\x")?;
                rest = after;
            }
        }
    }

    f.write_str(rest)
}
