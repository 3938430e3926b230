//! Datagrams into files by sender and time: `file:/var/log/{host}/{date}.log`.
//!
//! The encoder groups rows by file, so a batch has one part per file; each part begins with its path. The pieces of a path
//! come from strangers: they are sanitized, and their number is limited.

use super::hosts::Hosts;
use super::{FileOptions, RotatedFile};
use crate::batch::{Attempt, Encoded, Fate, Outcome, Part, PartKey, Parts, Sent};
use crate::destination::{BatchEncoder, Connector, Destination, Form, OwnFigures, Pushed};
use crate::durability::{Due, SyncTimer};
use crate::encode::{Content, Framing, Partition, RowEncoder};
use ledger::{Event, Reason};
use record::{Arrivals, DatagramRecord, Row, RowKind, Written, decode_datagram_record};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use text::Civil;

/// Most files open at a time; the one written least recently is closed for the next.
const OPEN_MAX: usize = 64;

/// Longest host name in a path, in bytes.
const HOST_BYTES_MAX: usize = 128;

/// A path with placeholders in braces for the sender, day (UTC) and listener of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTemplate(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Host,
    Date,
    Listener,
}

impl PathTemplate {
    /// Parses a path with `{host}`, `{date}` or `{listener}` in it; `None` if it has none of them.
    ///
    /// # Errors
    /// The first unknown name in braces.
    pub fn parse(path: &str) -> Result<Option<PathTemplate>, String> {
        let (mut pieces, mut rest) = (Vec::new(), path);
        while let Some((before, inside)) = rest.split_once('{') {
            let (name, after) = inside.split_once('}').ok_or_else(|| inside.to_owned())?;
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(match name {
                "host" => Piece::Host,
                "date" => Piece::Date,
                "listener" => Piece::Listener,
                other => return Err(other.to_owned()),
            });
            rest = after;
        }

        if pieces.is_empty() {
            return Ok(None);
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Some(PathTemplate(pieces)))
    }

    /// The directory that must exist: the part before the first placeholder.
    pub fn folder(&self) -> PathBuf {
        let Some(Piece::Text(first)) = self.0.first() else { return PathBuf::from(".") };
        match first.rsplit_once('/') {
            Some(("", _)) => PathBuf::from("/"),
            Some((folder, _)) => PathBuf::from(folder),
            None => PathBuf::from("."),
        }
    }

    /// `arrivals`: the day is one on which the row arrived here. Other hosts have no say in how many files there are.
    fn path(&self, host: &str, record: &DatagramRecord<'_>, arrivals: Arrivals) -> String {
        let mut path = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => path.push_str(text),
                Piece::Host => path.push_str(host),
                Piece::Date => {
                    path.push_str(&date(arrivals.nearest(record.time_unix_ns.unwrap_or_default())));
                }
                Piece::Listener => path.push_str(&harmless(record.listener.unwrap_or_default())),
            }
        }
        path
    }
}

/// A name made safe as a path component: no separators, not `.` or `..`, not hidden, not empty.
fn harmless(name: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() || "._-:".contains(c) {
        true => c,
        false => '_',
    };
    let mut name: String = name.chars().take(HOST_BYTES_MAX).map(plain).collect();
    if name.starts_with('.') {
        name.replace_range(..1, "_");
    }
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// The sender: the host named in the message, if that was parsed, else the source address.
fn host_of(record: &DatagramRecord<'_>) -> String {
    match (record.hostname, record.source_address) {
        (Some(name), _) => harmless(name),
        (None, Some(address)) => harmless(&address.to_string()),
        (None, None) => "local".to_owned(),
    }
}

fn date(unix_ns: u64) -> String {
    let Civil { year, month, day, .. } = Civil::of(unix_ns);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Files by sender and day. The path in the options is not used.
pub fn files(template: PathTemplate, options: FileOptions, content: Content) -> Connector {
    let of_form = template.clone();
    let form = move || {
        Form::Mixed(Box::new(PathEncoder {
            template: of_form.clone(),
            rows: content.row_encoder(Partition::Whole),
            hosts: Hosts::default(),
            filling: BTreeMap::new(),
            bytes: 0,
        }) as Box<_>)
    };
    let destination = move || {
        Ok(Box::new(Files {
            folder: template.folder(),
            options: options.clone(),
            framing: content.framing(),
            open: Vec::new(),
            closed: [0, 0],
            done: Vec::new(),
            timer: SyncTimer::new(options.durability),
        }) as Box<dyn Destination>)
    };
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

/// Groups rows by their file.
struct PathEncoder {
    template: PathTemplate,
    rows: RowEncoder,
    hosts: Hosts,
    filling: BTreeMap<String, (Part, Vec<u8>)>,
    bytes: usize,
}

impl PathEncoder {
    fn host(&mut self, record: &DatagramRecord<'_>) -> String {
        let host = host_of(record);
        // The hosts without a place share a name.
        if self.hosts.hear(&host) { host } else { "other".to_owned() }
    }
}

impl BatchEncoder for PathEncoder {
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed {
        if row.kind != RowKind::Datagram {
            return Pushed::Skipped(Reason::NotInFormat);
        }
        let Ok(record) = decode_datagram_record(row.bytes) else {
            return Pushed::Skipped(Reason::EncodeError);
        };

        let mut bytes = Vec::new();
        match self.rows.write(row, &mut bytes) {
            Ok(Written::Yes) => {}
            Ok(Written::NoForm) => return Pushed::Skipped(Reason::NotInFormat),
            Err(_) => return Pushed::Skipped(Reason::EncodeError),
        }

        let host = self.host(&record);
        let path = self.template.path(&host, &record, row.arrivals);
        self.bytes += bytes.len();
        let empty = Part { end: 0, rows: 0, row_bytes: 0, key };
        let (part, out) = self.filling.entry(path).or_insert((empty, Vec::new()));
        part.rows += 1;
        part.row_bytes += row.bytes.len() as u64;
        out.extend_from_slice(&bytes);
        Pushed::Taken
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn finish(&mut self) -> Encoded {
        let mut encoded = Encoded::default();
        for (path, (part, bytes)) in std::mem::take(&mut self.filling) {
            encoded.bytes.extend_from_slice(&(path.len() as u32).to_le_bytes());
            encoded.bytes.extend_from_slice(path.as_bytes());
            encoded.bytes.extend_from_slice(&bytes);
            encoded.parts.push(Part { end: encoded.bytes.len(), ..part });
        }
        self.bytes = 0;
        encoded
    }
}

/// Splits a part into its path and its payload.
fn split(part: &[u8]) -> Option<(&str, &[u8])> {
    let (len, rest) = part.split_first_chunk::<4>()?;
    let (path, payload) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some((std::str::from_utf8(path).ok()?, payload))
}

/// The open files, the most recently written one last.
struct Files {
    /// The directory that must exist; directories below it are created.
    folder: PathBuf,
    options: FileOptions,
    framing: Framing,
    open: Vec<RotatedFile>,
    /// Rotations and reopens of files that have been closed.
    closed: [u64; 2],
    done: Vec<Outcome>,
    timer: SyncTimer,
}

impl Files {
    fn file(&mut self, path: &Path) -> io::Result<&mut RotatedFile> {
        let file = match self.open.iter().position(|file| file.options.path == path) {
            Some(at) => self.open.remove(at),
            None => {
                self.make_folder(path)?;
                self.close_for_another();
                let options = FileOptions { path: path.to_owned(), ..self.options.clone() };
                RotatedFile::new(options, self.framing.clone())
            }
        };
        self.open.push(file);
        self.open.last_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn close_for_another(&mut self) {
        if self.open.len() >= OPEN_MAX {
            let mut oldest = self.open.remove(0);
            oldest.leave();
            self.done.append(&mut oldest.done);
            // It is reopened with its next row.
            let [rotations, reopens] = &mut self.closed;
            *rotations += oldest.rotations;
            *reopens += oldest.reopens + 1;
        }
    }

    /// Creates the directories of a path, except the configured one: a typo must not create a tree.
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let Some(folder) = path.parent().filter(|folder| !folder.exists()) else { return Ok(()) };
        fs::metadata(&self.folder)?;
        let there = folder.ancestors().find(|above| above.exists());
        fs::create_dir_all(folder)?;

        // A file is there after a crash of the host only if the folders above it are.
        if self.timer.is_used() {
            for above in folder.ancestors().skip(1) {
                File::open(above)?.sync_all()?;
                if Some(above) == there {
                    break;
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, part: &[u8], outcome: impl FnOnce(Fate) -> Outcome) {
        let Some((path, payload)) = split(part) else {
            return self.done.push(outcome(Fate::Dropped(Reason::EncodeError)));
        };
        let path = Path::new(path);
        match self.file(path) {
            Ok(file) => {
                file.look_at_path();
                file.take(payload, outcome);
            }
            Err(error) => {
                let failure = super::failure(path, &error, Sent::No);
                self.done.push(outcome(Fate::Failed(failure)));
            }
        }
    }

    fn gather(&mut self) {
        self.open.iter_mut().for_each(|file| self.done.append(&mut file.done));
    }
}

impl Destination for Files {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        let batch = &attempt.batch;
        for place in attempt.parts.places(batch.encoded.parts.len()) {
            let parts = Parts::Some(vec![place as u32]);
            let outcome = |fate| Outcome { batch: batch.id, parts, fate };
            self.write(batch.part(place), outcome);
        }
        self.gather();
        self.timer.wrote();
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        for file in &mut self.open {
            file.look_at_path();
            file.rotate_if_due();
        }
        self.gather();

        let wait = if self.done.is_empty() { wait } else { Duration::ZERO };
        if self.timer.wait(wait) == Due::Now {
            self.open.iter_mut().for_each(RotatedFile::sync);
            self.gather();
            self.timer.synced(Instant::now());
        }
        done.append(&mut self.done);
    }

    fn close(&mut self, _wait: Duration, done: &mut Vec<Outcome>) {
        self.open.iter_mut().for_each(RotatedFile::leave);
        self.gather();
        done.append(&mut self.done);
    }

    fn figures(&self) -> OwnFigures {
        let sum = |count: fn(&RotatedFile) -> u64| self.open.iter().map(count).sum::<u64>();
        let [rotations, reopens] = self.closed;
        OwnFigures {
            events: vec![
                (Event::Rotations, rotations + sum(|file| file.rotations)),
                (Event::Reopens, reopens + sum(|file| file.reopens)),
            ],
            ..OwnFigures::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_of_what_is_known_and_harmless() {
        let template = PathTemplate::parse("/log/{host}/{listener}-{date}.log").unwrap().unwrap();
        assert_eq!(template.folder(), Path::new("/log"));
        let check = |hostname, expected: &str| {
            let record = DatagramRecord {
                hostname,
                listener: Some("in"),
                source_address: Some([10, 0, 0, 1].into()),
                time_unix_ns: Some(1_763_769_600_000_000_000),
                ..DatagramRecord::new()
            };
            let arrivals = Arrivals { oldest_unix_ns: 0, newest_unix_ns: u64::MAX };
            let path = template.path(&host_of(&record), &record, arrivals);
            assert_eq!(path, format!("/log/{expected}/in-2025-11-22.log"));
        };
        check(None, "10.0.0.1");
        check(Some("web-1"), "web-1");
        check(Some("../../etc"), "_._.._etc");
        check(Some(".."), "_.");
        check(Some(""), "unknown");
        check(Some("a/b\0c\nd"), "a_b_c_d");
    }

    #[test]
    fn the_day_in_a_path_is_one_of_this_host() {
        const DAY_NS: u64 = 86_400_000_000_000;
        let template = PathTemplate::parse("/log/{date}").unwrap().unwrap();
        let arrivals =
            Arrivals { oldest_unix_ns: 20_000 * DAY_NS, newest_unix_ns: 20_001 * DAY_NS };
        for (said_day, expected) in
            [(0, "/log/2024-10-04"), (20_001, "/log/2024-10-05"), (90_000, "/log/2024-10-05")]
        {
            let time_unix_ns = Some(said_day * DAY_NS);
            let record = DatagramRecord { time_unix_ns, ..DatagramRecord::new() };
            assert_eq!(template.path("web", &record, arrivals), expected);
        }
    }

    #[test]
    fn only_known_names_stand_in_braces() {
        assert_eq!(PathTemplate::parse("/log/all.log"), Ok(None));
        assert_eq!(PathTemplate::parse("/log/{hots}.log"), Err("hots".to_owned()));
        assert_eq!(PathTemplate::parse("/log/{host"), Err("host".to_owned()));
    }
}
