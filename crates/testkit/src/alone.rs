//! Runs tests that need the whole machine one module after the other.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// The module whose tests are running, and how many.
static RUNNING: Mutex<(String, usize)> = Mutex::new((String::new(), 0));
static CHANGED: Condvar = Condvar::new();

thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Waits until only tests of the calling test's module run in this process, and keeps others out until the test has ended.
///
/// The harness of load tests calls it whenever it starts a process, so that no test can forget it; a test's second call
/// does nothing. The module is taken from the thread's name, which is the test's name; if libtest runs all tests on one
/// thread, there is nothing to wait for.
pub fn alone() {
    TURN.with_borrow_mut(|turn| {
        turn.get_or_insert_with(|| {
            let name = thread::current().name().unwrap_or("main").to_owned();
            let module = name.rsplit_once("::").map_or("", |(module, _)| module);
            Turn::take(module)
        });
    });
}

/// Ends with its thread, and so with the test.
struct Turn;

impl Turn {
    fn take(module: &str) -> Turn {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let is_others = |running: &mut (String, usize)| running.1 > 0 && running.0 != module;
        let mut running =
            CHANGED.wait_while(running, is_others).unwrap_or_else(PoisonError::into_inner);
        *running = (module.to_owned(), running.1 + 1);
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).1 -= 1;
        CHANGED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A thread with the name of a test that calls [`alone`], reports it, and ends when told.
    fn test(name: &str, said: &mpsc::Sender<String>) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
        let (end, ends) = mpsc::channel();
        let (own, said) = (name.to_owned(), said.clone());
        let body = move || {
            alone();
            alone();
            said.send(own).unwrap();
            let _ = ends.recv();
        };
        (end, thread::Builder::new().name(name.to_owned()).spawn(body).unwrap())
    }

    #[test]
    fn tests_of_one_file_run_together_and_those_of_another_wait() {
        let (sender, heard) = mpsc::channel();
        let (end_one, one) = test("law::one", &sender);
        let (end_two, two) = test("law::two", &sender);
        let mut both = [heard.recv().unwrap(), heard.recv().unwrap()];
        both.sort();
        assert_eq!(both, ["law::one", "law::two"]);

        let (end_other, other) = test("flood::other", &sender);
        drop(end_one);
        one.join().unwrap();
        assert_eq!(
            heard.try_recv(),
            Err(mpsc::TryRecvError::Empty),
            "one of the first two still runs"
        );
        assert_eq!(RUNNING.lock().unwrap().clone(), ("law".to_owned(), 1));

        drop(end_two);
        two.join().unwrap();
        assert_eq!(heard.recv().unwrap(), "flood::other");
        drop(end_other);
        other.join().unwrap();
    }
}
