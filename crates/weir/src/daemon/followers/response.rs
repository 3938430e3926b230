//! The destination of a follower's sink: the response.

use super::chosen::Chosen;
use super::lines::Losses;
use super::{STALL_MAX, Stream, Why};
use ledger::Reason;
use sink::batch::{Attempt, BatchId, Fate, Outcome};
use sink::{Connector, Destination, Form};
use sockets::filter::Filter;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) fn connector(stream: &Arc<Stream>, filter: Option<Filter>) -> Connector {
    let (of_form, of_destination) = (Arc::clone(stream), Arc::clone(stream));
    let form = move || Form::Mixed(Box::new(Chosen::new(Arc::clone(&of_form), filter.clone())));
    let destination = move || {
        let response = Response {
            stream: Arc::clone(&of_destination),
            losses: Losses::default(),
            stall_max: STALL_MAX,
            sending: None,
            done: Vec::new(),
        };
        Ok(Box::new(response) as Box<dyn Destination>)
    };
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

/// Sends one batch at a time. A batch is delivered once the connection's socket has all of it.
struct Response {
    stream: Arc<Stream>,
    losses: Losses,
    stall_max: Duration,
    sending: Option<Sending>,
    done: Vec<Outcome>,
}

struct Sending {
    batch: BatchId,
    piece: u64,
    since: Instant,
}

const NOT_SENT: Fate = Fate::Dropped(Reason::FollowerEnded);

impl Response {
    /// What became of the batch being sent, after at most `wait`; `None` if it is still under way.
    fn fate(&self, sending: &Sending, wait: Duration) -> Option<Fate> {
        let progress = self.stream.connection.wait_until_sent(sending.piece, wait);
        if progress.sent >= sending.piece {
            return Some(Fate::Acknowledged);
        }
        if progress.is_over && progress.taken < sending.piece {
            return Some(NOT_SENT);
        }
        // Some of it may be with the client, or still get there.
        (progress.is_over || self.stream.is_given_up()).then_some(Fate::Uncertain)
    }
}

impl Destination for Response {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if self.sending.is_some() {
            return Err(attempt);
        }
        let batch = attempt.batch.id;
        let handed = if self.stream.is_given_up() {
            None
        } else {
            let mut piece = self
                .stream
                .meter
                .get()
                .map(|meter| self.losses.said(self.stream.form, meter))
                .unwrap_or_default();
            piece.extend_from_slice(&attempt.batch.encoded.bytes);
            self.stream.hand(piece)
        };
        match handed {
            Some(piece) => self.sending = Some(Sending { batch, piece, since: Instant::now() }),
            None => self.done.push(Outcome::all(batch, NOT_SENT)),
        }
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        if let Some(sending) = self.sending.take() {
            match self.fate(&sending, wait) {
                Some(fate) => self.done.push(Outcome::all(sending.batch, fate)),
                None => {
                    if sending.since.elapsed() >= self.stall_max {
                        self.stream.end(Why::Stalled);
                    }
                    self.sending = Some(sending);
                }
            }
        }
        done.append(&mut self.done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::Connection;
    use sink::batch::{Batch, Encoded, Part, PartKey, Parts};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::sync::mpsc;

    fn attempt(id: u64) -> Attempt {
        let part = Part { end: 3, rows: 1, row_bytes: 9, key: PartKey::NONE };
        let encoded = Encoded { bytes: b"{}\n".to_vec(), parts: vec![part] };
        let (kind, token, oldest_unix_ns) = (None, 0, 0);
        let batch = Batch { id: BatchId(id), kind, token, encoded, rows: 1, oldest_unix_ns };
        Attempt { batch: Arc::new(batch), parts: Parts::All }
    }

    #[test]
    fn a_client_that_takes_nothing_is_given_up_and_what_it_has_is_uncertain() {
        let (pieces, _kept) = tokio::sync::mpsc::channel(1);
        let (ends, ending) = mpsc::channel();
        let stream = Arc::new(Stream {
            connection: Arc::new(Connection::default()),
            pieces,
            handed: AtomicU64::new(0),
            wanted: AtomicU64::new(u64::MAX),
            is_given_up: AtomicBool::new(false),
            ends,
            meter: OnceLock::new(),
            form: admin::Form::Lines,
            early: Arc::default(),
        });
        let mut response = Response {
            stream: Arc::clone(&stream),
            losses: Losses::default(),
            stall_max: Duration::ZERO,
            sending: None,
            done: Vec::new(),
        };

        response.submit(attempt(1)).unwrap();
        assert!(response.submit(attempt(2)).is_err(), "one batch at a time");
        let mut done = Vec::new();
        response.poll(Duration::ZERO, &mut done);
        assert!(done.is_empty(), "{done:?}");
        assert_eq!(ending.try_recv(), Ok(Why::Stalled));

        stream.give_up();
        response.poll(Duration::ZERO, &mut done);
        response.submit(attempt(2)).unwrap();
        response.poll(Duration::ZERO, &mut done);
        let fates: Vec<_> = done.into_iter().map(|outcome| outcome.fate).collect();
        assert_eq!(fates, [Fate::Uncertain, NOT_SENT]);
    }
}
