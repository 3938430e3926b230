use crate::Errno;
use crate::errno::check;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel kill a child process when the thread that starts it ends, however it ends (`PR_SET_PDEATHSIG`). The thread
/// must live as long as the child is wanted.
pub fn die_with_this_thread(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    // An exec that changes credentials clears the signal (fs/exec.c, begin_new_exec); our children keep their credentials.
    let start = move || {
        // SAFETY: PR_SET_PDEATHSIG takes an integer.
        let set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
        check(set).map_err(io::Error::from)?;
        // If the parent was killed before that call, no signal will arrive.
        if std::os::unix::process::parent_id() == parent {
            Ok(())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    };
    // SAFETY: between fork and exec only calls are allowed that take no lock another thread may have held: `start` makes two
    // system calls and allocates nothing.
    unsafe { command.pre_exec(start) }
}

/// Has the kernel kill this process when the thread that started it ends (`PR_SET_PDEATHSIG`). A process whose parent ended before
/// this call is not killed: it sees that in what the parent no longer sends.
///
/// # Errors
/// None since Linux 2.4.
pub fn die_with_parent() -> Result<(), Errno> {
    // SAFETY: PR_SET_PDEATHSIG takes an integer.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    /// Runs in a separate process that ends between the fork and the call that requests the signal.
    #[test]
    fn a_child_whose_parent_is_gone_before_it_starts_ends_too() {
        const NAME: &str = "a_child_whose_parent_is_gone_before_it_starts_ends_too";
        const CHILD: &str = "WEIR_TEST_CHILD";
        if std::env::var(CHILD).as_deref() == Ok(NAME) {
            let parent = std::process::id().cast_signed();
            let mut command = Command::new("echo");
            let end_parent = move || {
                // SAFETY: `kill` takes integers.
                unsafe { libc::kill(parent, libc::SIGKILL) };
                while std::os::unix::process::parent_id().cast_signed() == parent {}
                Ok(())
            };
            // SAFETY: two system calls that allocate nothing.
            unsafe { command.arg("survived").pre_exec(end_parent) };
            let started = die_with_this_thread(&mut command).spawn();
            panic!("{started:?}");
        }
        let path = format!("process::parent::tests::{NAME}");
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &path, "--nocapture", "--test-threads=1"])
            .env(CHILD, NAME)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{said}");
        assert!(!said.contains("survived"), "{said}");
    }

    #[test]
    fn a_child_ends_with_the_thread_that_started_it() {
        let start = || die_with_this_thread(Command::new("sleep").arg("60")).spawn().unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
