//! Passes pieces of an answer from the collector's thread to the asker, in bounded memory and without blocking the collector.

use super::QueryError;
use crate::collector::Signal;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes waiting for the reader at which the collector stops reading ahead.
const WAITING_BYTES: usize = 1 << 20;

/// Both ends of a pipe. The reader wakes the collector whenever it takes something or goes.
pub(super) fn pipe(signal: &Arc<Signal>) -> (Pen, Answer) {
    let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
    (Pen(Arc::clone(&shared)), Answer { shared, signal: Arc::clone(signal) })
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Vec<u8>>,
    bytes: usize,
    end: End,
    is_reader_gone: bool,
}

/// What follows the waiting pieces.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum End {
    /// More, later.
    #[default]
    Open,
    /// Nothing: the answer is complete.
    Whole,
    /// Nothing: the answer was cut off.
    Broken,
}

/// The collector's end. Dropping it before [`finish`](Self::finish) cuts the answer off.
pub(super) struct Pen(Arc<Shared>);

/// How much of an answer is still waiting for the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiting {
    /// The reader has taken everything.
    Nothing,
    /// Less than the limit.
    Some,
    /// The limit or more.
    Full,
    /// The reader has gone.
    Nobody,
}

impl Pen {
    pub(super) fn waiting(&self) -> Waiting {
        let state = self.0.lock();
        match state.bytes {
            _ if state.is_reader_gone => Waiting::Nobody,
            0 => Waiting::Nothing,
            bytes if bytes < WAITING_BYTES => Waiting::Some,
            _ => Waiting::Full,
        }
    }

    /// Adds a piece, no matter how much waits: the writer checks [`waiting`](Self::waiting) first.
    pub(super) fn write(&self, chunk: Vec<u8>) {
        let mut state = self.0.lock();
        if !chunk.is_empty() && !state.is_reader_gone {
            state.bytes += chunk.len();
            state.chunks.push_back(chunk);
        }
        // Unlocked first, because the awakened reader takes the lock.
        drop(state);
        self.0.changed.notify_one();
    }

    /// Marks the answer as complete.
    pub(super) fn finish(&self) {
        self.0.lock().end = End::Whole;
        self.0.changed.notify_one();
    }

    /// Discards what waits, and reports that to the reader when it comes.
    pub(super) fn break_off(&self) {
        let mut state = self.0.lock();
        *state =
            State { end: End::Broken, is_reader_gone: state.is_reader_gone, ..State::default() };
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if state.end == End::Open {
            state.end = End::Broken;
        }
        drop(state);
        self.0.changed.notify_one();
    }
}

/// An answer as it is made, in pieces of about 64 KiB; together they form one JSON object. The collector reads at most about 1
/// MiB ahead. It ends an answer from which nothing was taken for two seconds (with `truncated` at the end of the object), and
/// discards one that is not taken at all: its last item is then an error.
pub struct Answer {
    shared: Arc<Shared>,
    signal: Arc<Signal>,
}

impl Answer {
    /// Waits for the whole answer and returns it.
    ///
    /// # Errors
    /// The answer was cut off.
    pub fn whole(self) -> Result<Vec<u8>, QueryError> {
        let mut whole = Vec::new();
        for chunk in self {
            whole.extend_from_slice(&chunk?);
        }
        Ok(whole)
    }
}

impl Iterator for Answer {
    type Item = Result<Vec<u8>, QueryError>;

    /// Waits for the next piece.
    fn next(&mut self) -> Option<Self::Item> {
        let mut state = self.shared.lock();
        loop {
            if let Some(chunk) = state.chunks.pop_front() {
                state.bytes -= chunk.len();
                drop(state);
                self.signal.wake();
                return Some(Ok(chunk));
            }

            match state.end {
                End::Open => {
                    state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                End::Whole => return None,
                End::Broken => {
                    // The error is returned once; then the answer ends.
                    state.end = End::Whole;
                    return Some(Err(QueryError::Broken));
                }
            }
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        *state = State { is_reader_gone: true, end: state.end, ..State::default() };
        drop(state);
        self.signal.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> (Pen, Answer) {
        pipe(&Arc::new(Signal::new(wire::inet_diag::Extensions::NONE).unwrap()))
    }

    #[test]
    fn what_is_written_arrives_in_order_and_then_the_end() {
        let (pen, mut answer) = new();
        pen.write(b"one".to_vec());
        pen.write(Vec::new());
        pen.write(b"two".to_vec());
        assert_eq!(pen.waiting(), Waiting::Some);
        assert_eq!(answer.next(), Some(Ok(b"one".to_vec())));
        pen.finish();
        assert_eq!(answer.next(), Some(Ok(b"two".to_vec())));
        assert_eq!(pen.waiting(), Waiting::Nothing);
        drop(pen);
        assert_eq!((answer.next(), answer.next()), (None, None));
    }

    #[test]
    fn a_full_pipe_says_so_and_takes_the_end_all_the_same() {
        let (pen, answer) = new();
        while pen.waiting() != Waiting::Full {
            pen.write(vec![7; 100_000]);
        }
        pen.write(b"]}".to_vec());
        pen.finish();
        let whole = answer.whole().unwrap();
        assert!(whole.len() >= WAITING_BYTES && whole.len() < WAITING_BYTES + 100_003);
        assert!(whole.ends_with(b"\x07]}"));
    }

    #[test]
    fn a_reader_that_has_gone_is_noticed_and_costs_nothing() {
        let (pen, answer) = new();
        pen.write(vec![7; WAITING_BYTES]);
        drop(answer);
        pen.write(vec![7; WAITING_BYTES]);
        assert_eq!(pen.waiting(), Waiting::Nobody);
        assert_eq!(pen.0.lock().bytes, 0);
    }

    #[test]
    fn an_answer_without_an_end_is_an_error_at_its_end() {
        let (pen, mut answer) = new();
        pen.write(b"one".to_vec());
        drop(pen);
        assert_eq!(answer.next(), Some(Ok(b"one".to_vec())));
        assert_eq!((answer.next(), answer.next()), (Some(Err(QueryError::Broken)), None));
        let (pen, answer) = new();
        pen.write(b"one".to_vec());
        pen.break_off();
        drop(pen);
        assert_eq!(answer.whole(), Err(QueryError::Broken), "nothing of it is left");
    }

    #[test]
    fn a_reader_waits_for_what_comes() {
        let (pen, answer) = new();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| answer.whole());
            for piece in [b"a", b"b", b"c"] {
                pen.write(piece.to_vec());
            }
            pen.finish();
            assert_eq!(reader.join().unwrap(), Ok(b"abc".to_vec()));
        });
    }
}
