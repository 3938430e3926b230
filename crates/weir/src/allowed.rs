//! Users that may send requests to the namespace helper, or to the daemon at its unix socket.

use crate::exit::Failure;
use config::number_of;
use sockets::attribution::Users;

/// A user that may send requests.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    /// The name in `/etc/passwd`, if any.
    pub(crate) name: Option<String>,
}

/// Looks up users by name (in `/etc/passwd`) or number.
///
/// # Errors
/// There is no such user, or the number stands for more than one; the message says what to do.
pub(crate) fn users(names: &[String]) -> anyhow::Result<Vec<User>> {
    users_where(names, sys::process::overflow_uid())
}

/// As [`users`]. `overflow` is the number that stands for every user without a mapping in this user namespace.
fn users_where(names: &[String], overflow: Option<u32>) -> anyhow::Result<Vec<User>> {
    // Without the file, numbers still work.
    let known = Users::read().unwrap_or_default();
    let user = |text: &String| {
        let uid = text.parse().ok().or_else(|| number_of("/etc/passwd", text));
        match uid {
            // To the kernel this number means "leave it as it is" (setresuid(2)).
            Some(u32::MAX) => Err(Failure::Config.error(format!(
                "{text} is the number of no user. Fix: name a user by name or number (id -u NAME)"
            ))),
            Some(uid) if Some(uid) == overflow => Err(Failure::Config.error(format!(
                "{text} cannot be allowed to ask: in this user namespace {uid} stands for every user that its map leaves out. Fix: \
                 name a user that the map has (/proc/self/uid_map)"
            ))),
            Some(uid) => {
                let name = known.name(uid).map(str::to_owned);
                Ok(User { uid, name: name.or_else(|| text.parse::<u32>().is_err().then(|| text.clone())) })
            }
            None => Err(Failure::Config.error(format!(
                "there is no user {text:?} in /etc/passwd. Fix: make the user, or name it by its number (id -u {text})"
            ))),
        }
    };

    names.iter().map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, overflow: Option<u32>) -> Result<u32, String> {
        let users = users_where(&[name.to_owned()], overflow);
        users.map(|users| users[0].uid).map_err(|error| error.to_string())
    }

    #[test]
    fn users_are_names_or_numbers() {
        assert_eq!(check("root", None), Ok(0));
        assert_eq!(check("4000000000", None), Ok(4_000_000_000));
        assert!(check("4294967295", None).unwrap_err().contains("no user"));
        assert!(check("nobody here", None).unwrap_err().contains("no user"));
    }

    #[test]
    fn in_a_user_namespace_nobody_is_everybody() {
        assert_eq!(check("65534", None), Ok(65_534));
        assert!(check("65534", Some(65_534)).unwrap_err().contains("every user"));
        assert_eq!(check("65533", Some(65_534)), Ok(65_533));
    }
}
