//! Cookies: under load, a sender must return one before it gets a session, to prove that it receives at its address.
//!
//! A cookie is a keyed hash of the address and the time, so the receiver stores nothing. The packet that carries it has a proof,
//! made with the shared key and bound to one hello, so nobody else can make a sender repeat its hello.

use crate::handshake::HandshakeError;
use crate::key::Key;
use crate::packet::{COOKIE_BYTES, Cookie, HEADER_BYTES, Header, Kind};
use crate::random_bytes;
use ring::hmac;
use std::net::{IpAddr, SocketAddr};

/// How long the cookie of an address stays the same, in nanoseconds. It is valid for one more such slice.
const SLICE_NS: u64 = 30_000_000_000;

/// The start of a hello's Noise message: a key made for that hello alone.
pub(crate) type Ephemeral = [u8; 32];

/// The secret behind a receiving end's cookies.
pub(crate) struct Cookies(hmac::Key);

impl Cookies {
    pub(crate) fn new() -> Cookies {
        Cookies(hmac::Key::new(hmac::HMAC_SHA256, &random_bytes::<32>()))
    }

    /// The cookie for an address at this time.
    pub(crate) fn of(&self, now_ns: u64, from: SocketAddr) -> [u8; COOKIE_BYTES] {
        digest(&hmac::sign(&self.0, &text(now_ns / SLICE_NS, from)))
    }

    /// Whether the cookie was recently given to this address.
    pub(crate) fn is_valid(
        &self,
        now_ns: u64,
        from: SocketAddr,
        cookie: &[u8; COOKIE_BYTES],
    ) -> bool {
        let slice = now_ns / SLICE_NS;
        [slice, slice.wrapping_sub(1)]
            .into_iter()
            .any(|slice| hmac::verify(&self.0, &text(slice, from), cookie).is_ok())
    }
}

/// The hashed text: the time slice and the address.
fn text(slice: u64, from: SocketAddr) -> [u8; 26] {
    let ip = match from.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut text = [0; 26];
    text[..8].copy_from_slice(&slice.to_le_bytes());
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
        let (cookies, others) = (Cookies::new(), Cookies::new());
        let (from, now_ns) = (addr("192.0.2.1:7000"), 100 * SLICE_NS + 5);
        let cookie = cookies.of(now_ns, from);
        let valid_at = |now_ns, from| cookies.is_valid(now_ns, from, &cookie);
        assert!(valid_at(now_ns, from) && valid_at(now_ns + SLICE_NS, from));
        assert!(valid_at(now_ns, addr("[::ffff:192.0.2.1]:7000")), "as another socket has it");
        assert!(!valid_at(now_ns + 2 * SLICE_NS, from) && !valid_at(now_ns - SLICE_NS, from));
        for other in ["192.0.2.2:7000", "192.0.2.1:7001", "[2001:db8::1]:7000"] {
            assert!(!valid_at(now_ns, addr(other)), "{other}");
        }
        assert!(!others.is_valid(now_ns, from, &cookie));
        for bit in 0..COOKIE_BYTES * 8 {
            let mut changed = cookie;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!cookies.is_valid(now_ns, from, &changed), "bit {bit}");
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
