use crate::machine::{self, Machine};
use crate::network::Properties;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// What a reader needs next to the figures to judge and repeat them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// The exact command line, ready to paste into a shell.
    pub command: String,
    /// The program's version, for example `0.1.0`.
    pub version: String,
    /// The commit from which the program was built; empty if unknown.
    pub commit: String,
    /// When the experiment began, in nanoseconds since 1970 (UTC).
    pub began_unix_ns: u64,
    /// Time from the beginning to the end of the experiment, including all pauses.
    pub took_ns: u64,
    /// Whether the experiment was stopped before everything was measured.
    pub interrupted: bool,
    pub machine: Machine,
    /// What a reader must know, one sentence each: what was left out and why, and what disturbed the runs.
    pub notes: Vec<String>,
}

/// The beginning of an experiment, kept until its end.
#[derive(Debug)]
pub struct Beginning {
    command: String,
    commit: String,
    /// When the experiment began, in nanoseconds since 1970 (UTC).
    pub unix_ns: u64,
    at: Instant,
    /// Load average over one minute before the first run; `None` where the system does not report it.
    pub load: Option<f64>,
}

impl Beginning {
    /// Records that the experiment begins now. `command` is the command line, `commit` is the commit from
    /// which the program was built; empty if unknown.
    pub fn now(command: String, commit: &str) -> Beginning {
        Beginning {
            command,
            commit: commit.to_owned(),
            unix_ns: sys::clock::realtime_ns(),
            at: Instant::now(),
            load: machine::load(),
        }
    }

    /// Records the end of the experiment. `properties` are those of the network in which the experiment was
    /// made.
    pub fn end(&self, properties: &Properties, notes: Vec<String>) -> About {
        About {
            command: self.command.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: self.commit.clone(),
            began_unix_ns: self.unix_ns,
            took_ns: self.at.elapsed().as_nanos() as u64,
            interrupted: false,
            machine: Machine {
                load_before: self.load,
                load_after: machine::load(),
                ..Machine::of(properties)
            },
            notes,
        }
    }
}
