//! Whether files that hold secrets can be read by users who are none of their business.

use crate::Config;
use crate::host::{Finding, Severity};
use crate::inputs::Input;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// How the names of keys end whose value is no secret, although it is a file that is read: certificates, and databases of addresses.
const PUBLIC: [&str; 5] = ["tls_ca", "tls_cert", "registry_ca", "registry_cert", "mmdb"];

/// Permissions of users who are neither the file's owner nor of its group.
const OTHERS: u32 = 0o007;

impl Config {
    /// A warning for each file with a secret that every user of this host can read or write.
    pub fn examine_secrets(&self) -> Vec<Finding> {
        let is_secret = |input: &Input| !PUBLIC.iter().any(|ending| input.key.ends_with(ending));
        let secrets = self.inputs().into_iter().filter(is_secret);
        secrets.filter_map(|input| shared(&input.place(), &input.path)).collect()
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
