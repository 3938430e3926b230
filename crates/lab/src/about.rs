use crate::machine::{self, Machine};
use crate::network::Properties;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// What must stand next to figures so that somebody else can judge and repeat them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// The exact command line, as one can paste it into a shell.
    pub command: String,
    /// The program's version, for example `0.1.0`.
    pub version: String,
    /// The commit that the program was built from; empty if unknown.
    pub commit: String,
    /// When it began, in nanoseconds since 1970 (UTC).
    pub began_unix_ns: u64,
    /// From the beginning to the end, with everything between.
    pub took_ns: u64,
    /// It was ended before everything was measured.
    pub interrupted: bool,
    pub machine: Machine,
    /// What a reader must know, one sentence each: what was left out and why, what disturbed the runs.
    pub notes: Vec<String>,
}

/// The beginning of an experiment, kept until it is over.
#[derive(Debug)]
pub struct Beginning {
    command: String,
    commit: String,
    /// When that was, in nanoseconds since 1970 (UTC).
    pub unix_ns: u64,
    at: Instant,
    /// Load average over one minute before anything was run; `None` where the system does not say.
    pub load: Option<f64>,
}

impl Beginning {
    /// It begins now, by this command line of the program that was built from this commit; empty if unknown.
    pub fn now(command: String, commit: &str) -> Beginning {
        Beginning {
            command,
            commit: commit.to_owned(),
            unix_ns: sys::clock::realtime_ns(),
            at: Instant::now(),
            load: machine::load(),
        }
    }

    /// It is over. `properties` are those of the network in which it was made.
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
