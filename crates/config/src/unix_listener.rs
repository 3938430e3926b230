//! A listener on a unix socket.

use crate::accounts::number_of;
use crate::form::{parsed, text};
use crate::keys::keys;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

keys! {
    /// What a listener on a unix socket has.
    pub struct UnixListener in "listener" of "unix listeners" given {
        /// The socket's file.
        path: PathBuf
    } {
        /// Mode of the socket's file: who may write to it may send. The default lets every program of this host send, as to `/dev/log`.
        mode => mode: FileMode = text("mode in octal digits, such as `0660`", parsed::<FileMode>),
            default(FileMode(0o666));
        /// Group of the socket's file, by name or number.
        group => group: Option<String> = text("group", owner_name), unset("that of this process");
        /// Owner of the socket's file, by name or number. Needs `CAP_CHOWN`.
        owner => owner: Option<String> = text("user", owner_name), unset("the user of this process");
    }
}

impl UnixListener {
    /// The numbers of the file's owner and group, where the keys name them.
    ///
    /// # Errors
    /// This host knows none of that name; the message says what helps.
    pub fn ids(&self) -> Result<(Option<u32>, Option<u32>), String> {
        let number = |file: &str, key: &str, wanted: &Option<String>| {
            let Some(wanted) = wanted else { return Ok(None) };
            let number = wanted.parse().ok().or_else(|| number_of(file, wanted));
            let unknown = || {
                format!("{key} {wanted} is not in {file}. Fix: write a name that is, or its number")
            };
            number.map(Some).ok_or_else(unknown)
        };
        Ok((
            number("/etc/passwd", "owner", &self.owner)?,
            number("/etc/group", "group", &self.group)?,
        ))
    }
}

/// Permission bits of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileMode(pub u32);

impl FromStr for FileMode {
    type Err = String;

    fn from_str(text: &str) -> Result<FileMode, String> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        let is_octal = !digits.is_empty() && digits.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        match u32::from_str_radix(digits, 8) {
            Ok(mode) if is_octal && mode <= 0o777 => Ok(FileMode(mode)),
            _ => Err("it is not a mode up to 0777. Fix: write for example \"0660\"".to_owned()),
        }
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

fn owner_name(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b":/".contains(&byte));
    let wrong = || "it is not a name or a number. Fix: write one that `getent` finds".to_owned();
    is_name.then(|| text.to_owned()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        for (text, mode) in [("0660", 0o660), ("666", 0o666), ("0o600", 0o600), ("0", 0)] {
            assert_eq!(text.parse(), Ok(FileMode(mode)), "{text}");
        }
        assert_eq!(FileMode(0o60).to_string(), "0060");
        for text in ["", "8", "1777", "+660", "rw", "0o"] {
            assert!(text.parse::<FileMode>().is_err(), "{text}");
        }
    }
}
