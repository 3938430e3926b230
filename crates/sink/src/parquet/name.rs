//! The folder and name of a file: `table=sockets/date=2026-11-22/hour=18/20261122T184200.123456Z-HOST-TOKEN.parquet`.
//!
//! The partition and the time are those at which the file's oldest row arrived at this host or was made here, in UTC: rows that
//! came over a link may say any time. The names in a partition sort by that time. The token is derived
//! from the rows, so that the same batch always gets the same name.

use crate::batch::Batch;
use ::record::RowKind;
use columns::Table;
use text::Civil;

/// Most bytes of the host's name in a file's name.
const HOST_MAX_BYTES: usize = 64;

/// The files of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    host: String,
}

impl Names {
    /// Replaces everything but letters, digits and dots: a host's name may come from anywhere.
    pub(crate) fn of_host(host: &str) -> Names {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
        Names { host: host.chars().take(HOST_MAX_BYTES).map(plain).collect() }
    }

    /// The folders and the name of a batch's file.
    pub(crate) fn of(&self, batch: &Batch) -> ([String; 3], String) {
        let table = Table::name_of(batch.kind.unwrap_or(RowKind::Record));
        let time = Civil::of(batch.oldest_unix_ns);
        let date = format!("{:04}-{:02}-{:02}", time.year, time.month, time.day);
        let partition =
            [format!("table={table}"), format!("date={date}"), format!("hour={:02}", time.hour)];

        let stamp = format!(
            "{}T{:02}{:02}{:02}.{:06}Z",
            date.replace('-', ""),
            time.hour,
            time.minute,
            time.second,
            time.micros
        );
        (partition, format!("{stamp}-{}-{:032x}.parquet", self.host, batch.token))
    }

    /// Whether a file's name is one that this host gives.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        let parts = name.strip_suffix(".parquet").and_then(|name| {
            let (name, token) = name.rsplit_once('-')?;
            let (stamp, host) = name.split_once('-')?;
            Some((stamp, host, token))
        });
        parts.is_some_and(|(stamp, host, token)| {
            let is_token = token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_token && host == self.host && stamp.ends_with('Z')
        })
    }

    /// Whether a file is one that this host began and did not finish.
    pub(crate) fn is_own_unfinished(&self, name: &str) -> bool {
        let finished = name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp"));
        finished.is_some_and(|name| self.is_own(name))
    }
}

/// The name of a file while it is written. Readers of a folder ignore names that begin with a dot.
pub(crate) fn unfinished(name: &str) -> String {
    format!(".{name}.tmp")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchId, Encoded};

    fn batch() -> Batch {
        Batch {
            id: BatchId(1),
            kind: Some(RowKind::Totals),
            token: 0xabc,
            encoded: Encoded::default(),
            rows: 1,
            oldest_unix_ns: 1_795_372_920_000_001_999,
        }
    }

    #[test]
    fn a_name_says_table_time_host_and_rows() {
        let (partition, name) = Names::of_host("web-1.example").of(&batch());
        assert_eq!(partition, ["table=polls", "date=2026-11-22", "hour=18"]);
        assert_eq!(
            name,
            "20261122T184200.000001Z-web_1.example-00000000000000000000000000000abc.parquet"
        );
    }

    #[test]
    fn only_own_files_are_own() {
        let names = Names::of_host("../a b");
        let (_, name) = names.of(&batch());
        assert!(names.is_own(&name) && !names.is_own_unfinished(&name), "{name}");
        let unfinished = unfinished(&name);
        assert!(names.is_own_unfinished(&unfinished) && !names.is_own(&unfinished));
        assert!(!Names::of_host("b").is_own(&name));
        for other in ["part-0.parquet", "a.parquet", ".parquet", "", "x-.._a_b-1.parquet"] {
            assert!(!names.is_own(other), "{other}");
        }
    }
}
