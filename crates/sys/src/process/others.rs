//! Other processes: whether a process id still means the same process, and sending it signals.

use crate::Errno;
use crate::errno::check;
use std::fs;
use std::io;

/// When a process started, and in which boot: together with the process id, unique to it. A zombie counts as gone.
///
/// # Errors
/// `NotFound` when there is no such process, or when `/proc` is not mounted.
pub fn started(pid: u32) -> io::Result<String> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, format!("there is no process {pid}"));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;

    // The program's name, in parentheses, may hold anything (proc_pid_stat(5)); the third field follows it.
    let (_, fields) = stat.rsplit_once(") ").ok_or_else(gone)?;
    let mut fields = fields.split(' ');
    if fields.next().is_none_or(|state| state == "Z" || state == "X") {
        return Err(gone());
    }
    let ticks = fields.nth(18).ok_or_else(gone)?;
    Ok(format!("{}-{ticks}", super::boot_id()?))
}

/// Sends a signal to a process.
///
/// # Errors
/// `EPERM` when the process belongs to another user, `ESRCH` when it does not exist.
pub fn send_signal(pid: u32, signal: i32) -> Result<(), Errno> {
    // 0 and negative values would address a process group.
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(Errno(libc::ESRCH))?;
    // SAFETY: `kill` takes integers.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_known_by_its_start_until_it_ends() {
        let own = started(std::process::id()).unwrap();
        assert_eq!(started(std::process::id()).unwrap(), own);

        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(started(child.id()).is_ok());
        send_signal(child.id(), libc::SIGKILL).unwrap();
        // It stays a zombie until its parent waits for it.
        while started(child.id()).is_ok() {
            std::thread::yield_now();
        }
        assert!(!child.wait().unwrap().success());
        assert_eq!(send_signal(0, libc::SIGTERM), Err(Errno(libc::ESRCH)));
    }
}
