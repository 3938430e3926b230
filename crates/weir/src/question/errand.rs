//! A question between the daemon and the process that answers it: what the daemon writes to its standard input, and what comes
//! back on its standard output.

use serde_json::{Value as Json, json};
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;
use std::time::Duration;
use store::{Clearance, Limits};

/// Longest request; a statement has at most 64 KiB.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Longest sentence of a refusal.
const REFUSAL_BYTES_MAX: u64 = 16 << 10;
/// Longest first line of an answer.
const HEAD_BYTES_MAX: u64 = 64;

/// One question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Errand {
    /// The store's folder.
    pub(crate) folder: PathBuf,
    /// The name of the question; `None` for SQL of the asker's own.
    pub(crate) named: Option<String>,
    pub(crate) statement: String,
    pub(crate) clearance: Clearance,
    pub(crate) limits: Limits,
    /// Memory beyond what the process begins with.
    pub(crate) memory_bytes_max: u64,
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Obstacle {
    /// The statement is wrong, or does more than read.
    Statement,
    /// It reads sockets of other network namespaces.
    Sockets,
    /// It reads what was received.
    Contents,
    /// It took too long.
    Time,
    /// It needed too much memory.
    Memory,
    /// There is no store yet.
    NoStore,
    /// The store, or this process.
    Failure,
}

impl Obstacle {
    const ALL: [(Obstacle, &str); 7] = [
        (Obstacle::Statement, "statement"),
        (Obstacle::Sockets, "sockets"),
        (Obstacle::Contents, "contents"),
        (Obstacle::Time, "time"),
        (Obstacle::Memory, "memory"),
        (Obstacle::NoStore, "no-store"),
        (Obstacle::Failure, "failure"),
    ];
}

/// How an answer begins.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Head {
    /// JSON of this length follows.
    Answer(u64),
    Refusal(Obstacle, String),
}

const CLEARANCES: [(Clearance, &str); 3] = [
    (Clearance::Everything, "everything"),
    (Clearance::Sums, "sums"),
    (Clearance::Public, "public"),
];

impl Errand {
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let clearance = CLEARANCES.iter().find(|(clearance, _)| *clearance == self.clearance);
        let text = json!({
            "folder": self.folder.to_string_lossy(),
            "named": self.named,
            "statement": self.statement,
            "clearance": clearance.map(|(_, word)| word),
            "time_ms": u64::try_from(self.limits.time.as_millis()).unwrap_or(u64::MAX),
            "rows_max": self.limits.rows_max,
            "bytes_max": self.limits.bytes_max,
            "memory_bytes_max": self.memory_bytes_max,
        });
        to.write_all(text.to_string().as_bytes())
    }

    /// Reads to the end of the input. `None` if it is not a whole errand: the daemon has ended, or a person has called the command.
    pub(crate) fn read(from: impl Read) -> Option<Errand> {
        let mut bytes = Vec::new();
        from.take(REQUEST_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let json: Json = serde_json::from_slice(&bytes).ok()?;
        let number = |name: &str| json[name].as_u64();
        let size = |name: &str| usize::try_from(number(name)?).ok();
        let word = json["clearance"].as_str()?;
        let (clearance, _) = CLEARANCES.into_iter().find(|(_, of)| *of == word)?;
        Some(Errand {
            folder: json["folder"].as_str()?.into(),
            named: json["named"].as_str().map(str::to_owned),
            statement: json["statement"].as_str()?.to_owned(),
            clearance,
            limits: Limits {
                time: Duration::from_millis(number("time_ms")?),
                rows_max: size("rows_max")?,
                bytes_max: size("bytes_max")?,
            },
            memory_bytes_max: number("memory_bytes_max")?,
        })
    }
}

impl Head {
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Head::Answer(bytes) => writeln!(to, "answer {bytes}"),
            Head::Refusal(obstacle, text) => {
                let word = Obstacle::ALL.iter().find(|(one, _)| one == obstacle);
                writeln!(to, "{}\n{text}", word.map_or("failure", |(_, word)| word))
            }
        }
    }

    /// `None` if the process ended without a word.
    pub(crate) fn read(from: &mut impl BufRead) -> Option<Head> {
        let mut line = String::new();
        from.take(HEAD_BYTES_MAX).read_line(&mut line).ok()?;
        let word = line.strip_suffix('\n')?;
        if let Some(bytes) = word.strip_prefix("answer ") {
            return bytes.parse().ok().map(Head::Answer);
        }
        let (obstacle, _) = Obstacle::ALL.into_iter().find(|(_, of)| *of == word)?;
        let mut text = Vec::new();
        from.take(REFUSAL_BYTES_MAX).read_to_end(&mut text).ok()?;
        Some(Head::Refusal(obstacle, String::from_utf8_lossy(&text).trim_end().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errand_is_read_as_it_was_written() {
        for (clearance, _) in CLEARANCES {
            let errand = Errand {
                folder: "/var/lib/weir/history".into(),
                named: (clearance == Clearance::Sums).then(|| "losses".to_owned()),
                statement: "SELECT '\n\u{0}\"'".to_owned(),
                clearance,
                limits: Limits::default(),
                memory_bytes_max: 1 << 20,
            };
            let mut bytes = Vec::new();
            errand.write(&mut bytes).unwrap();
            assert_eq!(Errand::read(&bytes[..]), Some(errand));
            assert_eq!(Errand::read(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn heads() {
        let check = |head: Head| {
            let mut bytes = Vec::new();
            head.write(&mut bytes).unwrap();
            assert_eq!(Head::read(&mut &bytes[..]), Some(head));
        };
        check(Head::Answer(17));
        for (obstacle, _) in Obstacle::ALL {
            check(Head::Refusal(obstacle, "a\nb".to_owned()));
        }
        assert_eq!(Head::read(&mut &b"answer 1"[..]), None);
        assert_eq!(Head::read(&mut &b""[..]), None);
    }
}
