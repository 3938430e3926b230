//! Processes that a test starts, reads from, and ends.

use crate::wait::wait_for;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// A process that is killed with this value.
pub struct Peer(pub Child);

impl Peer {
    /// Starts it.
    pub fn start(command: &mut Command) -> Peer {
        Peer(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Asks it to end, and waits.
    pub fn terminate(&mut self) -> ExitStatus {
        signal(&self.0, "TERM");
        self.0.wait().unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal by name.
pub fn signal(process: &Child, name: &str) {
    let pid = process.id().to_string();
    let status = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &pid]).status();
    assert!(status.unwrap().success(), "kill -s {name} {pid}");
}

/// Runs a program to its end and returns its standard output; an exit status other than 0 fails the test.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// A process whose standard error is read while it runs, and whose standard output is read at its end. It is killed with
/// this value, and its messages are shown if the test fails.
pub struct Process {
    peer: Peer,
    said: Arc<Mutex<String>>,
    hearing: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts it without standard input.
    pub fn start(mut command: Command) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut peer = Peer::start(&mut command);
        let stderr = BufReader::new(peer.0.stderr.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);

        let hearing = thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                *heard.lock().unwrap() += &(line + "\n");
            }
        });
        Process { peer, said, hearing: Some(hearing) }
    }

    /// The process itself.
    pub fn child(&self) -> &Child {
        &self.peer.0
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.peer.0.id()
    }

    /// Standard error so far, in complete lines.
    pub fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line that contains `mark`; returns the text after it in each such line.
    #[track_caller]
    pub fn hear(&mut self, mark: &str) -> Vec<String> {
        let waits_for = format!("hearing {mark:?}");
        wait_for(waits_for, || {
            let has_ended = !self.is_running();
            let said = self.said();
            let rest = |line: &str| Some(line.split_once(mark)?.1.to_owned());
            let found: Vec<String> = said.lines().filter_map(rest).collect();
            assert!(!found.is_empty() || !has_ended, "ended without saying {mark:?}: {said}");
            (!found.is_empty()).then_some(found)
        })
    }

    /// Sends it a signal by name.
    pub fn signal(&self, name: &str) {
        signal(&self.peer.0, name);
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        self.peer.0.try_wait().unwrap().is_none()
    }

    /// Closes the reading end of its standard output.
    pub fn close_stdout(&mut self) {
        drop(self.peer.0.stdout.take());
    }

    /// Waits for its end; returns its exit status and its standard output.
    #[track_caller]
    pub fn finish(&mut self) -> (ExitStatus, String) {
        let stdout = self.peer.0.stdout.take();
        let text = thread::spawn(move || {
            let mut text = String::new();
            stdout.map(|mut stdout| stdout.read_to_string(&mut text).unwrap());
            text
        });

        let status = wait_for("the end of a process", || self.peer.0.try_wait().unwrap());
        self.hearing.take().map(JoinHandle::join);
        (status, text.join().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            crate::say(&self.said());
        }
    }
}

/// A copy of the test program that every user can execute.
pub struct OwnProgram(PathBuf);

impl OwnProgram {
    /// Makes the copy; `name` distinguishes it from other copies of this process.
    pub fn copy(name: &str) -> OwnProgram {
        let path = env::temp_dir().join(format!("weir-own-{name}-{}", std::process::id()));
        // Made by another process: a child forked here meanwhile would have the file open for writing, and a program that is
        // open for writing cannot be started (ETXTBSY).
        run(Command::new("cp").arg(env::current_exe().unwrap()).arg(&path));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        OwnProgram(path)
    }

    /// Runs the tests with these names (`module::function`) and no others.
    pub fn command(&self, tests: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["--exact", "--nocapture", "--test-threads=1"]).args(tests).current_dir("/");
        command
    }
}

impl Drop for OwnProgram {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
