//! The token of a daemon's run: what a command on this host shows to be told everything.
//!
//! A daemon without `admin.token_file` makes one at its start, if it shows strangers less than users that it knows, and leaves it in
//! its runtime folder, in a file that its user, root and those of `admin.socket_users` may read. The file's name has the network
//! namespace and the address that the daemon is bound to: while it lives nobody else can listen there, so a command that finds the
//! file shows the token to the daemon that made it. It is good for one life of the daemon.

use admin::Token;
use sink::Secret;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Random bytes in a token.
const BYTES: usize = 32;

/// A token, and the file that it is in. The file goes with it.
pub(crate) struct RunToken {
    pub(crate) token: Token,
    addr: SocketAddr,
    file: PathBuf,
    /// Of the file, which a later daemon may have replaced.
    inode: u64,
}

impl RunToken {
    /// Makes a token for the daemon bound to `addr`, which these users may read as well.
    ///
    /// # Errors
    /// There is no runtime folder, or the file cannot be written.
    pub(crate) fn make(addr: SocketAddr, uids: &[u32]) -> io::Result<RunToken> {
        let folder = own_folder().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "there is no RUNTIME_DIRECTORY or XDG_RUNTIME_DIR",
            )
        })?;
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder)?;
        let mut bytes = [0; BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = Token::new(&text).map_err(io::Error::other)?;

        // A reader finds the whole token or none.
        let file = folder.join(name(addr)?);
        let unfinished = folder.join(format!(".{}", std::process::id()));
        let _ = fs::remove_file(&unfinished);
        let mut options = OpenOptions::new();
        let mut open = options.write(true).create_new(true).mode(0o600).open(&unfinished)?;
        open.write_all(text.as_bytes())?;
        share(&open, uids);
        fs::rename(&unfinished, &file)?;
        let inode = open.metadata()?.ino();
        Ok(RunToken { token, addr, file, inode })
    }

    /// The address of the daemon that it is for.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Lets these users read it, and no longer those of before.
    pub(crate) fn share(&self, uids: &[u32]) {
        if let Ok(file) = File::open(&self.file) {
            share(&file, uids);
        }
    }
}

impl Drop for RunToken {
    fn drop(&mut self) {
        let is_ours = fs::metadata(&self.file).is_ok_and(|found| found.ino() == self.inode);
        if is_ours {
            // Whoever removes it first has done it.
            let _ = fs::remove_file(&self.file);
        }
    }
}

fn share(file: &File, uids: &[u32]) {
    // A mode takes the place of a list's mask, without which those whom the list names have nothing (acl(5)).
    let shared = match uids {
        [] => file.set_permissions(Permissions::from_mode(0o600)),
        uids => sys::acl::share_to_read(file, uids),
    };
    if let Err(error) = shared {
        tracing::warn!(
            "the users of admin.socket_users cannot read the token of this run: {error}. Fix: --admin unix:PATH, with the path of \
             admin.socket"
        );
    }
}

/// The runtime folder of a daemon: the service manager's, this system's for root, otherwise the user's.
fn own_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|text| !text.is_empty());
    if let Some(folders) = variable("RUNTIME_DIRECTORY") {
        return std::env::split_paths(&folders).next();
    }
    if sys::process::effective_uid() == 0 {
        return Some(PathBuf::from(SYSTEM).join(NAME));
    }
    Some(PathBuf::from(variable("XDG_RUNTIME_DIR")?).join(NAME))
}

/// The folder of this system's runtime folders, and that of its users' folders of them.
const SYSTEM: &str = "/run";
const USERS: &str = "/run/user";
/// Runtime folders have this name, or begin with it, as `weir-sockets`.
const NAME: &str = "weir";

/// The token that the daemon at one of these addresses of this host has made, if this user may read it.
pub(crate) fn find(host: &str, port: u16) -> Option<Secret> {
    let addresses: Vec<IpAddr> = match host.parse() {
        Ok(address) => vec![address],
        Err(_) if host.eq_ignore_ascii_case("localhost") => {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        }
        Err(_) => return None,
    };
    let wildcards = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let addresses = addresses.into_iter().filter(IpAddr::is_loopback).chain(wildcards);
    let names: Vec<String> =
        addresses.filter_map(|ip| name(SocketAddr::new(ip, port)).ok()).collect();

    let folders = found_folders();
    let files = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.into_iter().find_map(|file| read(&file))
}

/// Reads a token. Any user of this host may put something else in its place, for whoever looks for tokens as root: a pipe that nobody
/// writes, or a link to a secret that would then go to whatever listens at the address. So only a plain file counts, and only
/// what looks like a token.
fn read(path: &Path) -> Option<Secret> {
    let named = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    let file = File::open(path).ok()?;
    let open = file.metadata().ok()?;
    let is_named = (open.dev(), open.ino()) == (named.dev(), named.ino()) && open.nlink() == 1;
    let mut text = String::new();
    file.take(2 * BYTES as u64 + 1).read_to_string(&mut text).ok()?;
    let is_token = text.len() == 2 * BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_named && is_token).then(|| text.into())
}

/// Every folder in which a daemon of this host may have left its token.
fn found_folders() -> Vec<PathBuf> {
    let below = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(NAME.as_bytes()))
    };
    let users = below(Path::new(USERS)).into_iter().map(|folder| folder.join(NAME));
    let system = below(Path::new(SYSTEM)).into_iter().filter(is_ours);
    own_folder().into_iter().chain(system).chain(users).collect()
}

/// The name of the file for a daemon that is bound to this address in this network namespace.
fn name(addr: SocketAddr) -> io::Result<String> {
    Ok(format!("{}-{addr}.token", sys::namespace::own()?.inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use testkit::TempDir;

    #[test]
    fn only_a_plain_file_with_a_token_is_read() {
        let dir = TempDir::new();
        let token = "0123456789abcdef".repeat(4);
        let file = dir.file("token");
        fs::write(&file, &token).unwrap();
        assert_eq!(read(&file).unwrap().reveal(), token);

        symlink(&file, dir.file("link")).unwrap();
        assert!(read(&dir.file("link")).is_none());
        let secret = format!("{token}{token}");
        for text in ["", "root:x:0:0", &token[1..], &secret, &token.replace('a', "g")] {
            fs::write(dir.file("other"), text).unwrap();
            assert!(read(&dir.file("other")).is_none(), "{text}");
        }
        fs::hard_link(&file, dir.file("twin")).unwrap();
        assert!(read(&dir.file("twin")).is_none());
        testkit::run(std::process::Command::new("mkfifo").arg(dir.file("pipe")));
        assert!(read(&dir.file("pipe")).is_none(), "and nobody waits for its writer");
    }
}
