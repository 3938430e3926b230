//! Whether files that hold secrets can be read by users who are none of their business.

use crate::host::{Finding, Severity};
use crate::keys::Key;
use crate::{Config, show};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// How the names of keys end whose value is the path of a secret, in any section: a token, a password, the key of a certificate.
const ENDINGS: [&str; 6] =
    ["token_file", "password_file", "credentials_file", "nkey_file", "tls_key", "registry_key"];
/// The keys of links.
const LINKS: [&str; 2] = ["listener.keys", "listener.target.key"];

fn is_secret(key: &Key) -> bool {
    ENDINGS.iter().any(|ending| key.name.ends_with(ending)) || LINKS.contains(&key.path().as_str())
}

/// Permissions of users who are neither the file's owner nor of its group.
const OTHERS: u32 = 0o007;

impl Config {
    /// A warning for each file with a secret that every user of this host can read or write.
    pub fn examine_secrets(&self) -> Vec<Finding> {
        let sections = show::sections(self);
        let paths = sections.iter().flat_map(|section| {
            let named = section.values.iter().filter(|(key, _)| is_secret(key));
            named.filter_map(|(key, value)| {
                Some((format!("{}.{}", section.place, key.name), value.as_str()?.to_owned()))
            })
        });
        paths.filter_map(|(what, path)| shared(&what, Path::new(&path))).collect()
    }
}

fn shared(what: &str, path: &Path) -> Option<Finding> {
    // What cannot be found or read is reported where it is used.
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS == 0 {
        return None;
    }
    let path = path.display();
    let value = format!("{path} has mode {mode:04o}");
    let why =
        "every user of this host can read the secret in it, and with it do what its holder may";
    Some(
        Finding::new(Severity::Warning, what, value)
            .because(why)
            .fixed_by(format!("chmod o= {path}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn a_secret_that_others_can_read_is_a_warning_with_the_command() {
        let dir = std::env::temp_dir().join(format!("weir-secrets-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = |name: &str| dir.join(name).display().to_string();
        for name in ["token", "hop.key", "hop.keys"] {
            fs::write(dir.join(name), "secret").unwrap();
        }
        let config = format!(
            "[admin]\ntoken_file = '{}'\n\
             [[listener]]\nname = 'near'\nlisten = '127.0.0.1:5514'\n\
             [[listener.target]]\nname = 'far'\nto = 'weir://127.0.0.1:5515'\nkey = '{}'\n\
             [[listener]]\nname = 'link'\nlisten = 'weir://127.0.0.1:5516'\nkeys = '{}'\n\
             [[listener.target]]\nname = 'x'\nto = '127.0.0.1:5517'\n",
            path("token"),
            path("hop.key"),
            path("hop.keys")
        );
        let config = Config::parse(&config, "test").unwrap();
        let found = |mode: u32| {
            for name in ["token", "hop.key", "hop.keys"] {
                fs::set_permissions(dir.join(name), Permissions::from_mode(mode)).unwrap();
            }
            config.examine_secrets()
        };
        assert_eq!(found(0o600), []);
        assert_eq!(found(0o640), []);
        let warned = found(0o644);
        assert_eq!(warned.len(), 3, "{warned:?}");
        assert_eq!(warned[0].severity, Severity::Warning);
        assert_eq!(warned[0].fix, Some(format!("chmod o= {}", path("token"))));
        fs::remove_dir_all(&dir).unwrap();
    }
}
