//! A running daemon on this host, found by its admin address: its state, and signals to it.

use crate::ask::{self, Refused, ask, ask_and, ask_or_hear_why_not};
use crate::exit::Failure;
use serde::Deserialize;
use signal_hook::consts::{SIGHUP, SIGTERM};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{io, thread};
use sys::process::{send_signal, started};

/// Longest wait for an answer that the daemon has ready.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The page where the daemon reports how it ended. Its answer begins at once, and is complete at the end or after ten seconds.
const END_PAGE: &str = "/daemon?wait=end";
/// Longest wait for that page.
const END_TIMEOUT: Duration = Duration::from_secs(14);
/// Time between two attempts to reach a daemon that does not answer.
const ASK_INTERVAL: Duration = Duration::from_millis(50);

/// How long a daemon that has closed its address to us is asked in other ways how its reload went.
const CLOSED_WAIT: Duration = Duration::from_secs(2);
/// How a reload went that closed the address to us.
const WITH_TOKEN: &str = "reloaded: it answers only with a token from now on. Fix: --token-file FILE, to see what else changed";
const WITH_TLS: &str =
    "reloaded: it speaks TLS from now on. Fix: --admin https://HOST:PORT, to see what else changed";

/// What a daemon says about itself on its page `/daemon`.
#[derive(Deserialize)]
pub(crate) struct Daemon {
    pub(crate) pid: u32,
    /// Start time of the process, as [`started`] returns it.
    started: String,
    /// The file that SIGHUP reads again; `None` if SIGHUP ends the daemon.
    pub(crate) config_file: Option<String>,
    pub(crate) reloads: u64,
    pub(crate) last_reload: Option<Said>,
    pub(crate) ended: Option<Said>,
}

/// The result of a request: an exit code, and lines for people.
#[derive(Deserialize)]
pub(crate) struct Said {
    pub(crate) code: u8,
    pub(crate) lines: Vec<String>,
}

impl Daemon {
    /// Finds the daemon at an admin address. It must be a process on this host.
    ///
    /// # Errors
    /// No daemon answers, or it runs elsewhere.
    pub(crate) fn find(admin: &ask::Daemon) -> anyhow::Result<Daemon> {
        let daemon = read(admin, &ask(admin, "/daemon", ANSWER_TIMEOUT)?)?;
        if daemon.is_there() {
            return Ok(daemon);
        }
        Err(Failure::Unavailable.error(format!(
            "the daemon at {} is not a process that can be signaled from here: it runs on another host, or in a container. \
             Fix: run this command there",
            admin.admin
        )))
    }

    /// Whether its process is alive.
    pub(crate) fn is_there(&self) -> bool {
        started(self.pid).is_ok_and(|started| started == self.started)
    }

    /// Makes it read its file again. Returns the result; `None` if the daemon ended or took too long.
    ///
    /// # Errors
    /// This user may not signal it.
    pub(crate) fn reload(
        &self,
        admin: &ask::Daemon,
        timeout: Duration,
    ) -> anyhow::Result<Option<Said>> {
        self.signal(SIGHUP)?;
        let is_done = |now: Daemon| now.last_reload.filter(|_| now.reloads > self.reloads);
        let (begun, deadline) = (Instant::now(), Instant::now() + timeout);
        let mut closed = None;
        loop {
            // What the file says now may change where it answers, and to whom.
            for at in [vec![admin.clone()], self.by_file(admin)].concat() {
                let left = deadline.saturating_duration_since(Instant::now());
                let wait = left.clamp(ASK_INTERVAL, ANSWER_TIMEOUT);
                match ask_or_hear_why_not(&at, "/daemon", wait) {
                    Ok(Ok(text)) => {
                        let now = read(&at, &text).ok().filter(|now| now.pid == self.pid);
                        if let Some(said) = now.and_then(is_done) {
                            return Ok(Some(said));
                        }
                    }
                    Ok(Err(Refused { status: 401, .. })) => closed = Some(WITH_TOKEN),
                    Ok(Err(Refused { status: 400, .. })) => closed = Some(WITH_TLS),
                    Ok(Err(_)) | Err(_) => {}
                }
            }
            // It answered before the signal: so the file is in force, although it does not tell us more.
            let is_told = closed.is_some() && begun.elapsed() >= CLOSED_WAIT;
            if is_told || Instant::now() >= deadline || !self.is_there() {
                return Ok(closed.map(|line| Said { code: 0, lines: vec![line.to_owned()] }));
            }
            thread::sleep(ASK_INTERVAL);
        }
    }

    /// Where it answers by the file that it reads.
    fn by_file(&self, admin: &ask::Daemon) -> Vec<ask::Daemon> {
        let file = self.config_file.as_deref().map(Path::new);
        let config = file.and_then(|file| config::Config::load(file).ok());
        config.map(|config| admin.by(&config.admin)).unwrap_or_default()
    }

    /// Makes it stop. Returns how it ended; `None` if it did not say or took too long.
    ///
    /// # Errors
    /// This user may not signal it, or it no longer answers.
    pub(crate) fn stop(
        &self,
        admin: &ask::Daemon,
        timeout: Duration,
    ) -> anyhow::Result<Option<Said>> {
        // Send the request first: the daemon may end within milliseconds of the signal and accept no request after that.
        let answer = ask_and(admin, END_PAGE, END_TIMEOUT, || self.signal(SIGTERM))?;
        Ok(match read(admin, &answer)?.ended {
            None => self.follow(admin, END_PAGE, timeout, |now| now.ended),
            ended => ended,
        })
    }

    fn signal(&self, signal: i32) -> anyhow::Result<()> {
        send_signal(self.pid, signal).map_err(|errno| {
            let failure = match io::Error::from(errno).kind() {
                io::ErrorKind::PermissionDenied => Failure::Permission,
                _ => Failure::Unavailable,
            };
            let pid = self.pid;
            failure.error(format!("cannot signal process {pid}: {errno}. Fix: run this as root or as the daemon's user"))
        })
    }

    /// Repeats a request until the answer is the wanted one, and returns it. `None` if the process ended without one or took
    /// too long.
    fn follow(
        &self,
        admin: &ask::Daemon,
        page: &str,
        timeout: Duration,
        wanted: impl Fn(Daemon) -> Option<Said>,
    ) -> Option<Said> {
        let deadline = Instant::now() + timeout;
        loop {
            // Nobody answers while a reload moves the admin server.
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = ask(admin, page, left.clamp(ASK_INTERVAL, END_TIMEOUT));
            let answer = answer.and_then(|text| read(admin, &text));
            if let Some(said) = answer.ok().and_then(&wanted) {
                return Some(said);
            }
            if Instant::now() >= deadline || !self.is_there() {
                return None;
            }
            thread::sleep(ASK_INTERVAL);
        }
    }

    /// Waits until its process has ended.
    pub(crate) fn wait_to_end(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        while self.is_there() && Instant::now() < deadline {
            thread::sleep(ASK_INTERVAL);
        }
    }
}

fn read(admin: &ask::Daemon, text: &str) -> anyhow::Result<Daemon> {
    serde_json::from_str(text).map_err(|error| {
        let what = "does not say what it is";
        Failure::Unavailable
            .error(format!("{} {what} ({error}); is it a daemon of this version?", admin.admin))
    })
}

impl Said {
    /// The lines, one below the other.
    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}
