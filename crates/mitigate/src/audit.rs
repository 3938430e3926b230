//! The audit log: one line of JSON for every decision and every answer of a speaker.

use crate::{Decision, Mode, Nlri, Policy, Verdict};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// One line of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A policy made a decision.
    Decided { mitigation: String, mode: Mode, decision: Box<Decision> },
    /// The speaker did what it was told; `verdict` is `Announce` or `Withdraw`.
    Accepted { verdict: Verdict, nlri: Nlri, took_us: u64 },
    /// The speaker refused it; it will be told again.
    Failed { verdict: Verdict, nlri: Nlri, error: String },
    /// The speaker is connected, and will be told everything again.
    Connected { speaker: String },
    /// The speaker is gone; whether it keeps what it had announced is up to it.
    Lost { speaker: String, error: String },
    /// Routes that an earlier process left with the speaker. They are withdrawn if no attack wants them
    /// soon.
    Found { routes: Vec<Nlri> },
    /// The file of routes could not be written: if Weir is killed, this route will not be found again.
    Unnoted { nlri: Nlri, error: String },
    /// Routes left with the speaker at the end: on purpose, or because it did not accept the withdrawal.
    Left { routes: Vec<Nlri>, reason: String },
}

impl Entry {
    pub(crate) fn decided(policy: &Policy, decision: Decision) -> Entry {
        let decision = Box::new(decision);
        Entry::Decided { mitigation: policy.name.clone(), mode: policy.mode, decision }
    }

    /// The line without its time, as a JSON object.
    pub fn to_json(&self) -> Value {
        match self {
            Entry::Decided { mitigation, mode, decision } => {
                let attack = decision.attack.as_ref();
                json!({
                    "event": word(decision.verdict),
                    "mitigation": mitigation,
                    "dry_run": *mode == Mode::DryRun,
                    "route": decision.route.as_ref().map(|(nlri, _)| nlri.to_string()),
                    "actions": decision.route.as_ref().map(|(_, actions)| actions.to_string()),
                    "target": attack.map(|attack| attack.flow.destination.to_string()),
                    "attack": attack.map(|attack| &attack.id),
                    "threshold": attack.map(|attack| &attack.threshold),
                    "value": attack.map(|attack| attack.value),
                    "reason": decision.reason,
                })
            }
            Entry::Accepted { verdict, nlri, took_us } => {
                json!({ "event": "accepted", "of": word(*verdict), "route": nlri.to_string(), "took_us": took_us })
            }
            Entry::Failed { verdict, nlri, error } => {
                json!({ "event": "failed", "of": word(*verdict), "route": nlri.to_string(), "error": error })
            }
            Entry::Connected { speaker } => json!({ "event": "connected", "speaker": speaker }),
            Entry::Lost { speaker, error } => {
                json!({ "event": "lost", "speaker": speaker, "error": error })
            }
            Entry::Found { routes } => json!({ "event": "found", "routes": shown(routes) }),
            Entry::Unnoted { nlri, error } => {
                json!({ "event": "unnoted", "route": nlri.to_string(), "error": error })
            }
            Entry::Left { routes, reason } => {
                json!({ "event": "left", "routes": shown(routes), "reason": reason })
            }
        }
    }
}

fn shown(routes: &[Nlri]) -> Vec<String> {
    routes.iter().map(Nlri::to_string).collect()
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Announce => "announce",
        Verdict::Withdraw => "withdraw",
        Verdict::Refuse => "refuse",
        Verdict::Wait => "wait",
    }
}

/// A file that lines are appended to. A line is a single write, so several processes can share the file.
pub struct AuditLog(File);

impl AuditLog {
    /// Opens or creates the file, for its owner alone. One that is there keeps the permissions that it was given.
    ///
    /// # Errors
    /// It cannot be opened for appending.
    pub fn open(path: &Path) -> io::Result<AuditLog> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(AuditLog)
    }

    /// Appends one line with its time. It reaches the disk when the kernel writes it back.
    ///
    /// # Errors
    /// The line, or part of it, was not written.
    pub fn append(&mut self, entry: &Entry, unix_ns: u64) -> io::Result<()> {
        let mut line = json!({ "time_unix_ns": unix_ns });
        if let (Value::Object(line), Value::Object(rest)) = (&mut line, entry.to_json()) {
            line.extend(rest);
        }
        self.0.write_all(format!("{line}\n").as_bytes())
    }
}
