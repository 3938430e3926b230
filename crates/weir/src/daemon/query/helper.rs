//! One question, answered by a process of its own: this side starts it, ends it at its deadline or when nobody waits any more,
//! and passes on what it says.

use crate::command::query_helper::{too_long, too_much};
use crate::question::errand::{Errand, Head, Obstacle};
use admin::service::Told;
use signal_hook::consts::signal::{SIGABRT, SIGBUS, SIGKILL, SIGSEGV, SIGXCPU};
use std::io::{self, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::timeout;

/// Longest time for the client to take an answer.
const SEND_MAX: Duration = Duration::from_secs(4);
/// Bytes of an answer that are passed on at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Asks a question. It has the turn until its process has ended.
pub(super) async fn ask(turn: OwnedSemaphorePermit, errand: Errand) -> Result<Told, Refusal> {
    let (time, memory_bytes_max) = (errand.limits.time, errand.memory_bytes_max);
    // If the client leaves, this future is dropped, and the process ends at once.
    let helper = Arc::new(Helper { turn: Mutex::new(Some(turn)), ..Helper::default() });
    let guard = Guard(Arc::clone(&helper));
    let of_thread = Arc::clone(&helper);
    let begun = tokio::task::spawn_blocking(move || begin(&of_thread, &errand));
    let begun = match timeout(time, begun).await {
        Err(_) => return Err(Refusal { obstacle: Obstacle::Time, text: too_long(time) }),
        Ok(Err(error)) => return Err(Refusal::failure(&error.to_string())),
        Ok(Ok(Err(error))) => return Err(Refusal::not_started(&error)),
        Ok(Ok(Ok(begun))) => begun,
    };

    match begun {
        Begun::Answer(Head::Answer(left), stdout) => {
            // A client that takes nothing does not keep others from asking.
            tokio::spawn(async move {
                let _ = timeout(SEND_MAX, helper.ended.notified()).await;
                helper.kill();
            });
            Ok(Told::pieces(Box::new(Pieces { stdout, left, _guard: guard })))
        }
        Begun::Answer(Head::Refusal(obstacle, text), _) => Err(Refusal { obstacle, text }),
        Begun::Ended(status) => Err(Refusal::of_end(status, time, memory_bytes_max)),
    }
}

/// Why there is no answer, and the sentence that says so.
pub(super) struct Refusal {
    pub(super) obstacle: Obstacle,
    pub(super) text: String,
}

impl Refusal {
    fn failure(why: &str) -> Refusal {
        let text = format!("the process that answers questions failed: {why}");
        Refusal { obstacle: Obstacle::Failure, text }
    }

    fn not_started(error: &io::Error) -> Refusal {
        Refusal::failure(&format!(
            "it cannot be started: {error}. Fix: mount /proc, and let the daemon start processes (TasksMax=, SystemCallFilter= of its \
             unit)"
        ))
    }

    /// Of a process that ended without a word.
    fn of_end(status: Option<ExitStatus>, time: Duration, memory_bytes_max: u64) -> Refusal {
        match status.and_then(|status| status.signal()) {
            Some(SIGXCPU) => Refusal { obstacle: Obstacle::Time, text: too_long(time) },
            // An allocation that fails ends it by SIGABRT, a stack that cannot grow by SIGSEGV, and the kernel by SIGKILL where its
            // control group has no room.
            Some(SIGABRT | SIGSEGV | SIGBUS | SIGKILL) => {
                Refusal { obstacle: Obstacle::Memory, text: too_much(memory_bytes_max) }
            }
            _ => Refusal::failure(&match status {
                Some(status) => format!("it ended with {status}"),
                None => "it cannot be waited for".to_owned(),
            }),
        }
    }
}

/// A process that answers, from before it starts until it has ended.
#[derive(Default)]
struct Helper {
    state: Mutex<State>,
    /// Given back once the process is gone.
    turn: Mutex<Option<OwnedSemaphorePermit>>,
    ended: Notify,
}

#[derive(Default)]
enum State {
    #[default]
    NotStarted,
    Running(Child),
    /// Killed before it was started, or waited for.
    Over,
}

impl Helper {
    /// Starts the process, unless it is not wanted any more.
    fn start(&self) -> io::Result<(ChildStdin, ChildStdout)> {
        // This same program, even if another one has been installed in its place. Without `pre_exec` and the like, the standard
        // library starts it by posix_spawn(3), which does not copy the page tables of the daemon's rings.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("weir").arg("query-helper").env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());

        let mut state = self.lock();
        if matches!(*state, State::Over) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut child = command.spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        *state = State::Running(child);
        pipes.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Ends the process, without waiting for it.
    fn kill(&self) {
        let mut state = self.lock();
        match &mut *state {
            State::NotStarted => *state = State::Over,
            State::Running(child) => {
                // It may have ended by itself.
                let _ = child.kill();
            }
            State::Over => {}
        }
    }

    /// Waits for a process that is ending, and gives the turn back. Says how it ended. May take long where a disk hangs.
    fn reap(&self) -> Option<ExitStatus> {
        let state = std::mem::replace(&mut *self.lock(), State::Over);
        let status = match state {
            State::Running(mut child) => child.wait().ok(),
            State::NotStarted | State::Over => None,
        };
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.ended.notify_one();
        status
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a helper when it is dropped, and has it waited for on a thread that may block.
struct Guard(Arc<Helper>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.kill();
        let helper = Arc::clone(&self.0);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || helper.reap());
        }
    }
}

enum Begun {
    Answer(Head, BufReader<ChildStdout>),
    /// It ended without a word.
    Ended(Option<ExitStatus>),
}

/// Starts the process, gives it the question and waits for the beginning of its answer.
fn begin(helper: &Helper, errand: &Errand) -> io::Result<Begun> {
    let (mut stdin, stdout) = helper.start()?;
    // One that ended before it had read everything says why by how it ended.
    let _ = errand.write(&mut stdin);
    drop(stdin);
    let mut stdout = BufReader::with_capacity(PIECE_BYTES, stdout);
    Ok(match Head::read(&mut stdout) {
        Some(head) => Begun::Answer(head, stdout),
        None => {
            helper.kill();
            Begun::Ended(helper.reap())
        }
    })
}

/// An answer as it is passed on.
struct Pieces {
    stdout: BufReader<ChildStdout>,
    /// Bytes still to come.
    left: u64,
    _guard: Guard,
}

impl Iterator for Pieces {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        if self.left == 0 {
            return None;
        }
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let wanted = self.left.min(PIECE_BYTES as u64);
        let read = (&mut self.stdout).take(wanted).read_to_end(&mut piece);
        Some(match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.left -= read as u64;
                Ok(piece)
            }
            Err(error) => Err(error),
        })
    }
}
