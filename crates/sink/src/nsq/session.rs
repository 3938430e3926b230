//! One connection to nsqd: the bytes to send, and the unanswered commands.

use super::channel::{self, Channel, Tls};
use super::protocol::{self, Frame, Frames, MAGIC, NOP};
use crate::batch::BatchId;
use crate::secret::Secret;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use sys::poll::{Interest, PollSet};

/// Interval of nsqd's heartbeats. nsqd closes a connection that takes twice as long for one command.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A connection that is silent for this long is considered dead.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// No further command is made while this much is unsent.
const UNSENT_BYTES_MAX: usize = 256 << 10;

/// Messages that were published in one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) batch: BatchId,
    pub(super) messages: usize,
    /// Its offset in the connection.
    start: u64,
}

/// What was received.
pub(super) enum Heard {
    Nothing,
    /// The oldest command succeeded.
    Published,
    /// nsqd refuses the oldest command, or this client, and closes.
    Failed(String),
    /// The connection has ended.
    Lost(Lost),
}

/// How a connection ended, and how to fix the cause.
pub(super) struct Lost {
    pub(super) what: String,
    pub(super) fix: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Identifying,
    /// The TLS handshake.
    Securing,
    Authenticating,
    Ready,
}

pub(super) struct Session {
    channel: Channel,
    stage: Stage,
    /// Our end of TLS, until the handshake begins.
    tls: Option<Tls>,
    auth: Option<Secret>,
    /// Whether nsqd requires authentication.
    is_asked: bool,
    frames: Frames,
    /// Bytes to send, of which the first `sent` have been.
    out: Vec<u8>,
    sent: usize,
    /// Bytes sent before `out` was last emptied.
    sent_before: u64,
    commands: VecDeque<Command>,
    /// When something was last received or, if later, when an answer was first awaited.
    heard_at: Instant,
    set: PollSet,
}

impl Session {
    pub(super) fn new(stream: TcpStream, tls: Option<Tls>, auth: Option<Secret>) -> Session {
        let mut out = MAGIC.to_vec();
        let about = format!(
            "{{\"client_id\":\"weir\",\"user_agent\":\"weir/{}\",\"feature_negotiation\":true,\"heartbeat_interval\":{},\"tls_v1\":{}}}",
            env!("CARGO_PKG_VERSION"),
            HEARTBEAT.as_millis(),
            tls.is_some()
        );
        protocol::command("IDENTIFY", about.as_bytes(), &mut out);
        Session {
            channel: Channel::new(stream),
            stage: Stage::Identifying,
            tls,
            auth,
            is_asked: false,
            frames: Frames::default(),
            out,
            sent: 0,
            sent_before: 0,
            commands: VecDeque::new(),
            heard_at: Instant::now(),
            set: PollSet::default(),
        }
    }

    /// Whether another command may be made.
    pub(super) fn has_room(&self) -> bool {
        self.stage == Stage::Ready && self.out.len() - self.sent < UNSENT_BYTES_MAX
    }

    /// Makes one command from the first messages. Returns how many it holds, at least one.
    pub(super) fn publish<'a>(
        &mut self,
        batch: BatchId,
        topic: &str,
        messages: impl Iterator<Item = &'a [u8]> + Clone,
        limit_bytes: usize,
    ) -> usize {
        let mut bytes = 4;
        let fit = |message: &&[u8]| {
            bytes += 4 + message.len();
            bytes <= limit_bytes
        };
        let count = messages.clone().take_while(fit).count().max(1);

        if self.commands.is_empty() {
            self.heard_at = Instant::now();
        }
        let start = self.sent_before + self.out.len() as u64;
        protocol::publish(topic, messages.take(count), &mut self.out);
        self.commands.push_back(Command { batch, messages: count, start });
        count
    }

    /// The oldest unanswered command.
    pub(super) fn front(&self) -> Option<Command> {
        self.commands.front().copied()
    }

    /// Removes the oldest command, which now has its answer.
    pub(super) fn answered(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// How many messages of a batch have been sent, at least in part, and have no answer.
    pub(super) fn sent_messages(&self, batch: BatchId) -> usize {
        let sent = self.sent_before + self.sent as u64;
        let its = self.commands.iter().filter(|one| one.batch == batch && one.start < sent);
        its.map(|one| one.messages).sum()
    }

    /// Sends and reads as much as possible, up to the next event that matters.
    pub(super) fn go_on(&mut self) -> Heard {
        // What arrived before a connection ended is processed before its end is reported.
        let written = self.write();
        loop {
            match self.frames.next_frame() {
                Ok(Some(frame)) => {
                    if let Some(heard) = self.take(frame) {
                        return heard;
                    }
                }
                Ok(None) => match self.read() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return self.why(&error),
                },
                Err(protocol::NotNsq) => {
                    return lost("what answers there is not nsqd");
                }
            }
        }

        if let Err(error) = written {
            return self.why(&error);
        }
        let waits = self.stage != Stage::Ready || !self.commands.is_empty();
        if waits && self.heard_at.elapsed() > SILENCE_MAX {
            return lost(&format!("nsqd has said nothing for {} s", SILENCE_MAX.as_secs()));
        }
        // A heartbeat or the handshake may have added something to send.
        match self.write() {
            Ok(()) => Heard::Nothing,
            Err(error) => self.why(&error),
        }
    }

    fn take(&mut self, frame: Frame) -> Option<Heard> {
        match (frame, self.stage) {
            (Frame::Heartbeat, _) => {
                self.out.extend_from_slice(NOP);
                None
            }
            (Frame::Message, _) => None,
            (Frame::Error(words), _) => Some(Heard::Failed(words)),
            (Frame::Response(answer), Stage::Identifying) => {
                // The answer is JSON without blanks, written by Go's encoder.
                self.is_asked = contains(&answer, b"\"auth_required\":true");
                let Some(tls) = self.tls.take() else { return self.authenticate() };
                if !contains(&answer, b"\"tls_v1\":true") {
                    return Some(Heard::Lost(Lost {
                        what: "this nsqd has no TLS".to_owned(),
                        fix: "start nsqd with --tls-cert and --tls-key, or write nsq:// in `to`",
                    }));
                }
                self.channel.secure(tls);
                // Bytes received before the handshake are not authenticated.
                self.frames = Frames::default();
                self.stage = Stage::Securing;
                None
            }
            (Frame::Response(_), Stage::Securing) => self.authenticate(),
            (Frame::Response(_), Stage::Authenticating) => {
                self.stage = Stage::Ready;
                None
            }
            (Frame::Response(_), Stage::Ready) => Some(Heard::Published),
        }
    }

    fn authenticate(&mut self) -> Option<Heard> {
        match self.auth.take().filter(|_| self.is_asked) {
            Some(secret) => {
                protocol::command("AUTH", secret.reveal().as_bytes(), &mut self.out);
                self.stage = Stage::Authenticating;
            }
            None => self.stage = Stage::Ready,
        }
        None
    }

    fn write(&mut self) -> io::Result<()> {
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.channel.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.sent_before += self.sent as u64;
        (self.out, self.sent) = (Vec::with_capacity(self.out.len()), 0);
        match self.channel.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// Reads some bytes; `false` if there are none now.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4_096];
        match self.channel.read(&mut buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.frames.push(buffer.get(..count).unwrap_or_default());
                self.heard_at = Instant::now();
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until something can be read or sent.
    pub(super) fn rest(&mut self, wait: Duration) {
        self.set.clear();
        self.set.add(self.channel.fd(), Interest::Readable);
        if self.sent < self.out.len() || self.channel.wants_write() {
            self.set.add(self.channel.fd(), Interest::Writable);
        }
        // Whatever ended the wait, the next step handles it.
        let _ = self.set.wait(wait);
    }

    fn why(&self, error: &io::Error) -> Heard {
        let what = match (error.kind(), self.stage) {
            (_, Stage::Securing) => format!("the TLS handshake failed: {error}"),
            (ErrorKind::UnexpectedEof, _) => "nsqd has closed the connection".to_owned(),
            _ => format!("the connection was lost: {error}"),
        };
        Heard::Lost(Lost { what, fix: channel::cure(error) })
    }
}

fn lost(what: &str) -> Heard {
    Heard::Lost(Lost { what: what.to_owned(), fix: "see that nsqd runs, and its log" })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
