//! Pre-shared keys, and the files that hold them.

use data_encoding::BASE64;
use ring::digest;
use std::collections::{HashMap, HashSet};
use std::fmt;
use thiserror::Error;
use zeroize::Zeroize;

/// Length of a key, in bytes.
pub const KEY_BYTES: usize = 32;

/// Maximum length of a key's name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// 32 bytes that only the two ends know. Overwritten when dropped, and never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) [u8; KEY_BYTES]);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Identifies a key in the clear: eight bytes of its hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyId(pub u64);

/// A key with its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    pub name: String,
    pub id: KeyId,
    pub(crate) secret: Secret,
}

impl Key {
    /// A key made of these bytes, which must be random.
    pub fn new(name: &str, bytes: [u8; KEY_BYTES]) -> Key {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(b"weir hop key id");
        hash.update(&bytes);
        let id = hash.finish().as_ref().first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
        Key { name: name.to_owned(), id: KeyId(id), secret: Secret(bytes) }
    }

    /// The key's line in a key file.
    pub fn line(&self) -> String {
        format!("{} {}", self.name, BASE64.encode(&self.secret.0))
    }
}

/// What is wrong with a key file. Never shows a key.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum KeyError {
    #[error(
        "line {0} is not `NAME KEY`. Fix: replace it by a line that `weir hop key NAME` prints"
    )]
    NotAKey(usize),
    #[error(
        "the name in line {0} is longer than {NAME_BYTES_MAX} bytes or has other characters than letters, digits, `.`, `_` and `-`"
    )]
    Name(usize),
    #[error(
        "the key in line {0} is not {KEY_BYTES} bytes in base64. Fix: replace it by a line that `weir hop key NAME` prints"
    )]
    Bytes(usize),
    #[error("line {0} has a name or a key that an earlier line has")]
    Twice(usize),
    #[error("there is no key; `weir hop key NAME` prints one")]
    None,
    #[error("there are {0} keys, and a sender has one")]
    Several(usize),
}

/// The keys of a file. Each line holds a name and the key in base64; empty lines and lines that begin with `#` are skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    all: Vec<Key>,
    by_id: HashMap<KeyId, usize>,
}

impl Keys {
    /// Parses the text of a key file.
    ///
    /// # Errors
    /// Names the first line that is not a key or repeats one.
    pub fn parse(text: &str) -> Result<Keys, KeyError> {
        let mut keys = Keys { all: Vec::new(), by_id: HashMap::new() };
        let mut names = HashSet::new();
        for (at, line) in text.lines().enumerate() {
            let (line, number) = (line.trim(), at + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = parse_line(line, number)?;
            let is_twice = !names.insert(key.name.clone());
            if is_twice || keys.by_id.insert(key.id, keys.all.len()).is_some() {
                return Err(KeyError::Twice(number));
            }
            keys.all.push(key);
        }
        if keys.all.is_empty() { Err(KeyError::None) } else { Ok(keys) }
    }

    /// The one key of a sender's file.
    ///
    /// # Errors
    /// The file holds several keys.
    pub fn only(mut self) -> Result<Key, KeyError> {
        match self.all.len() {
            1 => Ok(self.all.remove(0)),
            several => Err(KeyError::Several(several)),
        }
    }

    /// The key with this id.
    pub fn by_id(&self, id: KeyId) -> Option<&Key> {
        self.by_id.get(&id).map(|at| &self.all[*at])
    }

    /// Number of keys, at least 1.
    pub fn count(&self) -> usize {
        self.all.len()
    }
}

fn parse_line(line: &str, number: usize) -> Result<Key, KeyError> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(text), None) = (words.next(), words.next(), words.next()) else {
        return Err(KeyError::NotAKey(number));
    };
    if !is_name(name) {
        return Err(KeyError::Name(number));
    }
    let mut bytes = BASE64.decode(text.as_bytes()).map_err(|_| KeyError::Bytes(number))?;
    let key = <[u8; KEY_BYTES]>::try_from(bytes.as_slice()).map_err(|_| KeyError::Bytes(number));
    bytes.zeroize();
    Ok(Key::new(name, key?))
}

/// Whether a key may have this name.
pub fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let (a, b) = (Key::new("a", [1; 32]), Key::new("b.site-2_x", [2; 32]));
        let text = format!("# senders\n\n{}\n  {}  \n", a.line(), b.line());
        let keys = Keys::parse(&text).unwrap();
        assert_eq!((keys.count(), keys.by_id(b.id)), (2, Some(&b)));
        assert_eq!(keys.by_id(KeyId(7)), None);
        assert_eq!(keys.only(), Err(KeyError::Several(2)));
        assert_eq!(Keys::parse(&a.line()).unwrap().only(), Ok(a.clone()));
        assert!(!format!("{a:?}").contains("1, 1") && a.id != b.id);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let good = Key::new("a", [1; 32]).line();
        let error = |text: &str| Keys::parse(text).unwrap_err();
        assert_eq!(error("# none\n"), KeyError::None);
        assert_eq!(error("\na"), KeyError::NotAKey(2));
        assert_eq!(error(&format!("{good} more")), KeyError::NotAKey(1));
        assert_eq!(error("a!b AAAA"), KeyError::Name(1));
        assert_eq!(error("a AAAA"), KeyError::Bytes(1));
        assert_eq!(error("a *"), KeyError::Bytes(1));
        assert_eq!(error(&format!("{good}\n{good}")), KeyError::Twice(2));
        assert_eq!(error(&format!("{good}\n{}", good.replace("a ", "b "))), KeyError::Twice(2));
        assert_eq!(
            error(&format!("{good}\na {}", &Key::new("c", [3; 32]).line()[2..])),
            KeyError::Twice(2)
        );
    }
}
