//! NSQ: each part is a message, and nsqd answers OK for every group of them.
//!
//! nsqd answers commands in order, so several can be in flight. After any error to a publisher it reads nothing more and closes
//! (`FatalClientErr` in nsqd/protocol_v2.go): messages sent after a failed command are certainly not stored.

mod answers;
mod channel;
mod protocol;
mod session;

use crate::batch::{Attempt, Batch, BatchId, Failure, Fate, Outcome, Parts, Sent};
use crate::destination::{Connector, Destination, Form, ReadBack};
use crate::encode::{Content, Partition};
use crate::frames::StreamFraming;
use crate::secret::{SecretSource, TlsOptions};
use crate::tcp::{self, TcpOptions};
use ledger::{Reason, RejectClass, Trouble};
use record::RowKind;
use session::{Heard, Lost, Session};
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

pub use protocol::{Frame, Frames, NotNsq};

/// Where messages go, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NsqOptions {
    /// Names or addresses with their ports. Only one is connected at a time; the next when it fails.
    pub hosts: Vec<(String, u16)>,
    /// The topic of records and datagrams.
    pub topic: String,
    /// The topic of totals.
    pub totals_topic: String,
    /// The secret that nsqd passes to its authentication server, if it has one.
    pub auth: Option<SecretSource>,
    /// `None`: without TLS.
    pub tls: Option<TlsOptions>,
}

/// Most bytes of messages in one command, unless one message is larger: nsqd gives a slow connection 20 s for each command.
const COMMAND_BYTES: usize = 64 << 10;

/// nsqd's default for `--max-body-size`.
const BODY_BYTES_MAX: usize = 5 << 20;

/// Messages to a topic, one per row.
pub fn nsq(options: NsqOptions, content: Content) -> Connector {
    let form = move || {
        Form::ByKind(RowKind::ALL.map(|kind| (kind, content.encoder(Partition::Rows))).into())
    };
    let destination = move || Ok(Box::new(Nsq::new(options.clone())) as Box<dyn Destination>);
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

struct Nsq {
    options: NsqOptions,
    /// Index of the next host.
    host: usize,
    state: State,
    /// Attempts that are not settled completely, in order of arrival.
    held: VecDeque<Held>,
    done: Vec<Outcome>,
    /// The largest command that nsqd accepts.
    body_bytes_max: usize,
}

enum State {
    Idle,
    Connecting(Receiver<Result<Box<Session>, Trouble>>),
    Connected(Box<Session>),
}

/// An attempt in flight.
struct Held {
    attempt: Attempt,
    /// Parts without a fate, in order. Those in commands come first.
    open: VecDeque<u32>,
    /// How many of them are in commands.
    given: usize,
}

/// How a connection ended, and what that means for unanswered commands.
struct Ended {
    front: Front,
    /// Whether messages after the last command that nsqd read may have been sent.
    behind: Sent,
    reason: Option<Reason>,
    trouble: Trouble,
}

/// What it means for the oldest unanswered command.
enum Front {
    Failed(Sent),
    /// Messages longer than this are refused, and nothing of the command is stored.
    TooLarge {
        limit_bytes: usize,
        says: String,
    },
}

impl Nsq {
    fn new(options: NsqOptions) -> Nsq {
        let (state, body_bytes_max) = (State::Idle, BODY_BYTES_MAX);
        let (held, done) = (VecDeque::new(), Vec::new());
        Nsq { options, host: 0, state, held, done, body_bytes_max }
    }

    fn host(&self) -> (String, u16) {
        let at = self.host.checked_rem(self.options.hosts.len()).unwrap_or(0);
        self.options.hosts.get(at).cloned().unwrap_or_default()
    }

    /// URL of the current or next connection.
    fn url(&self) -> String {
        let (host, port) = self.host();
        let options = TcpOptions { host, port, framing: StreamFraming::None };
        let scheme = if self.options.tls.is_some() { "nsqs" } else { "nsq" };
        format!("{scheme}://{options}/{}", self.options.topic)
    }

    /// Makes progress until nothing more can be done at once.
    fn step(&mut self, wait: Duration) {
        match &mut self.state {
            State::Idle if self.held.is_empty() => {}
            State::Idle => self.begin_to_connect(),
            State::Connecting(answer) => match answer.recv_timeout(wait) {
                Ok(Ok(session)) => {
                    self.state = State::Connected(session);
                    self.drive();
                }
                Ok(Err(trouble)) => self.failed_to_connect(trouble),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let what = format!("{}: the thread that connects has ended", self.url());
                    let fix = "report it: it is a defect".to_owned();
                    self.failed_to_connect(Trouble { what, fix });
                }
            },
            State::Connected(_) => self.drive(),
        }
    }

    fn begin_to_connect(&mut self) {
        let (host, port) = self.host();
        let (shown, NsqOptions { auth, tls, .. }) = (self.url(), self.options.clone());
        let (tell, answer) = mpsc::channel();
        let connect = move || {
            let secret = auth.map(|auth| auth.read()).transpose()?;
            let tls = tls.map(|tls| channel::client(&host, &tls, &shown)).transpose()?;
            let options = TcpOptions { host, port, framing: StreamFraming::None };
            let stream = tcp::connect(&options, &shown)?;
            Ok(Box::new(Session::new(stream, tls, secret)))
        };
        // Name resolution may take long. The receiver may be gone by then.
        let run = move || drop(tell.send(connect()));
        match thread::Builder::new().name("connect".to_owned()).spawn(run) {
            Ok(_) => self.state = State::Connecting(answer),
            Err(error) => self.failed_to_connect(Trouble {
                what: format!("{}: no thread to connect with: {error}", self.url()),
                fix: "raise the limit of tasks: TasksMax of the unit, ulimit -u".to_owned(),
            }),
        }
    }

    fn failed_to_connect(&mut self, trouble: Trouble) {
        let (front, behind) = (Front::Failed(Sent::No), Sent::No);
        self.end(Ended { front, behind, reason: Some(Reason::Unavailable), trouble });
    }

    /// Sends what can be sent, and processes the answers.
    fn drive(&mut self) {
        self.give();
        loop {
            let State::Connected(session) = &mut self.state else { return };
            match session.go_on() {
                Heard::Nothing => break,
                Heard::Published => self.published(),
                Heard::Failed(words) => {
                    let ended = answers::ended(&self.url(), &words);
                    if let Some(limit_bytes) = answers::body_limit(&words) {
                        self.body_bytes_max = limit_bytes;
                    }
                    return self.end(ended);
                }
                Heard::Lost(Lost { what, fix }) => {
                    let (what, fix) = (format!("{}: {what}", self.url()), fix.to_owned());
                    let (front, behind) = (Front::Failed(Sent::Maybe), Sent::Maybe);
                    let (reason, trouble) = (Some(Reason::Unavailable), Trouble { what, fix });
                    return self.end(Ended { front, behind, reason, trouble });
                }
            }
            self.give();
        }
    }

    /// Makes commands from messages while there is room for them.
    fn give(&mut self) {
        let State::Connected(session) = &mut self.state else { return };
        for held in &mut self.held {
            while session.has_room() && held.given < held.open.len() {
                let batch = &held.attempt.batch;
                let topic = match batch.kind {
                    Some(RowKind::Totals) => &self.options.totals_topic,
                    _ => &self.options.topic,
                };
                let waiting = held.open.iter().skip(held.given);
                let messages = waiting.map(|place| batch.part(*place as usize));
                let limit_bytes = COMMAND_BYTES.min(self.body_bytes_max);
                held.given += session.publish(batch.id, topic, messages, limit_bytes);
            }
        }
    }

    /// nsqd has the messages of the oldest command.
    fn published(&mut self) {
        let State::Connected(session) = &mut self.state else { return };
        let Some(command) = session.answered() else { return };
        let is_its = |held: &Held| held.attempt.batch.id == command.batch;
        let Some(at) = self.held.iter().position(is_its) else { return };

        let held = &mut self.held[at];
        let parts: Vec<u32> = held.open.drain(..command.messages.min(held.given)).collect();
        held.given -= parts.len();
        let batch = command.batch;
        self.done.push(Outcome { batch, parts: Parts::Some(parts), fate: Fate::Acknowledged });
        if held.open.is_empty() {
            self.held.remove(at);
        }
    }

    /// The connection has ended or could not be opened. Returns everything without an answer.
    fn end(&mut self, ended: Ended) {
        let state = std::mem::replace(&mut self.state, State::Idle);
        let session = match &state {
            State::Connected(session) => Some(session),
            State::Idle | State::Connecting(_) => None,
        };
        if ended.reason.is_some() {
            self.host = self.host.wrapping_add(1);
        }

        let front = session.and_then(|session| session.front());
        for held in self.held.drain(..) {
            let id = held.attempt.batch.id;
            let of_front = front.filter(|command| command.batch == id);
            let in_front = of_front.map_or(0, |command| command.messages);
            let sent = session.map_or(0, |session| session.sent_messages(id));
            give_back(&mut self.done, &held, &ended, in_front, sent);
        }
    }

    fn rest(&mut self, wait: Duration) {
        if let State::Connected(session) = &mut self.state {
            session.rest(wait);
        }
    }
}

/// Reports the outcome of an attempt whose connection has ended. Its first `in_front` messages are in the command that nsqd read
/// last; those up to `sent` may have left this host.
fn give_back(done: &mut Vec<Outcome>, held: &Held, ended: &Ended, in_front: usize, sent: usize) {
    let batch = &held.attempt.batch;
    let [mut refused, mut maybe, mut no] = [const { Vec::new() }; 3];
    for (at, &place) in held.open.iter().enumerate() {
        let is_in_front = at < in_front;
        let bytes = batch.part(place as usize).len();
        let parts = match &ended.front {
            Front::TooLarge { limit_bytes, .. } if is_in_front && bytes > *limit_bytes => {
                &mut refused
            }
            Front::Failed(Sent::Maybe) if is_in_front && at < sent => &mut maybe,
            _ if !is_in_front && at < sent && ended.behind == Sent::Maybe => &mut maybe,
            _ => &mut no,
        };
        parts.push(place);
    }

    if let Front::TooLarge { says, .. } = &ended.front {
        let fate = Fate::Rejected { class: RejectClass::TooLarge, says: says.clone() };
        push(done, batch.id, refused, fate);
    }
    for (parts, sent) in [(maybe, Sent::Maybe), (no, Sent::No)] {
        let (reason, trouble) = (ended.reason, ended.trouble.clone());
        let failure = Failure { sent, reason, after: None, trouble };
        push(done, batch.id, parts, Fate::Failed(failure));
    }
}

fn push(done: &mut Vec<Outcome>, batch: BatchId, parts: Vec<u32>, fate: Fate) {
    if !parts.is_empty() {
        done.push(Outcome { batch, parts: Parts::Some(parts), fate });
    }
}

impl Destination for Nsq {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        let batch = &attempt.batch;
        let places = attempt.parts.places(batch.encoded.parts.len());
        let (empty, open): (Vec<u32>, Vec<u32>) = places
            .map(|place| place as u32)
            .partition(|place| batch.part(*place as usize).is_empty());
        let says = "nsqd takes no empty message".to_owned();
        push(&mut self.done, batch.id, empty, Fate::Rejected { class: RejectClass::Invalid, says });

        if !open.is_empty() {
            self.held.push_back(Held { attempt, open: open.into(), given: 0 });
        }
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            self.step(left);
            if !self.done.is_empty() || self.held.is_empty() || left.is_zero() {
                break;
            }
            self.rest(left);
        }
        done.append(&mut self.done);
    }

    fn read_back(&mut self, _batch: &Batch, _wait: Duration) -> ReadBack {
        ReadBack::Cannot("whoever reads a topic of NSQ takes its messages away from others")
    }

    fn close(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        let until = Instant::now() + wait;
        while !self.held.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            self.poll(left, done);
            if left.is_zero() {
                break;
            }
        }
        let what = format!("{} had not answered everything at the end", self.url());
        let fix = "raise drain_grace, or see whether nsqd hangs".to_owned();
        let (front, behind) = (Front::Failed(Sent::Maybe), Sent::Maybe);
        let (reason, trouble) = (Some(Reason::Unavailable), Trouble { what, fix });
        self.end(Ended { front, behind, reason, trouble });
        done.append(&mut self.done);
    }
}
