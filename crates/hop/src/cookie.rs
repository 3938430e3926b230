//! Cookies: under load, a sender must return one before it gets a session, to prove that it receives at its address.
//!
//! A cookie is a time and a keyed hash of the address and that time, so the receiver stores nothing until the cookie comes back. A
//! run's cookies must come back in the order of their times, so each is taken once. The packet that carries it has a proof,
//! made with the shared key and bound to one hello, so nobody else can make a sender repeat its hello.

use crate::handshake::HandshakeError;
use crate::key::Key;
use crate::packet::{COOKIE_BYTES, Cookie, HEADER_BYTES, Header, Kind};
use crate::random_bytes;
use ring::hmac;
use std::net::{IpAddr, SocketAddr};

/// How long a cookie is valid, in nanoseconds.
const VALID_NS: u64 = 60_000_000_000;

/// Bytes of a cookie that say when it was given.
const TIME_BYTES: usize = size_of::<u64>();

/// The start of a hello's Noise message: a key made for that hello alone.
pub(crate) type Ephemeral = [u8; 32];

/// The secret behind a receiving end's cookies, and when it was made: times in cookies are counted from then, so that they say
/// nothing about the host.
pub(crate) struct Cookies {
    secret: hmac::Key,
    begun_ns: u64,
}

impl Cookies {
    pub(crate) fn new(now_ns: u64) -> Cookies {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &random_bytes::<32>());
        Cookies { secret, begun_ns: now_ns }
    }

    /// The cookie for an address at this time.
    pub(crate) fn of(&self, now_ns: u64, from: SocketAddr) -> [u8; COOKIE_BYTES] {
        // From 1 on: 0 is before every cookie.
        self.at(now_ns.saturating_sub(self.begun_ns) + 1, from)
    }

    fn at(&self, time: u64, from: SocketAddr) -> [u8; COOKIE_BYTES] {
        let mut cookie = digest(&hmac::sign(&self.secret, &text(time, from)));
        cookie[..TIME_BYTES].copy_from_slice(&time.to_le_bytes());
        cookie
    }

    /// When the cookie was given to this address, if that was recently. Later cookies have later times.
    pub(crate) fn time(
        &self,
        now_ns: u64,
        from: SocketAddr,
        cookie: &[u8; COOKIE_BYTES],
    ) -> Option<u64> {
        let time = u64::from_le_bytes(*cookie.first_chunk()?);
        let age_ns = (now_ns.saturating_sub(self.begun_ns) + 1).checked_sub(time)?;
        // Hashed once more, so that how long it takes to compare says nothing about our own.
        let own = hmac::sign(&self.secret, &self.at(time, from));
        let is_ours =
            age_ns <= VALID_NS && hmac::verify(&self.secret, cookie, own.as_ref()).is_ok();
        is_ours.then_some(time)
    }
}

/// The hashed text: the time and the address.
fn text(time: u64, from: SocketAddr) -> [u8; 26] {
    let ip = match from.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut text = [0; 26];
    text[..8].copy_from_slice(&time.to_le_bytes());
    text[8..24].copy_from_slice(&ip.octets());
    text[24..].copy_from_slice(&from.port().to_le_bytes());
    text
}

fn digest(tag: &hmac::Tag) -> [u8; COOKIE_BYTES] {
    let mut bytes = [0; COOKIE_BYTES];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

/// Appends the packet that gives a cookie to the sender of a hello. `session` is the sender's number for its session.
pub(crate) fn answer(
    key: &Key,
    session: u32,
    ephemeral: &Ephemeral,
    cookie: [u8; COOKIE_BYTES],
    out: &mut Vec<u8>,
) {
    let header = Header { kind: Kind::Cookie, epoch: 0, session, number: 0 }.encode();
    let proof = digest(&hmac::sign(&proof_key(key), &proved(&header, &cookie, ephemeral)));
    out.extend_from_slice(&header);
    Cookie { cookie, proof }.encode(out);
}

/// Reads the packet that [`answer`] wrote.
///
/// # Errors
/// It does not answer this hello, or was not made with the key.
pub(crate) fn read(
    key: &Key,
    session: u32,
    ephemeral: &Ephemeral,
    packet: &[u8],
) -> Result<[u8; COOKIE_BYTES], HandshakeError> {
    let malformed = |_| HandshakeError::Malformed;
    let header = Header::decode(packet).map_err(malformed)?;
    if header.kind != Kind::Cookie || header.session != session {
        return Err(HandshakeError::Malformed);
    }
    let Cookie { cookie, proof } = Cookie::decode(&packet[HEADER_BYTES..]).map_err(malformed)?;
    let proved = proved(&header.encode(), &cookie, ephemeral);
    hmac::verify(&proof_key(key), &proved, &proof).map_err(|_| HandshakeError::Forged)?;
    Ok(cookie)
}

fn proof_key(key: &Key) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &key.secret.0)
}

fn proved(header: &[u8], cookie: &[u8], ephemeral: &Ephemeral) -> Vec<u8> {
    [b"weir hop cookie", header, cookie, ephemeral].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_cookie_is_of_one_address_and_one_time() {
        let (cookies, others) = (Cookies::new(1), Cookies::new(1));
        let (from, now_ns) = (addr("192.0.2.1:7000"), 100 * VALID_NS + 5);
        let cookie = cookies.of(now_ns, from);
        let time = |now_ns, from| cookies.time(now_ns, from, &cookie);
        let given = time(now_ns, from).unwrap();
        assert_eq!(time(now_ns + VALID_NS, from), Some(given));
        assert_eq!(time(now_ns, addr("[::ffff:192.0.2.1]:7000")), Some(given), "another socket");
        assert_eq!((time(now_ns + VALID_NS + 1, from), time(now_ns - 1, from)), (None, None));
        let next = cookies.of(now_ns + 1, from);
        assert!(cookies.time(now_ns + 1, from, &next).unwrap() > given, "in order");
        for other in ["192.0.2.2:7000", "192.0.2.1:7001", "[2001:db8::1]:7000"] {
            assert_eq!(time(now_ns, addr(other)), None, "{other}");
        }
        assert_eq!(others.time(now_ns, from, &cookie), None);
        for bit in 0..COOKIE_BYTES * 8 {
            let mut changed = cookie;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(cookies.time(now_ns, from, &changed), None, "bit {bit}");
        }
    }

    #[test]
    fn who_has_not_the_key_gives_no_cookies() {
        let (key, mut packet) = (Key::new("a", [1; 32]), Vec::new());
        answer(&key, 7, &[3; 32], [9; COOKIE_BYTES], &mut packet);
        assert_eq!(read(&key, 7, &[3; 32], &packet), Ok([9; COOKIE_BYTES]));
        assert!(read(&Key::new("b", [2; 32]), 7, &[3; 32], &packet).is_err());
        assert!(read(&key, 8, &[3; 32], &packet).is_err(), "another session");
        assert!(read(&key, 7, &[4; 32], &packet).is_err(), "another hello");
        for len in 0..packet.len() {
            assert!(read(&key, 7, &[3; 32], &packet[..len]).is_err(), "{len}");
        }
        for bit in 0..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // The second and third bytes of the header are reserved and ignored.
            if !matches!(bit / 8, 2 | 3) {
                assert!(read(&key, 7, &[3; 32], &changed).is_err(), "bit {bit}");
            }
        }
    }
}
