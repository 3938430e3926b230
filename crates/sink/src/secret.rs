//! Credentials of a destination. Secrets come from files and the environment, never from the configuration, and are
//! never printed.

use ledger::Trouble;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// Longest secret, in bytes: anything longer is the wrong file.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// A password or a token. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself, for the client that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Where a secret is stored. It is read each time it is needed, so that a change takes effect at the next connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The contents of this file, without a trailing line end.
    File(PathBuf),
    /// The value of this environment variable.
    Env(String),
}

impl SecretSource {
    /// Reads the secret.
    ///
    /// # Errors
    /// It does not exist, cannot be read, is empty, or is not text.
    pub fn read(&self) -> Result<Secret, Trouble> {
        match self {
            SecretSource::File(path) => read_file(path).map_err(|error| Trouble {
                what: format!("the secret in {} cannot be read: {error}", path.display()),
                fix: format!(
                    "see that the file is there and that this user may read it: ls -l {}",
                    path.display()
                ),
            }),
            SecretSource::Env(name) => match std::env::var(name) {
                Ok(text) if !text.is_empty() => Ok(Secret(text)),
                _ => Err(Trouble {
                    what: format!("the variable {name} of the environment holds no secret"),
                    fix: format!("set {name} where the daemon is started"),
                }),
            },
        }
    }
}

fn read_file(path: &PathBuf) -> io::Result<Secret> {
    let mut text = String::new();
    File::open(path)?.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is longer than a secret"));
    }

    let end = text.strip_suffix('\n').map_or(text.len(), str::len);
    text.truncate(end);
    if text.ends_with('\r') {
        text.pop();
    }
    match text.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty")),
        false => Ok(Secret(text)),
    }
}

/// How a destination logs in. All fields are empty if the server needs no login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    pub user: Option<String>,
    pub password: Option<SecretSource>,
    pub token: Option<SecretSource>,
}

impl Login {
    /// Reads the password, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn password(&self) -> Result<Option<Secret>, Trouble> {
        self.password.as_ref().map(SecretSource::read).transpose()
    }

    /// Reads the token, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn token(&self) -> Result<Option<Secret>, Trouble> {
        self.token.as_ref().map(SecretSource::read).transpose()
    }
}

/// Options of a TLS connection. The default is the usual: the system's certificate authorities, no client certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// CA certificates to trust, as PEM, instead of the system's.
    pub ca: Option<PathBuf>,
    /// The client certificate.
    pub identity: Option<TlsIdentity>,
    pub verify: TlsVerify,
}

/// A certificate with its chain and its key, both as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Whether to verify the server's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVerify {
    #[default]
    On,
    /// Accepts any certificate.
    Off,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_without_its_line_end_and_shown_by_nothing() {
        let path = std::env::temp_dir().join(format!("weir-secret-{}", std::process::id()));
        let source = SecretSource::File(path.clone());
        let check = |content: &str, expected: &str| {
            std::fs::write(&path, content).unwrap();
            assert_eq!(source.read().unwrap().reveal(), expected);
        };
        check("plain", "plain");
        check("a line\n", "a line");
        check("a line\r\n", "a line");
        check(" blanks stay \n\n", " blanks stay \n");
        assert_eq!(format!("{:?}", source.read().unwrap()), "Secret");

        for content in [String::new(), "\n".to_owned(), "x".repeat(64 * 1024 + 1)] {
            std::fs::write(&path, &content).unwrap();
            let trouble = source.read().unwrap_err();
            assert!(trouble.what.contains(path.to_str().unwrap()), "{trouble:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(source.read().unwrap_err().what.contains("No such file"));
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let trouble = SecretSource::Env("WEIR_NO_SUCH_SECRET".to_owned()).read().unwrap_err();
        assert!(trouble.what.contains("WEIR_NO_SUCH_SECRET"), "{trouble:?}");
    }
}
