//! How two ends that have the same key agree on a session: Noise `NNpsk0` (the Noise protocol framework, revision 34, sections 7.5
//! and 9), with keys of one session alone, so that the shared one does not open what was sent before.
//!
//! The first message proves the key and is at least as long as the answer; without the key there is none.

use crate::key::{Key, KeyId};
use crate::packet::{HEADER_BYTES, Header, Kind};
use crate::{Amount, Totals};
use snow::{Builder, HandshakeState};
use thiserror::Error;
use zeroize::Zeroize;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
const PROLOGUE: &[u8] = b"weir hop 1";

/// What Noise adds to the payload of a message: an ephemeral key and a tag.
const NOISE_BYTES: usize = 32 + 16;

/// Longest text in a hello, in bytes.
const TEXT_BYTES_MAX: usize = 255;

/// Bytes of a welcome.
const WELCOME_BYTES: usize = 4 + 8 + 4 + 4 + 1 + 24;

/// Who begins a session, and what for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    /// Which life of which sender: random.
    pub(crate) run: [u8; 16],
    /// When it was said, in nanoseconds since 1970: an older one than was heard is a replay.
    pub(crate) unix_ns: u64,
    /// What packets to the sender are to say in their header.
    pub(crate) session: u32,
    /// Sequence number below which nothing is asked about.
    pub(crate) floor: u64,
    /// The sender's host, and the listener that received the datagrams there.
    pub(crate) host: String,
    pub(crate) listener: String,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Welcome {
    /// What packets to the receiver are to say in their header.
    pub(crate) session: u32,
    /// Which life of the receiver: random.
    pub(crate) epoch: u64,
    /// Longest time from a packet to its report, in microseconds.
    pub(crate) interval_us: u32,
    /// Sequence numbers that the receiver can hold.
    pub(crate) window: u32,
    /// What it remembers of the run; `None`: nothing.
    pub(crate) known: Option<Totals>,
}

/// The secrets of both directions, from one end's point of view.
pub(crate) struct SessionSecrets {
    pub(crate) send: [u8; 32],
    pub(crate) receive: [u8; 32],
}

impl Drop for SessionSecrets {
    fn drop(&mut self) {
        self.send.zeroize();
        self.receive.zeroize();
    }
}

/// Why a message of a handshake is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum HandshakeError {
    #[error("it was not made with the key, or changed on its way")]
    Forged,
    #[error("it contradicts itself")]
    Malformed,
}

impl From<snow::Error> for HandshakeError {
    fn from(_: snow::Error) -> HandshakeError {
        HandshakeError::Forged
    }
}

fn builder(key: &Key) -> Result<Builder<'_>, HandshakeError> {
    let pattern = PATTERN.parse().map_err(|_| HandshakeError::Malformed)?;
    Ok(Builder::new(pattern).psk(0, &key.secret.0)?.prologue(PROLOGUE)?)
}

/// The end that began.
pub(crate) struct Initiator {
    state: HandshakeState,
    session: u32,
}

impl Initiator {
    /// Begins, and appends the first message to `out`.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn begin(
        key: &Key,
        hello: &Hello,
        out: &mut Vec<u8>,
    ) -> Result<Initiator, HandshakeError> {
        let mut payload = Vec::with_capacity(WELCOME_BYTES);
        payload.extend_from_slice(&hello.run);
        payload.extend_from_slice(&hello.unix_ns.to_le_bytes());
        payload.extend_from_slice(&hello.session.to_le_bytes());
        payload.extend_from_slice(&hello.floor.to_le_bytes());
        for text in [&hello.host, &hello.listener] {
            let text = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
            payload.push(text.len() as u8);
            payload.extend_from_slice(text);
        }
        // The answer must not be longer.
        payload.resize(payload.len().max(WELCOME_BYTES), 0);

        let mut state = builder(key)?.build_initiator()?;
        let KeyId(id) = key.id;
        let header = Header { kind: Kind::Hello, epoch: 0, session: 0, number: id };
        append(&mut state, header, &payload, out)?;
        Ok(Initiator { state, session: hello.session })
    }

    /// Reads the answer. One that was not made with the key changes nothing: the true one may still come.
    ///
    /// # Errors
    /// It is not authentic, or not about this session.
    pub(crate) fn finish(
        &mut self,
        message: &[u8],
    ) -> Result<(Welcome, SessionSecrets), HandshakeError> {
        let header = Header::decode(message).map_err(|_| HandshakeError::Malformed)?;
        if header.kind != Kind::Welcome || header.session != self.session {
            return Err(HandshakeError::Malformed);
        }
        let mut payload = [0; WELCOME_BYTES + NOISE_BYTES];
        let len = self.state.read_message(&message[HEADER_BYTES..], &mut payload)?;
        let welcome = decode_welcome(&payload[..len]).ok_or(HandshakeError::Malformed)?;

        let (send, receive) = self.state.dangerously_get_raw_split();
        Ok((welcome, SessionSecrets { send, receive }))
    }
}

fn append(
    state: &mut HandshakeState,
    header: Header,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), HandshakeError> {
    let begin = out.len();
    out.extend_from_slice(&header.encode());
    out.resize(out.len() + payload.len() + NOISE_BYTES, 0);
    let written = state.write_message(payload, &mut out[begin + HEADER_BYTES..])?;
    out.truncate(begin + HEADER_BYTES + written);
    Ok(())
}

/// The end that was asked.
pub(crate) struct Responder {
    state: HandshakeState,
    session: u32,
}

/// Reads a first message, which the `key` that its header names is to have made.
///
/// # Errors
/// It is not authentic.
pub(crate) fn respond(key: &Key, message: &[u8]) -> Result<(Hello, Responder), HandshakeError> {
    let noise = message.get(HEADER_BYTES..).ok_or(HandshakeError::Malformed)?;
    let mut state = builder(key)?.build_responder()?;
    let mut payload = vec![0; noise.len()];
    let len = state.read_message(noise, &mut payload)?;
    let hello = decode_hello(&payload[..len]).ok_or(HandshakeError::Malformed)?;
    let session = hello.session;
    Ok((hello, Responder { state, session }))
}

impl Responder {
    /// Appends the answer to `out`.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn accept(
        mut self,
        welcome: &Welcome,
        out: &mut Vec<u8>,
    ) -> Result<SessionSecrets, HandshakeError> {
        let mut payload = Vec::with_capacity(WELCOME_BYTES);
        payload.extend_from_slice(&welcome.session.to_le_bytes());
        payload.extend_from_slice(&welcome.epoch.to_le_bytes());
        payload.extend_from_slice(&welcome.interval_us.to_le_bytes());
        payload.extend_from_slice(&welcome.window.to_le_bytes());
        payload.push(welcome.known.is_some().into());
        let known = welcome.known.unwrap_or_default();
        for number in [known.floor, known.accepted.datagrams, known.accepted.bytes] {
            payload.extend_from_slice(&number.to_le_bytes());
        }

        let header = Header { kind: Kind::Welcome, epoch: 0, session: self.session, number: 0 };
        append(&mut self.state, header, &payload, out)?;
        let (receive, send) = self.state.dangerously_get_raw_split();
        Ok(SessionSecrets { send, receive })
    }
}

fn decode_hello(mut bytes: &[u8]) -> Option<Hello> {
    let run = take(&mut bytes)?;
    let unix_ns = u64::from_le_bytes(take(&mut bytes)?);
    let session = u32::from_le_bytes(take(&mut bytes)?);
    let floor = u64::from_le_bytes(take(&mut bytes)?);
    let mut text = || {
        let [len] = take(&mut bytes)?;
        let (text, rest) = bytes.split_at_checked(len.into())?;
        bytes = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    Some(Hello { run, unix_ns, session, floor, host: text()?, listener: text()? })
}

fn decode_welcome(mut bytes: &[u8]) -> Option<Welcome> {
    let session = u32::from_le_bytes(take(&mut bytes)?);
    let epoch = u64::from_le_bytes(take(&mut bytes)?);
    let interval_us = u32::from_le_bytes(take(&mut bytes)?);
    let window = u32::from_le_bytes(take(&mut bytes)?);
    let [is_known] = take(&mut bytes)?;
    let [floor, datagrams, bytes] =
        [take(&mut bytes)?, take(&mut bytes)?, take(&mut bytes)?].map(u64::from_le_bytes);
    let totals = Totals { floor, accepted: Amount { datagrams, bytes } };
    let known = (is_known == 1).then_some(totals);
    Some(Welcome { session, epoch, interval_us, window, known })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            run: [3; 16],
            unix_ns: 1 << 60,
            session: 0xabcd,
            floor: 77,
            host: "web-1".to_owned(),
            listener: "syslog".to_owned(),
        }
    }

    fn welcome() -> Welcome {
        let accepted = Amount { datagrams: 5, bytes: 600 };
        let known = Some(Totals { floor: 9, accepted });
        Welcome { session: 8, epoch: 4, interval_us: 500, window: 4_096, known }
    }

    fn begin(key: &Key) -> (Initiator, Vec<u8>) {
        let mut message = Vec::new();
        let initiator = Initiator::begin(key, &hello(), &mut message).unwrap();
        (initiator, message)
    }

    #[test]
    fn both_ends_have_the_same_secrets() {
        let key = Key::new("a", [1; 32]);
        let (mut initiator, first) = begin(&key);
        assert_eq!(Header::decode(&first).unwrap().number, key.id.0);
        let (heard, responder) = respond(&key, &first).unwrap();
        assert_eq!(heard, hello());

        let mut second = Vec::new();
        let far = responder.accept(&welcome(), &mut second).unwrap();
        assert!(second.len() <= first.len(), "{} {}", first.len(), second.len());
        // What somebody else says first does not end it.
        for bit in 0..second.len() * 8 {
            let mut forged = second.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            // The header's other bits say nothing here.
            if bit / 8 < HEADER_BYTES && Header::decode(&forged) == Header::decode(&second)
                || (8..16).contains(&(bit / 8))
                || bit / 8 == 1
            {
                continue;
            }
            assert!(initiator.finish(&forged).is_err(), "bit {bit}");
        }
        for len in 0..second.len() {
            assert!(initiator.finish(&second[..len]).is_err());
        }
        let (heard, near) = initiator.finish(&second).unwrap();
        assert_eq!(heard, welcome());
        assert_eq!((near.send, near.receive), (far.receive, far.send));
        assert_ne!(near.send, near.receive);
    }

    #[test]
    fn without_the_key_there_is_no_answer() {
        let key = Key::new("a", [1; 32]);
        let (_, first) = begin(&key);
        assert!(respond(&Key::new("b", [2; 32]), &first).is_err());
        for len in 0..first.len() {
            assert!(respond(&key, &first[..len]).is_err(), "{len}");
        }
        for bit in HEADER_BYTES * 8..first.len() * 8 {
            let mut changed = first.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(respond(&key, &changed).is_err(), "bit {bit}");
        }
    }
}
