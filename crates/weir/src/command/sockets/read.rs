//! `--read`: shows a capture instead of the running kernel.

mod report;

use super::args::Args;
use super::assemble::{Assembler, Place, Take};
use crate::exit::Failure;
use crate::refused;
use record::RecordKind;
use report::Report;
use sockets::Transport;
use sockets::filter::{self, Explanation, Filter};
use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Instant;
use wire::DecodeError;
use wire::capture::{self, Captured, Meaning, Reader, Replies};
use wire::inet_diag::{SocketMessage, State, States, decode};

/// A file in memory that holds socket messages, or nothing at all.
pub(super) struct Capture {
    bytes: Vec<u8>,
}

impl Capture {
    /// Reads a file, `-` for standard input.
    ///
    /// # Errors
    /// The file cannot be read, or is not a capture because nothing in it can be decoded.
    pub(super) fn open(path: &Path) -> anyhow::Result<Capture> {
        let shown = path.display();
        let bytes = content(path).map_err(|error| refused::unreadable(path, &error))?;

        let is_none = |error: String| {
            Failure::InputMissing.error(format!(
                "{shown} is not a capture of sockets: {error}. Fix: make one with: weir sockets --write {shown}"
            ))
        };

        let reader = capture::read(&bytes).map_err(|error| is_none(error.to_string()))?;
        let form = reader.form();

        match first_error_of_nothing(reader) {
            None => Ok(Capture { bytes }),
            Some(error @ DecodeError::WrongLinkType(_)) => Err(is_none(error.to_string())),
            Some(error) => Err(is_none(format!(
                "it begins like {form}, and nothing in it can be decoded: {error}"
            ))),
        }
    }

    /// Hands on every TCP socket, and reports what else the file holds. Broken parts are counted.
    ///
    /// # Errors
    /// The file is not a capture. [`Capture::open`] has already checked that.
    pub(super) fn read(
        &self,
        args: &Args,
        filter: &Filter,
        assembler: &mut Assembler,
        take: &mut dyn Take,
    ) -> anyhow::Result<Report> {
        let mut reader = capture::read(&self.bytes)?;
        let mut replies = reader.replies();
        let mut report = Report::default();

        assembler.begin_poll();
        let states = filter.states().unwrap_or(args.states(Transport::Tcp));
        let mut closed = HashSet::new();

        for captured in &mut reader {
            let socket = captured.and_then(|captured| {
                Ok((socket_in(&captured, &mut replies, &mut report)?, captured))
            });

            match socket {
                Ok((None, _)) => {}
                // An event is captured once for each program that listens for it.
                Ok((Some((RecordKind::CLOSE, socket)), _)) if !closed.insert(socket.id.cookie) => {
                    assembler.counts.doubled += 1;
                }
                Ok((Some((kind, socket)), captured)) if wants(states, socket.state) => {
                    let place = Place {
                        found: None,
                        is_own: false,
                        transport: Transport::Tcp,
                        kind,
                        rest: filter.expression(),
                        time_unix_ns: captured.time_unix_ns,
                        now: Instant::now(),
                    };
                    assembler.socket(&socket, captured.message.raw, &place, take);
                }
                Ok((Some(_), _)) => assembler.counts.filtered += 1,
                Err(error) => report.broken(&error),
            }
        }

        report.end(&reader, &replies);
        Ok(report)
    }
}

/// The TCP socket that a message describes, live or at its close. Other messages go into the report.
fn socket_in<'a>(
    captured: &Captured<'a>,
    replies: &mut Replies,
    report: &mut Report,
) -> Result<Option<(RecordKind, SocketMessage<'a>)>, DecodeError> {
    let kind = match replies.judge(&captured.message)? {
        Meaning::Tcp => RecordKind::POLL,
        Meaning::Close => RecordKind::CLOSE,
        meaning => {
            report.note(meaning);
            return Ok(None);
        }
    };

    decode(captured.message.body).map(|socket| Some((kind, socket)))
}

/// Why a file is not a capture: it is not empty, and nothing in it can be decoded. An empty file is a capture.
fn first_error_of_nothing(reader: Reader<'_>) -> Option<DecodeError> {
    let (mut replies, mut unused) = (reader.replies(), Report::default());
    let mut first = None;
    for captured in reader {
        match captured.and_then(|captured| socket_in(&captured, &mut replies, &mut unused)) {
            Ok(_) => return None,
            Err(error) => first = first.or(Some(error)),
        }
    }
    first
}

/// Whether sockets in this state are wanted. An unknown state has no name that a filter could exclude, so it is wanted whenever
/// all unnamed states are (bit 0, see [`States::ALL`]). Replies report bound sockets, which have their own bit in requests, as
/// closed.
fn wants(states: States, state: State) -> bool {
    states.contains(state)
        || match state {
            State::Unknown(_) => states.bits() & 1 != 0,
            State::Closed => states.contains(State::BoundInactive),
            _ => false,
        }
}

/// Explains where the filter runs.
pub(super) fn explain(filter: &Filter) -> Explanation {
    let part = filter.to_string();
    Explanation {
        place: filter::Place::Here,
        part: if part.is_empty() { "every socket".to_owned() } else { part },
        reason: "a file is read: there is no kernel to ask".to_owned(),
    }
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    fs::read(path)
}
