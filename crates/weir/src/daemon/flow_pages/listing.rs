//! Streamed answers: parts for each agent, made while the answer is sent.

use super::super::flows::Shared;
use flows::{Agent, AgentId};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Approximate length of one piece of an answer.
const PIECE_BYTES: usize = 64 * 1024;

/// What encloses and separates the parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// A JSON list.
    Json,
    /// Lines.
    Lines,
}

/// Makes the parts of one agent; any number of them.
pub(crate) type Parts = Box<dyn Fn(&AgentId, &Agent) -> Vec<String> + Send>;

/// An answer made of parts.
pub(crate) struct Listing {
    pub(crate) shared: Arc<Shared>,
    pub(crate) form: Form,
    /// Parts that come before those of agents.
    pub(crate) first: Vec<String>,
    /// The agents still to be shown; the next one is last.
    pub(crate) agents: Vec<AgentId>,
    pub(crate) parts: Parts,
    pub(crate) state: State,
    /// Held for as long as the answer is being made.
    pub(crate) _permit: OwnedSemaphorePermit,
}

/// How far an answer has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Nothing has been made yet.
    Begin,
    /// Some parts have been made.
    Under,
    /// Everything has been made.
    Ended,
}

impl Iterator for Listing {
    type Item = std::io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Ended {
            return None;
        }

        let mut piece = Vec::with_capacity(PIECE_BYTES);
        if self.state == State::Begin && self.form == Form::Json {
            piece.push(b'[');
        }
        for part in std::mem::take(&mut self.first) {
            self.add(&mut piece, &part);
        }
        while piece.len() < PIECE_BYTES {
            let Some(id) = self.agents.pop() else {
                self.state = State::Ended;
                break;
            };
            // Copies the agent, so that the lock is not held while text is made. An agent that was forgotten meanwhile is left
            // out.
            let agent = self.shared.agent(&id);
            for part in agent.map(|agent| (self.parts)(&id, &agent)).unwrap_or_default() {
                self.add(&mut piece, &part);
            }
        }
        if self.state == State::Ended && self.form == Form::Json {
            piece.extend_from_slice(b"\n]\n");
        }
        Some(Ok(piece))
    }
}

impl Listing {
    fn add(&mut self, piece: &mut Vec<u8>, part: &str) {
        let before: &[u8] = match (self.form, self.state) {
            (Form::Json, State::Begin) => b"\n",
            (Form::Json, _) => b",\n",
            (Form::Lines, _) => b"",
        };
        piece.extend_from_slice(before);
        piece.extend_from_slice(part.as_bytes());
        if self.form == Form::Lines {
            piece.push(b'\n');
        }
        self.state = State::Under;
    }
}
