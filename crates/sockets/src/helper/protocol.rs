//! Encodes requests and answers. Each request has one answer.

use crate::access::Found;
use crate::quiet::TcpCounts;
use sys::namespace::{Identity, Scan};

/// Maximum length of a message in either direction, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 32 * 1024;
/// Maximum length of a namespace's name, in bytes; file names have at most 255.
const NAME_BYTES_MAX: usize = 255;
/// Maximum length of a namespace in an answer: device, inode, process, length of the name, name.
const FOUND_BYTES_MAX: usize = 8 + 8 + 4 + 1 + NAME_BYTES_MAX;

/// The collector's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// Find namespaces. Answered with [`Answer::Scanned`].
    Discover,
    /// List what was found, from this index on. Answered with [`Answer::Found`], with as many as fit.
    List(u32),
    /// Open a socket in the namespace at this index.
    Open(u32),
    /// Return the id of the namespace at this index.
    Nsid(u32),
    /// Open the socket that receives closes from all namespaces, with a receive buffer of this many bytes.
    Events(u32),
    /// Find mounted namespaces. Answered with [`Answer::Scanned`].
    DiscoverMounted,
    /// Return the kernel's TCP counters of the namespace at this index.
    TcpCounts(u32),
    /// Create a counter for a socket's datagrams, passed as three descriptors ([`sys::gro::Counter::descriptors`]).
    Counter,
}

/// The helper's answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The result of a search, and the number of namespaces.
    Scanned(Scan, u32),
    /// Some of the namespaces.
    Found(Vec<Found>),
    /// The requested descriptor or descriptors come with this message.
    Descriptor,
    /// The id.
    Nsid(i32),
    /// The namespace is gone.
    Gone,
    /// The call failed. If `capability` is not 0, that capability was missing.
    Failed { errno: i32, capability: u32 },
    /// The counts.
    TcpCounts(TcpCounts),
}

impl Request {
    pub(super) fn encode(self) -> Vec<u8> {
        let (kind, number) = match self {
            Request::Discover => return vec![1],
            Request::List(from) => (2, from),
            Request::Open(place) => (3, place),
            Request::Nsid(place) => (4, place),
            Request::Events(buffer_bytes) => (5, buffer_bytes),
            Request::DiscoverMounted => return vec![6],
            Request::TcpCounts(place) => (7, place),
            Request::Counter => return vec![8],
        };
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&number.to_ne_bytes());
        bytes
    }

    /// `None` when the bytes are not a request.
    pub(super) fn decode(bytes: &[u8]) -> Option<Request> {
        let (&kind, rest) = bytes.split_first()?;
        let number = || Some(u32::from_ne_bytes(rest.try_into().ok()?));
        match kind {
            1 => rest.is_empty().then_some(Request::Discover),
            2 => number().map(Request::List),
            3 => number().map(Request::Open),
            4 => number().map(Request::Nsid),
            5 => number().map(Request::Events),
            6 => rest.is_empty().then_some(Request::DiscoverMounted),
            7 => number().map(Request::TcpCounts),
            8 => rest.is_empty().then_some(Request::Counter),
            _ => None,
        }
    }
}

impl Answer {
    /// Encodes namespaces from this index on, as many as fit one message.
    pub(super) fn encode_found(found: &[Found], from: usize) -> Vec<u8> {
        let mut bytes = vec![2];
        for one in found.get(from..).unwrap_or_default() {
            if bytes.len() + FOUND_BYTES_MAX > MESSAGE_BYTES_MAX {
                break;
            }
            bytes.extend_from_slice(&one.id.device.to_ne_bytes());
            bytes.extend_from_slice(&one.id.inode.to_ne_bytes());
            bytes.extend_from_slice(&one.process.unwrap_or(0).to_ne_bytes());
            put_name(&mut bytes, one.name.as_deref().unwrap_or_default());
        }
        bytes
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let numbers = |kind: u8, numbers: &[u32]| {
            let mut bytes = vec![kind];
            bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
            bytes
        };
        match self {
            Answer::Scanned(scan, found) => {
                numbers(1, &[scan.processes, scan.unreadable_processes, scan.mounts, *found])
            }
            Answer::Found(found) => Answer::encode_found(found, 0),
            Answer::Descriptor => vec![3],
            Answer::Nsid(nsid) => numbers(4, &[nsid.cast_unsigned()]),
            Answer::Gone => vec![5],
            Answer::Failed { errno, capability } => {
                numbers(6, &[errno.cast_unsigned(), *capability])
            }
            Answer::TcpCounts(counts) => {
                let mut bytes = vec![7];
                let TcpCounts { in_use, time_wait, opened, activity } = counts;
                for number in [in_use, time_wait, opened, &(activity.len() as u64)] {
                    bytes.extend_from_slice(&number.to_ne_bytes());
                }
                bytes.extend_from_slice(activity.as_bytes());
                bytes
            }
        }
    }

    /// `None` when the bytes are not an answer.
    pub(super) fn decode(bytes: &[u8]) -> Option<Answer> {
        let (&kind, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        let answer = match kind {
            1 => {
                let scan = Scan {
                    processes: take_u32(rest)?,
                    unreadable_processes: take_u32(rest)?,
                    mounts: take_u32(rest)?,
                    ..Scan::default()
                };
                Answer::Scanned(scan, take_u32(rest)?)
            }
            2 => {
                let mut found = Vec::new();
                while !rest.is_empty() {
                    found.push(take_found(rest)?);
                }
                Answer::Found(found)
            }
            3 => Answer::Descriptor,
            4 => Answer::Nsid(take_u32(rest)?.cast_signed()),
            5 => Answer::Gone,
            6 => {
                let errno = take_u32(rest)?.cast_signed();
                Answer::Failed { errno, capability: take_u32(rest)? }
            }
            7 => {
                let [in_use, time_wait, opened] =
                    [take_u64(rest)?, take_u64(rest)?, take_u64(rest)?];
                let len = usize::try_from(take_u64(rest)?).ok()?;
                let activity = take_text(rest, len)?.into();
                Answer::TcpCounts(TcpCounts { in_use, time_wait, opened, activity })
            }
            _ => return None,
        };
        rest.is_empty().then_some(answer)
    }
}

/// Appends a name after its length, cut to the maximum: replacing invalid UTF-8 may have made it longer.
fn put_name(bytes: &mut Vec<u8>, name: &str) {
    let len = name.floor_char_boundary(NAME_BYTES_MAX);
    bytes.push(len as u8);
    bytes.extend_from_slice(&name.as_bytes()[..len]);
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_ne_bytes)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_ne_bytes)
}

fn take_text(rest: &mut &[u8], len: usize) -> Option<String> {
    let (text, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    String::from_utf8(text.to_vec()).ok()
}

fn take_found(rest: &mut &[u8]) -> Option<Found> {
    let [device, inode] = [take_u64(rest)?, take_u64(rest)?];
    let process = take_u32(rest)?;
    let [len] = take(rest)?;
    let name = take_text(rest, len.into())?;
    Some(Found {
        id: Identity { device, inode },
        name: (!name.is_empty()).then_some(name),
        process: (process != 0).then_some(process),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: [Request; 7] = [
        Request::Discover,
        Request::List(1_000),
        Request::Open(7),
        Request::Nsid(u32::MAX),
        Request::Events(8 << 20),
        Request::DiscoverMounted,
        Request::TcpCounts(3),
    ];

    fn found(inode: u64, name: &str) -> Found {
        let name = (!name.is_empty()).then(|| name.to_owned());
        Found { id: Identity { device: 4, inode }, name, process: Some(1) }
    }

    fn answers() -> Vec<Answer> {
        vec![
            Answer::Scanned(
                Scan { processes: 1, unreadable_processes: 2, mounts: 3, ..Scan::default() },
                4,
            ),
            Answer::Found(vec![found(1, "blue"), found(2, ""), found(3, "grün")]),
            Answer::Descriptor,
            Answer::Nsid(-1),
            Answer::Gone,
            Answer::Failed { errno: 1, capability: 21 },
            Answer::TcpCounts(TcpCounts {
                in_use: 3,
                time_wait: 0,
                opened: u64::MAX,
                activity: "Tcp: 1 200 120000 -1 17 4".into(),
            }),
        ]
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(Request::Open(0x0102).encode().len(), 5);
        for request in REQUESTS {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        for answer in answers() {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn cut_or_lengthened_messages_are_other_ones_or_none() {
        for request in REQUESTS {
            let mut bytes = request.encode();
            for len in 0..bytes.len() {
                assert_eq!(Request::decode(&bytes[..len]), None);
            }
            bytes.push(0);
            assert_eq!(Request::decode(&bytes), None);
        }
        for answer in answers() {
            let mut bytes = answer.encode();
            for len in 0..bytes.len() {
                // A list may end after any of its namespaces.
                assert_ne!(Answer::decode(&bytes[..len]), Some(answer.clone()));
            }
            bytes.push(0);
            assert_eq!(Answer::decode(&bytes), None);
        }
    }

    /// Every message that can be decoded is the encoding of the result: nothing is misread.
    #[test]
    fn a_million_mutated_messages_are_none_or_what_they_say() {
        let mut seeds: Vec<_> = answers().iter().map(Answer::encode).collect();
        seeds.extend(REQUESTS.map(Request::encode));
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as usize % below
        };
        let mut decoded = 0_u32;
        for _ in 0..1_000_000 {
            let mut bytes = seeds[random(seeds.len())].clone();
            for _ in 0..=random(3) {
                match random(4) {
                    0 => bytes.truncate(random(bytes.len() + 1)),
                    1 => bytes.push(random(256) as u8),
                    _ if bytes.is_empty() => {}
                    _ => {
                        let at = random(bytes.len());
                        bytes[at] = [0, 1, 255, random(256) as u8][random(4)];
                    }
                }
            }
            if let Some(request) = Request::decode(&bytes) {
                assert_eq!(request.encode(), bytes);
                decoded += 1;
            }
            if let Some(answer) = Answer::decode(&bytes) {
                assert_eq!(answer.encode(), bytes);
                decoded += 1;
            }
        }
        assert!(decoded > 100_000, "{decoded}: mutations that hit nothing prove nothing");
    }

    #[test]
    fn many_namespaces_come_in_several_messages() {
        let all: Vec<_> = (0..2_000).map(|inode| found(inode, &"n".repeat(300))).collect();
        let mut decoded = Vec::new();
        while decoded.len() < all.len() {
            let message = Answer::encode_found(&all, decoded.len());
            assert!(message.len() <= MESSAGE_BYTES_MAX);
            match Answer::decode(&message) {
                Some(Answer::Found(mut more)) => decoded.append(&mut more),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(decoded.len(), all.len());
        assert_eq!(decoded[7].name.as_ref().map(String::len), Some(NAME_BYTES_MAX));
        let beyond = Answer::encode_found(&all, usize::MAX);
        assert_eq!(Answer::decode(&beyond), Some(Answer::Found(Vec::new())));
    }
}
