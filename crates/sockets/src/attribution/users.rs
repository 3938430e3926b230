use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Names of users by uid, from `/etc/passwd`. For tables: records carry the uid.
///
/// Users from a directory service are not in that file and have no name here.
#[derive(Clone, Debug, Default)]
pub struct Users {
    names: HashMap<u32, Box<str>>,
}

impl Users {
    /// Maximum number of bytes read from the file.
    const MAX_FILE_BYTES: u64 = 4 << 20;
    /// Maximum number of users kept.
    const MAX_USERS: usize = 65_536;
    /// Longest name kept, in bytes; `useradd` allows 32.
    const MAX_NAME_BYTES: usize = 256;

    /// Reads `/etc/passwd`.
    ///
    /// # Errors
    /// Any error from opening or reading it.
    pub fn read() -> io::Result<Users> {
        Users::read_from(Path::new("/etc/passwd"))
    }

    /// Reads a file in that format (passwd(5)). Other lines are skipped. If a uid has two names, the first one counts, as for
    /// getpwuid(3).
    ///
    /// # Errors
    /// Any error from opening or reading it.
    pub fn read_from(path: &Path) -> io::Result<Users> {
        let mut users = Users::default();
        let file = File::open(path)?.take(Users::MAX_FILE_BYTES);

        for line in BufReader::new(file).split(b'\n') {
            if users.names.len() == Users::MAX_USERS {
                break;
            }
            if let Some((uid, name)) = user_of_line(&line?) {
                users.names.entry(uid).or_insert(name);
            }
        }

        Ok(users)
    }

    /// The name of a user, if the file has it.
    pub fn name(&self, uid: u32) -> Option<&str> {
        self.names.get(&uid).map(AsRef::as_ref)
    }
}

fn user_of_line(line: &[u8]) -> Option<(u32, Box<str>)> {
    let mut fields = std::str::from_utf8(line).ok()?.split(':');
    let name = fields.next()?;
    // The password field is between them.
    let uid = fields.nth(1)?.parse().ok()?;
    let usable =
        !name.is_empty() && name.len() <= Users::MAX_NAME_BYTES && !name.contains(char::is_control);
    usable.then(|| (uid, name.into()))
}
