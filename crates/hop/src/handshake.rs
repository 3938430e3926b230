//! How two ends with the same key agree on a session: Noise `NNpsk0` (the Noise protocol framework, revision 34, sections 7.5 and
//! 9). Session keys are ephemeral, so the shared key does not open earlier traffic.
//!
//! The first message proves knowledge of the key and is at least as long as the answer. Without the key there is no answer.

use crate::cookie::{self, Ephemeral};
use crate::key::{Key, KeyId};
use crate::packet::{COOKIE_BYTES, HEADER_BYTES, Header, Kind, decode_hello};
use crate::{Amount, Totals};
use snow::{Builder, HandshakeState};
use thiserror::Error;
use zeroize::Zeroize;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
const PROLOGUE: &[u8] = b"weir hop 1";

/// Bytes that Noise adds to a message's payload: an ephemeral key and a tag.
const NOISE_BYTES: usize = 32 + 16;

/// Maximum length of a text in a hello, in bytes.
const TEXT_BYTES_MAX: usize = 255;

/// Length of a welcome, in bytes.
const WELCOME_BYTES: usize = 4 + 8 + 4 + 4 + 1 + 24;

/// The request for a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    /// Identifies one life of one sender: random.
    pub(crate) run: [u8; 16],
    /// When the hello was sent, in nanoseconds since 1970. One older than the newest heard is a replay.
    pub(crate) unix_ns: u64,
    /// The session number to put in packets to the sender.
    pub(crate) session: u32,
    /// Sequence number below which the sender asks about nothing.
    pub(crate) floor: u64,
    /// The sender's host, and the listener that received the datagrams there.
    pub(crate) host: String,
    pub(crate) listener: String,
}

/// The answer to a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Welcome {
    /// The session number to put in packets to the receiver.
    pub(crate) session: u32,
    /// Identifies one life of the receiver: random.
    pub(crate) epoch: u64,
    /// Longest time between a packet and the report on it, in microseconds.
    pub(crate) interval_us: u32,
    /// Number of sequence numbers that the receiver can hold.
    pub(crate) window: u32,
    /// What the receiver remembers of the run. `None` when it remembers nothing.
    pub(crate) known: Option<Totals>,
}

/// The secrets of both directions, as seen from one end.
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

/// Why a handshake message is rejected.
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

/// The prologue of both ends. It includes the cookie, so that nobody can put one in front of another sender's hello.
fn prologue(cookie: Option<&[u8; COOKIE_BYTES]>) -> Vec<u8> {
    [PROLOGUE, cookie.map_or(&[], |cookie| &cookie[..])].concat()
}

fn builder<'a>(key: &'a Key, prologue: &'a [u8]) -> Result<Builder<'a>, HandshakeError> {
    let pattern = PATTERN.parse().map_err(|_| HandshakeError::Malformed)?;
    Ok(Builder::new(pattern).psk(0, &key.secret.0)?.prologue(prologue)?)
}

/// The end that starts the handshake.
pub(crate) struct Initiator {
    state: HandshakeState,
    session: u32,
    ephemeral: Ephemeral,
    /// Whether its hello carried a cookie.
    pub(crate) has_cookie: bool,
}

impl Initiator {
    /// Starts a handshake and appends the first message to `out`, with the cookie if the other end asked for one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn begin(
        key: &Key,
        hello: &Hello,
        cookie: Option<&[u8; COOKIE_BYTES]>,
        out: &mut Vec<u8>,
    ) -> Result<Initiator, HandshakeError> {
        let state = builder(key, &prologue(cookie))?.build_initiator()?;
        Initiator::say(state, key, hello, cookie, out)
    }

    fn say(
        mut state: HandshakeState,
        key: &Key,
        hello: &Hello,
        cookie: Option<&[u8; COOKIE_BYTES]>,
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
        // The answer must not be longer than the hello.
        payload.resize(payload.len().max(WELCOME_BYTES), 0);

        let KeyId(id) = key.id;
        let kind = if cookie.is_some() { Kind::HelloWithCookie } else { Kind::Hello };
        let header = Header { kind, epoch: 0, session: 0, number: id };
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(cookie.map_or(&[], |cookie| &cookie[..]));
        let begin = out.len();
        append(&mut state, &payload, out)?;
        let ephemeral = *out[begin..].first_chunk().ok_or(HandshakeError::Malformed)?;
        Ok(Initiator { state, session: hello.session, ephemeral, has_cookie: cookie.is_some() })
    }

    /// Reads the cookie that the other end wants back first.
    ///
    /// # Errors
    /// The cookie is not authentic, or not for this hello.
    pub(crate) fn read_cookie(
        &self,
        key: &Key,
        packet: &[u8],
    ) -> Result<[u8; COOKIE_BYTES], HandshakeError> {
        cookie::read(key, self.session, &self.ephemeral, packet)
    }

    /// Reads the answer. An answer that was not made with the key changes nothing: the real one may still come.
    ///
    /// # Errors
    /// The answer is not authentic, or not for this session.
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
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), HandshakeError> {
    let begin = out.len();
    out.resize(begin + payload.len() + NOISE_BYTES, 0);
    let written = state.write_message(payload, &mut out[begin..])?;
    out.truncate(begin + written);
    Ok(())
}

/// The end that answers the handshake.
pub(crate) struct Responder {
    state: HandshakeState,
    session: u32,
    ephemeral: Ephemeral,
}

/// Reads a first message, which must be made with `key`, the key named in its header.
///
/// # Errors
/// The message is not authentic.
pub(crate) fn respond(key: &Key, message: &[u8]) -> Result<(Hello, Responder), HandshakeError> {
    let header = Header::decode(message).map_err(|_| HandshakeError::Malformed)?;
    let (cookie, noise) = decode_hello(header.kind, &message[HEADER_BYTES..])
        .map_err(|_| HandshakeError::Malformed)?;
    if noise.len() < NOISE_BYTES + WELCOME_BYTES {
        // The answer would be longer than the hello.
        return Err(HandshakeError::Malformed);
    }
    let ephemeral = *noise.first_chunk().ok_or(HandshakeError::Malformed)?;
    let mut state = builder(key, &prologue(cookie))?.build_responder()?;
    let mut payload = vec![0; noise.len()];
    let len = state.read_message(noise, &mut payload)?;
    let hello = decode_payload(&payload[..len]).ok_or(HandshakeError::Malformed)?;
    let session = hello.session;
    Ok((hello, Responder { state, session, ephemeral }))
}

impl Responder {
    /// Appends a request to return this cookie first to `out`.
    pub(crate) fn ask_for_cookie(&self, key: &Key, cookie: [u8; COOKIE_BYTES], out: &mut Vec<u8>) {
        cookie::answer(key, self.session, &self.ephemeral, cookie, out);
    }

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
        out.extend_from_slice(&header.encode());
        append(&mut self.state, &payload, out)?;
        let (receive, send) = self.state.dangerously_get_raw_split();
        Ok(SessionSecrets { send, receive })
    }
}

fn decode_payload(mut bytes: &[u8]) -> Option<Hello> {
    let run = take(&mut bytes)?;
    let unix_ns = u64::from_le_bytes(take(&mut bytes)?);
    let session = u32::from_le_bytes(take(&mut bytes)?);
    let floor = u64::from_le_bytes(take(&mut bytes)?);
    let mut text = || {
        let [len] = take(&mut bytes)?;
        let (text, rest) = bytes.split_at_checked(len.into())?;
        bytes = rest;
        let mut text = String::from_utf8_lossy(text).into_owned();
        // A character in place of a byte that is none is longer.
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        Some(text)
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
impl Initiator {
    /// As [`begin`](Self::begin), with a fixed ephemeral key, for the example in the documentation.
    pub(crate) fn begin_always_the_same(
        key: &Key,
        hello: &Hello,
        cookie: Option<&[u8; COOKIE_BYTES]>,
        out: &mut Vec<u8>,
    ) -> Result<Initiator, HandshakeError> {
        let prologue = prologue(cookie);
        let builder = builder(key, &prologue)?.fixed_ephemeral_key_for_testing_only(&[5; 32]);
        Initiator::say(builder.build_initiator()?, key, hello, cookie, out)
    }
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
        let initiator = Initiator::begin(key, &hello(), None, &mut message).unwrap();
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
        // A forged answer does not end the handshake.
        for bit in 0..second.len() * 8 {
            let mut forged = second.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            // The header's other bits do not matter here.
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
    fn a_cookie_belongs_to_the_hello_that_brings_it() {
        let key = Key::new("a", [1; 32]);
        let (initiator, first) = begin(&key);
        let (_, responder) = respond(&key, &first).unwrap();
        let mut asked = Vec::new();
        responder.ask_for_cookie(&key, [9; COOKIE_BYTES], &mut asked);
        assert!(asked.len() <= first.len(), "{} {}", asked.len(), first.len());
        let cookie = initiator.read_cookie(&key, &asked).unwrap();
        assert_eq!(cookie, [9; COOKIE_BYTES]);

        let mut again = Vec::new();
        Initiator::begin(&key, &hello(), Some(&cookie), &mut again).unwrap();
        assert_eq!(respond(&key, &again).unwrap().0, hello());
        // A cookie cannot be put in front of a recorded hello, nor replaced in this one.
        let mut put = again[..HEADER_BYTES + COOKIE_BYTES].to_vec();
        put.extend_from_slice(&first[HEADER_BYTES..]);
        assert!(respond(&key, &put).is_err());
        again[HEADER_BYTES] ^= 1;
        assert!(respond(&key, &again).is_err());
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
