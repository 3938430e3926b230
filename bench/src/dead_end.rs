//! Targets that take nothing, kept in that state for a whole case.

use crate::contender::DeadEnd;
use crate::site::Site;
use anyhow::Context;
use std::fs::{self, File, OpenOptions};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A key as `weir hop key` prints it; no other process has it.
const HOP_KEY: &str = "bench AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";

/// One dead end of each kind. Files and processes are removed when it is dropped.
pub(crate) struct DeadEnds {
    refusing: UdpSocket,
    _stopped: UnixDatagram,
    stuck: Option<StuckTerminal>,
    dead_next_hop: Option<SocketAddr>,
    silent: UdpSocket,
    // Last, because the others use files in it.
    folder: Folder,
}

impl DeadEnds {
    /// The stuck file needs the program `socat`.
    pub(crate) fn open(site: &Site, socat: Option<&Path>) -> anyhow::Result<DeadEnds> {
        let folder = Folder::make()?;
        let refusing = refusing_port(site)?;
        let stopped = UnixDatagram::bind(folder.0.join("stopped")).context("a unix receiver")?;
        let stuck = socat.map(|socat| StuckTerminal::open(socat, &folder.0)).transpose()?;
        let dead_next_hop = site.dead_next_hop();
        let silent = site.at_targets(|| UdpSocket::bind((site.target_addr(), 0)))?;
        let silent = silent.context("a port that says nothing")?;
        fs::write(folder.0.join("hop.key"), HOP_KEY).context("a key")?;
        Ok(DeadEnds { refusing, _stopped: stopped, stuck, dead_next_hop, silent, folder })
    }

    /// The address, as `weir relay --to` takes it.
    pub(crate) fn target(&self, kind: DeadEnd) -> anyhow::Result<String> {
        Ok(match kind {
            DeadEnd::Refusing => self.refusing.local_addr()?.to_string(),
            DeadEnd::StoppedUnix => format!("unix:{}", self.folder.0.join("stopped").display()),
            DeadEnd::StuckFile => {
                let stuck = self.stuck.as_ref().context("a stuck file needs socat")?;
                format!("file:{}", stuck.path.display())
            }
            DeadEnd::DeadNextHop => {
                self.dead_next_hop.context("no next hop to be dead on loopback")?.to_string()
            }
            DeadEnd::SilentWeir => {
                let (addr, key) = (self.silent.local_addr()?, self.folder.0.join("hop.key"));
                format!("weir://{addr}?bandwidth=10Gbit/s&key={}", key.display())
            }
        })
    }
}

/// A folder of our own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn make() -> anyhow::Result<Folder> {
        static FOLDERS: AtomicU64 = AtomicU64::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-bench-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A few empty files left behind are not worth failing for.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A terminal without a reader. Weir does not write to a FIFO; a terminal takes some kilobytes, and then no more.
struct StuckTerminal {
    path: PathBuf,
    socat: Child,
    _fifo: File,
}

impl StuckTerminal {
    /// Starts socat to copy the terminal into a FIFO that nobody reads, so that socat stops once the FIFO is full.
    fn open(socat: &Path, folder: &Path) -> anyhow::Result<StuckTerminal> {
        let (fifo_path, link) = (folder.join("fifo"), folder.join("terminal"));
        let status = Command::new("mkfifo").arg(&fifo_path).status().context("running mkfifo")?;
        anyhow::ensure!(status.success(), "mkfifo {}: {status}", fifo_path.display());

        // With read access too, opening the FIFO for writing does not block.
        let fifo = OpenOptions::new().read(true).write(true).open(&fifo_path).context("a FIFO")?;

        let child = Command::new(socat)
            .arg("-u")
            .arg(format!("PTY,link={},rawer", link.display()))
            .arg(format!("OPEN:{},wronly", fifo_path.display()))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting socat")?;
        let mut terminal = StuckTerminal { path: PathBuf::new(), socat: child, _fifo: fifo };

        let deadline = Instant::now() + Duration::from_secs(10);
        terminal.path = loop {
            match fs::canonicalize(&link) {
                Ok(path) => break path,
                Err(error) if Instant::now() > deadline => {
                    return Err(error).context("socat opens no terminal");
                }
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        Ok(terminal)
    }
}

impl Drop for StuckTerminal {
    fn drop(&mut self) {
        // A process that has already ended is only waited for.
        let _ = self.socat.kill();
        let _ = self.socat.wait();
    }
}

/// A port that refuses datagrams and that no other socket can take. A socket connected to itself receives from no other socket,
/// so that datagrams from others match no socket (net/ipv4/udp.c, __udp4_lib_lookup) and cause "port unreachable".
fn refusing_port(site: &Site) -> anyhow::Result<UdpSocket> {
    let addr = SocketAddr::new(site.target_addr(), 0);
    site.at_targets(|| {
        let socket = UdpSocket::bind(addr).context("a port that refuses")?;
        socket.connect(socket.local_addr()?).context("connecting a port to itself")?;
        Ok(socket)
    })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Write};
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn a_refusing_port_refuses() {
        let ends = DeadEnds::open(&Site::Loopback, None).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(ends.target(DeadEnd::Refusing).unwrap()).unwrap();
        socket.send(b"anybody").unwrap();
        // On loopback the error is there before the call that caused it returns.
        let refused = socket.send(b"there").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_stopped_receiver_takes_no_more() {
        let ends = DeadEnds::open(&Site::Loopback, None).unwrap();
        let path = ends.target(DeadEnd::StoppedUnix).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        socket.set_nonblocking(true).unwrap();
        let send = || socket.send_to(b"x", path.strip_prefix("unix:").unwrap());
        let error = (0..100_000).find_map(|_| send().err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn a_stuck_file_takes_no_more() {
        let Some(socat) = crate::program("socat") else {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "socat is missing");
            println!("skipped: socat is missing");
            return;
        };
        const O_NONBLOCK: i32 = 0o4_000;
        const O_NOCTTY: i32 = 0o400;
        let ends = DeadEnds::open(&Site::Loopback, Some(&socat)).unwrap();
        let path = ends.target(DeadEnd::StuckFile).unwrap();
        let path = path.strip_prefix("file:").unwrap();
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(O_NONBLOCK | O_NOCTTY);
        let mut file = options.open(path).unwrap();
        // Full means that it takes no byte for longer than socat needs to read one.
        let (mut full_since, mut taken) = (Instant::now(), 0);
        while full_since.elapsed() < Duration::from_millis(300) {
            match file.write(&[b'x'; 4_096]) {
                Ok(bytes) => (full_since, taken) = (Instant::now(), taken + bytes),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            assert!(taken < 10 << 20, "it takes everything");
            thread::yield_now();
        }
    }
}
