//! The credentials of a sink: keys that several kinds share.
//!
//! Secrets are in files or in the environment. Nothing here reads them; the sink does when it connects.

use crate::form::{Bool, Form, Slot, path, text};
use crate::keys::keys;
use crate::reader::Reader;
use ::sink::{Login, SecretSource, TlsIdentity, TlsOptions, TlsVerify};
use serde_json::Value as Json;
use std::path::PathBuf;

keys! {
    /// How a sink logs in.
    pub struct Credentials in "sink" of "sinks that log in" {
        /// Name of the user, where the destination has users.
        user => user: Option<String> = text("1 to 256 characters", user), unset("no user");
        /// File that holds the password and nothing else; a line end at its end is left out. Read at each connection.
        password_file => password_file: Option<PathBuf> = path("path", secret_path), unset("no password");
        /// Variable of the environment that holds the password, instead of `password_file`.
        password_env => password_env: Option<String> =
            Variable, unset("no password");
        /// File that holds a token, for destinations that take one instead of a user and a password.
        token_file => token_file: Option<PathBuf> = path("path", secret_path), unset("no token");
        /// Variable of the environment that holds the token, instead of `token_file`.
        token_env => token_env: Option<String> =
            Variable, unset("no token");
    }
}

keys! {
    /// How a connection over TLS is made.
    pub struct Tls in "sink" of "sinks over TLS" {
        /// File with the certificates (PEM) of which one must have signed the server's.
        tls_ca => ca: Option<PathBuf> = path("path", secret_path), unset("the authorities of the system");
        /// File with the certificate and its chain (PEM) that this side shows. Needs `tls_key`.
        tls_cert => certificate: Option<PathBuf> = path("path", secret_path), unset("none")
            where |tls| tls.key.is_some(), "it has no key. Fix: add tls_key = \"/path\"";
        /// File with the key (PEM) of `tls_cert`.
        tls_key => key: Option<PathBuf> = path("path", secret_path), unset("none")
            where |tls| tls.certificate.is_some(), "it has no certificate. Fix: add tls_cert = \"/path\"";
        /// Whether any server is believed, whatever it shows. For tests alone: who is in between can read and change
        /// everything.
        tls_insecure => is_insecure: bool = Bool, default(false);
    }
}

const USER_CHARS_MAX: usize = 256;

pub(super) fn user(text: &str) -> Result<String, String> {
    match text.chars().count() {
        0 => Err("a user's name is not empty. Fix: remove the key".to_owned()),
        1..=USER_CHARS_MAX if !text.chars().any(char::is_control) => Ok(text.to_owned()),
        1..=USER_CHARS_MAX => {
            Err("it has control characters. Fix: write the name without them".to_owned())
        }
        _ => Err(format!("it is too long. Fix: write at most {USER_CHARS_MAX} characters")),
    }
}

pub(crate) fn secret_path(text: &str) -> Result<PathBuf, String> {
    match text.is_empty() || text.chars().any(char::is_control) {
        true => Err("it is not a path. Fix: write for example /etc/weir/secret".to_owned()),
        false => Ok(PathBuf::from(text)),
    }
}

/// The name of an environment variable. A wrong one is not repeated in the message: it may be the secret itself, and messages
/// are logged.
struct Variable;

impl Form for Variable {
    type Value = String;

    fn describe(&self) -> String {
        "name of a variable of the environment".to_owned()
    }

    fn read(&self, slot: &Slot<'_>) -> Option<String> {
        let is_name = |text: &&str| {
            !text.is_empty()
                && !text.starts_with(|c: char| c.is_ascii_digit())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let name = slot.value.text().ok().filter(is_name).map(str::to_owned);
        if name.is_none() {
            slot.error("it is not the name of a variable. Fix: write letters, digits and _");
        }
        name
    }

    fn show(&self, value: &String) -> Json {
        value.as_str().into()
    }
}

/// The credentials that a kind of sink accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accepts {
    /// A user, a password, or both.
    Password,
    Token,
    Either,
}

impl Credentials {
    /// Reads the keys for a kind of sink that accepts these credentials.
    pub(crate) fn accepted(reader: &Reader<'_>, accepts: Accepts) -> Option<Credentials> {
        let credentials = Credentials::read(reader)?;

        let passwords = [&Self::user, &Self::password_file, &Self::password_env];
        let tokens = [&Self::token_file, &Self::token_env];
        let (useless, message) = match accepts {
            Accepts::Password => {
                (&tokens[..], "this kind of sink takes no token. Fix: remove the key")
            }
            Accepts::Token => {
                (&passwords[..], "this kind of sink takes a token only. Fix: remove the key")
            }
            Accepts::Either => (&[][..], ""),
        };
        for key in useless.iter().filter(|key| reader.has(key)) {
            reader.error(key, message);
        }

        let both = "there is another place for the same secret. Fix: remove one of the two";
        if credentials.password_file.is_some() && credentials.password_env.is_some() {
            reader.error(&Self::password_env, both);
        }
        if credentials.token_file.is_some() && credentials.token_env.is_some() {
            reader.error(&Self::token_env, both);
        }
        Some(credentials)
    }

    /// The login for the destination.
    pub fn login(&self) -> Login {
        let source = |file: &Option<PathBuf>, env: &Option<String>| {
            let file = file.clone().map(SecretSource::File);
            file.or_else(|| env.clone().map(SecretSource::Env))
        };
        Login {
            user: self.user.clone(),
            password: source(&self.password_file, &self.password_env),
            token: source(&self.token_file, &self.token_env),
        }
    }
}

impl Tls {
    /// The TLS options for the destination.
    pub fn options(&self) -> TlsOptions {
        let identity = self.certificate.clone().zip(self.key.clone());
        TlsOptions {
            ca: self.ca.clone(),
            identity: identity.map(|(certificate, key)| TlsIdentity { certificate, key }),
            verify: if self.is_insecure { TlsVerify::Off } else { TlsVerify::On },
        }
    }
}
