//! Headers of network devices: counters, names, uptimes and marks in front of the time, and a colon behind it.
//!
//! Cisco documents `seq no:timestamp: %facility-severity-MNEMONIC:description` ("System Message Logging" of IOS), where each part
//! before `%` may be missing, `logging origin-id` adds a name, and both `service sequence-numbers` and the counter of syslog messages add
//! a number.

use super::content::{split_mnemonic, split_program};
use super::host;
use super::rfc3164::{Header, Next, behind_time, split_time};
use super::time::{self, Stamp};
use super::{
    Arrival, Form, Kind, NAME_MAX_BYTES, graphic, letters_and, run_of, split_digits, split_name,
    without_blanks,
};

/// Most parts in front of the time: two counters, a name, a task or a location.
const PARTS_MAX: usize = 4;

/// Longest text of an origin, with its colon.
const LABEL_BYTES_MAX: usize = 64;

/// What stands in front of a time.
#[derive(Clone, Copy, Default)]
struct Front<'a> {
    counters: usize,
    name: Option<&'a str>,
    task: Option<&'a str>,
    is_located: bool,
    /// Whether a text stands there that is no name: `logging origin-id string "Rack 3"`.
    is_labeled: bool,
}

/// Reads counters, names and so on up to a time, an uptime or a mnemonic, and that; `false` if none of those follows.
pub(super) fn read<'a>(header: &mut Header<'a>, bytes: &'a [u8], arrival: Arrival<'_>) -> bool {
    let (mut front, mut rest) = (Front::default(), bytes);
    for part in 0..=PARTS_MAX {
        let behind = match front.take_counter(rest) {
            Some(behind) => Some(behind),
            // The caller has looked for a time at the beginning.
            None if part == 0 && read_uptime(header, rest) => return true,
            None if part > 0 && read_behind(header, front, rest, arrival) => return true,
            None => front.take(rest),
        };
        let Some(behind) = behind else { return false };
        rest = behind;
    }
    false
}

impl<'a> Front<'a> {
    /// Takes `45: `, and returns what follows it. Without the counter of messages its colon stays.
    fn take_counter(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if !matches!(bytes, [b'0'..=b'9' | b':', ..]) || self.counters == 2 {
            return None;
        }
        let (digits, behind) = split_digits(bytes, 20);
        let behind = behind.strip_prefix(b":")?;
        if !behind.starts_with(b" ") && !digits.is_empty() {
            return None;
        }
        self.counters += 1;
        Some(without_blanks(behind))
    }

    /// Takes one part that is not a counter, and returns what follows it.
    fn take(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        // Wireless controllers (AireOS) write `*TASK: ` before the time.
        if let Some(behind) = bytes.strip_prefix(b"*")
            && self.task.is_none()
        {
            let (word, behind) = split_name(behind);
            self.task = Some(graphic(word.strip_suffix(b":")?)?);
            return Some(behind);
        }
        self.take_name(bytes).or_else(|| self.take_label(bytes))
    }

    /// Takes the text of an origin that is not a host, behind a counter.
    fn take_label(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.counters == 0 || self.name.is_some() || self.is_labeled {
            return None;
        }
        let near = bytes.get(..bytes.len().min(LABEL_BYTES_MAX)).unwrap_or_default();
        let end = near.windows(2).position(|bytes| bytes == b": ")?;
        self.is_labeled = true;
        bytes.get(end + 2..)
    }

    fn take_name(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let len = run_of(bytes, NAME_MAX_BYTES + 1, &OF_NAME);
        let (word, behind) = bytes.split_at_checked(len)?;
        let behind = match behind {
            [b'/', ..] => return self.take_location(bytes),
            [b' ', behind @ ..] if self.name.is_none() => behind,
            _ => return None,
        };
        let (name, rest) = match (word, behind) {
            ([name @ .., b':'], _) => (name, without_blanks(behind)),
            // ASA writes a blank before the colon.
            (_, [b':', b' ', rest @ ..]) => (word, without_blanks(rest)),
            // A name without a colon needs a type, a counter or a location behind it: `NAME COUNTER: `, `NAME LOCATION:`.
            _ if split_mnemonic(behind).is_some() => (word, without_blanks(behind)),
            _ if is_counter(behind) || is_location(behind) => (word, behind),
            _ => return None,
        };
        self.name = Some(host::of_letters(name)?);
        Some(rest)
    }

    /// Takes what IOS XR writes for where the message comes from, without a blank before the time: `RP/0/RSP0/CPU0:`. This is not a host.
    fn take_location(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let len = run_of(bytes, NAME_MAX_BYTES, &OF_LOCATION);
        let (location, behind) = bytes.split_at_checked(len)?;
        let rest = behind.strip_prefix(b":")?;
        if self.is_located || !location.contains(&b'/') {
            return None;
        }
        self.is_located = true;
        Some(rest)
    }
}

/// The characters of a name in front of a time, and of the colon behind it.
const OF_NAME: Kind = letters_and(b".-_:@");
const OF_LOCATION: Kind = letters_and(b".-_/@");

fn is_counter(bytes: &[u8]) -> bool {
    matches!(bytes, [b'0'..=b'9', ..]) && split_digits(bytes, 20).1.starts_with(b":")
}

fn is_location(bytes: &[u8]) -> bool {
    let (word, _) = split_name(bytes);
    word.contains(&b'/') && word.contains(&b':')
}

/// Reads what follows counters and names.
fn read_behind<'a>(
    header: &mut Header<'a>,
    front: Front<'a>,
    bytes: &'a [u8],
    arrival: Arrival<'_>,
) -> bool {
    let is_read = match bytes {
        [b'0'..=b'9' | b'A'..=b'Z' | b'*' | b'.', ..] => match split_time(bytes, arrival) {
            Some((stamp, rest)) => {
                let is_set = !bytes.starts_with(b"*");
                read_behind_time(header, front, (stamp, is_set), rest, arrival)
            }
            None => read_uptime(header, bytes),
        },
        [b'%', ..] => header.read_type(bytes),
        _ => false,
    };
    if is_read {
        header.form = Form::Cisco;
        header.hostname = header.hostname.or(front.name);
        header.app_name = front.task;
        header.is_counted |= front.counters > 0;
    }
    is_read
}

/// Reads how long a device has run in the place of the time, which a mnemonic has to follow.
fn read_uptime<'a>(header: &mut Header<'a>, bytes: &'a [u8]) -> bool {
    let Some([b':', rest @ ..]) = time::uptime(bytes) else { return false };
    let is_read = header.read_type(rest);
    if is_read {
        header.form = Form::Cisco;
        header.is_counted = true;
    }
    is_read
}
/// Reads what follows the time of a device.
fn read_behind_time<'a>(
    header: &mut Header<'a>,
    front: Front<'a>,
    time: (Stamp, bool),
    rest: &'a [u8],
    arrival: Arrival<'_>,
) -> bool {
    let (time, rest) = behind_time(time, rest, Named::ByDevice, arrival);
    let rest = without_blanks(rest);
    if let [b':', rest @ ..] = rest {
        header.hostname = front.name;
        read_behind_colon(header, rest);
    } else if front.counters > 0 || front.is_located {
        // A relay's header may stand behind a counter, and a time behind a counter and a name needs no colon.
        header.next = if front.name.is_none() { Next::Host } else { Next::Content };
        header.rest = rest;
    } else {
        // It may be a program's own time behind its name.
        return false;
    }
    // Any text may have a colon: behind one, only a type makes it a header.
    if front.is_labeled && header.msg_id.is_none() {
        *header = Header::default();
        return false;
    }
    header.time = Some(time);
    true
}

/// Who else may have written a word between a time and a colon.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// Nobody: before `: %` it is a zone, whatever its name.
    ByDevice,
    /// Anybody: it may be a host or a program.
    ByAnybody,
}

/// Most bytes between the colon behind a time and a mnemonic.
const SEGMENTS_BYTES_MAX: usize = 96;

/// Reads what stands between the colon behind a time and the mnemonic: the process of IOS XR (`config[65]: `), where in a stack the
/// message comes from (`Switch 1 R0/0: sessmgrd: `), or a name.
pub(super) fn read_behind_colon<'a>(header: &mut Header<'a>, bytes: &'a [u8]) {
    if header.read_type(bytes) {
        return;
    }
    header.rest = match without_blanks(bytes) {
        rest @ [b'%', ..] => rest,
        _ => bytes.strip_prefix(b" ").unwrap_or(bytes),
    };
    let rest = header.rest;
    if rest.starts_with(b"%") {
        return;
    }

    let near = rest.get(..rest.len().min(SEGMENTS_BYTES_MAX)).unwrap_or_default();
    let Some(end) = near.windows(3).position(|bytes| bytes == b": %") else { return };
    let (segments, mnemonic) = rest.split_at(end + 2);
    if split_mnemonic(mnemonic).is_none() {
        return;
    }

    // With a process id it is a program, and so it is behind a location. Else it is the device.
    let before_last = segments.get(..end).unwrap_or_default();
    match before_last.windows(2).rposition(|bytes| bytes == b": ") {
        Some(at) => header.rest = rest.get(at + 2..).unwrap_or_default(),
        None if split_program(segments).is_some_and(|(_, proc_id, _)| proc_id.is_some()) => {}
        None if header.hostname.is_none() => {
            header.hostname = host::of(before_last);
            header.rest = mnemonic;
        }
        None => {}
    }
}
