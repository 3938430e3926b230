use crate::errno::check;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has a child process be killed when the thread that starts it ends, however it ends (`PR_SET_PDEATHSIG`). The thread has to
/// live as long as the child is wanted.
pub fn die_with_this_thread(command: &mut Command) -> &mut Command {
    // An exec that changes credentials clears the signal (fs/exec.c, begin_new_exec); our children have ours.
    let start = || {
        // SAFETY: PR_SET_PDEATHSIG takes an integer.
        let set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
        check(set).map(drop).map_err(io::Error::from)
    };
    // SAFETY: between fork and exec only calls are allowed that take no lock another thread may have held: `start` makes one
    // system call and allocates nothing.
    unsafe { command.pre_exec(start) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_child_ends_with_the_thread_that_started_it() {
        let start = || die_with_this_thread(Command::new("sleep").arg("60")).spawn().unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
