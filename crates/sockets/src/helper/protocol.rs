//! Requests and answers as bytes.

use crate::access::{Found, Hears, Scope};
use sys::namespace::{Identity, Scan};

/// Largest message in either direction.
pub(super) const MESSAGE_BYTES_MAX: usize = 32 * 1024;
/// Longest name of a namespace that is passed on; file names are 255 bytes at most.
const NAME_BYTES_MAX: usize = 255;
/// Most names of chosen namespaces in a request.
const NAMES_MAX: usize = 100;

/// What the collector asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// The namespaces of a scope. Answered by any number of `Found` and one `Scanned`.
    Discover(Scope),
    /// A socket in a namespace of the last discovery, by its place.
    Open(u32),
    /// The id of a namespace of the last discovery.
    Nsid(u32),
    /// The socket that hears closes.
    Events(Hears, u32),
}

/// What the helper answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// Some of the namespaces.
    Found(Vec<Found>),
    /// The end of a discovery.
    Scanned(Scan),
    /// The descriptor that was asked for is with this message.
    Descriptor,
    /// The id.
    Nsid(i32),
    /// The namespace is gone.
    Gone,
    /// The call failed, for want of this capability if it is not 0.
    Failed { errno: i32, capability: u32 },
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Request::Discover(Scope::Own) => bytes.extend([1, 0]),
            Request::Discover(Scope::All) => bytes.extend([1, 1]),
            Request::Discover(Scope::Named(names)) => {
                bytes.extend([1, 2]);
                for name in names.iter().take(NAMES_MAX) {
                    put_name(&mut bytes, name);
                }
            }
            Request::Open(place) => put_u32(&mut bytes, 2, *place),
            Request::Nsid(place) => put_u32(&mut bytes, 3, *place),
            Request::Events(hears, buffer_bytes) => {
                put_u32(&mut bytes, 4, *buffer_bytes);
                bytes.push(u8::from(*hears == Hears::All));
            }
        }
        bytes
    }

    /// `None`: not a request.
    pub(super) fn decode(bytes: &[u8]) -> Option<Request> {
        let (&kind, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        let request = match kind {
            1 => Request::Discover(match take(rest)? {
                [0] => Scope::Own,
                [1] => Scope::All,
                [2] => {
                    let mut names = Vec::new();
                    while !rest.is_empty() && names.len() < NAMES_MAX {
                        names.push(take_name(rest)?);
                    }
                    Scope::Named(names)
                }
                _ => return None,
            }),
            2 => Request::Open(u32::from_ne_bytes(take(rest)?)),
            3 => Request::Nsid(u32::from_ne_bytes(take(rest)?)),
            4 => {
                let buffer_bytes = u32::from_ne_bytes(take(rest)?);
                let hears = if take(rest)? == [0] { Hears::Own } else { Hears::All };
                Request::Events(hears, buffer_bytes)
            }
            _ => return None,
        };
        rest.is_empty().then_some(request)
    }
}

impl Answer {
    /// Namespaces in as many messages as they take.
    pub(super) fn found_messages(found: &[Found]) -> Vec<Vec<u8>> {
        let mut messages = vec![vec![1]];
        for one in found {
            let full = messages
                .last()
                .is_none_or(|bytes| bytes.len() + 2 * NAME_BYTES_MAX > MESSAGE_BYTES_MAX);
            if full {
                messages.push(vec![1]);
            }
            let Some(bytes) = messages.last_mut() else { continue };
            bytes.extend_from_slice(&one.id.device.to_ne_bytes());
            bytes.extend_from_slice(&one.id.inode.to_ne_bytes());
            bytes.extend_from_slice(&one.process.unwrap_or(0).to_ne_bytes());
            put_name(bytes, one.name.as_deref().unwrap_or_default());
        }
        messages
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Answer::Found(found) => return Answer::found_messages(found).swap_remove(0),
            Answer::Scanned(scan) => {
                put_u32(&mut bytes, 2, scan.processes);
                bytes.extend_from_slice(&scan.unreadable_processes.to_ne_bytes());
                bytes.extend_from_slice(&scan.mounts.to_ne_bytes());
            }
            Answer::Descriptor => bytes.push(3),
            Answer::Nsid(nsid) => put_u32(&mut bytes, 4, nsid.cast_unsigned()),
            Answer::Gone => bytes.push(5),
            Answer::Failed { errno, capability } => {
                put_u32(&mut bytes, 6, errno.cast_unsigned());
                bytes.extend_from_slice(&capability.to_ne_bytes());
            }
        }
        bytes
    }

    /// `None`: not an answer.
    pub(super) fn decode(bytes: &[u8]) -> Option<Answer> {
        let (&kind, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        let answer = match kind {
            1 => {
                let mut found = Vec::new();
                while !rest.is_empty() {
                    found.push(take_found(rest)?);
                }
                Answer::Found(found)
            }
            2 => Answer::Scanned(Scan {
                processes: u32::from_ne_bytes(take(rest)?),
                unreadable_processes: u32::from_ne_bytes(take(rest)?),
                mounts: u32::from_ne_bytes(take(rest)?),
            }),
            3 => Answer::Descriptor,
            4 => Answer::Nsid(i32::from_ne_bytes(take(rest)?)),
            5 => Answer::Gone,
            6 => Answer::Failed {
                errno: i32::from_ne_bytes(take(rest)?),
                capability: u32::from_ne_bytes(take(rest)?),
            },
            _ => return None,
        };
        rest.is_empty().then_some(answer)
    }
}

fn put_u32(bytes: &mut Vec<u8>, kind: u8, number: u32) {
    bytes.push(kind);
    bytes.extend_from_slice(&number.to_ne_bytes());
}

/// A name with its length before it, cut to the longest that is allowed.
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

fn take_name(rest: &mut &[u8]) -> Option<String> {
    let [len] = take(rest)?;
    let (name, tail) = rest.split_at_checked(len.into())?;
    *rest = tail;
    String::from_utf8(name.to_vec()).ok()
}

fn take_found(rest: &mut &[u8]) -> Option<Found> {
    let device = u64::from_ne_bytes(take(rest)?);
    let inode = u64::from_ne_bytes(take(rest)?);
    let process = u32::from_ne_bytes(take(rest)?);
    let name = take_name(rest)?;
    Some(Found {
        id: Identity { device, inode },
        name: (!name.is_empty()).then_some(name),
        process: (process != 0).then_some(process),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        vec![
            Request::Discover(Scope::Own),
            Request::Discover(Scope::All),
            Request::Discover(Scope::Named(vec!["blue".into(), "grün".into()])),
            Request::Open(7),
            Request::Nsid(u32::MAX),
            Request::Events(Hears::All, 8 << 20),
            Request::Events(Hears::Own, 0),
        ]
    }

    fn found(inode: u64, name: &str) -> Found {
        let name = (!name.is_empty()).then(|| name.to_owned());
        Found { id: Identity { device: 4, inode }, name, process: Some(1) }
    }

    fn answers() -> Vec<Answer> {
        vec![
            Answer::Found(vec![found(1, "blue"), found(2, "")]),
            Answer::Scanned(Scan { processes: 1, unreadable_processes: 2, mounts: 3 }),
            Answer::Descriptor,
            Answer::Nsid(-1),
            Answer::Gone,
            Answer::Failed { errno: 1, capability: 21 },
        ]
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for request in requests() {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        for answer in answers() {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn cut_or_lengthened_messages_are_none() {
        for request in requests() {
            let bytes = request.encode();
            for len in 0..bytes.len() {
                assert_ne!(Request::decode(&bytes[..len]), Some(request.clone()));
            }
        }
        for answer in answers() {
            let bytes = answer.encode();
            for len in 0..bytes.len() {
                assert_ne!(Answer::decode(&bytes[..len]), Some(answer.clone()));
            }
        }
        assert_eq!(Answer::decode(&[5, 0]), None);
    }

    #[test]
    fn many_namespaces_come_in_several_messages() {
        let all: Vec<_> = (0..2_000).map(|inode| found(inode, &"n".repeat(300))).collect();
        let messages = Answer::found_messages(&all);
        assert!(messages.iter().all(|bytes| bytes.len() <= MESSAGE_BYTES_MAX));
        let decoded: Vec<_> = messages
            .iter()
            .flat_map(|bytes| match Answer::decode(bytes) {
                Some(Answer::Found(found)) => found,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(decoded.len(), all.len());
        assert_eq!(decoded[7].name.as_ref().map(String::len), Some(NAME_BYTES_MAX));
    }
}
