use crate::experiment::model::Machine;
use serde::Serialize;

/// What must stand beside figures so that somebody else can judge and repeat them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct About {
    /// The exact command line, as one can paste it into a shell.
    pub command: String,
    /// The program's version.
    pub version: String,
    /// The commit that the program was built from; empty if unknown.
    pub commit: String,
    /// When it began, in nanoseconds since 1970 (UTC).
    pub began_unix_ns: u64,
    /// From the beginning to the end.
    pub took_ns: u64,
    /// It was ended before everything was measured.
    pub interrupted: bool,
    pub machine: Machine,
    /// What a reader must know, one sentence each.
    pub notes: Vec<String>,
}
