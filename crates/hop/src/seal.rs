//! Sealed packets: AES-128-GCM (RFC 5116) with the packet number as the nonce and the header as associated data.

use crate::packet::{HEADER_BYTES, TAG_BYTES};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use thiserror::Error;
use zeroize::Zeroize;

/// Packets sealed with one key: well below 2^28, where RFC 9001 section B.1 sees an attacker's advantage grow.
const PACKETS_A_KEY: u64 = 1 << 24;

/// Why a packet cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum OpenError {
    #[error("it is too short")]
    TooShort,
    #[error("it was sealed with a key that is not known, or was changed on its way")]
    Forged,
}

/// A chain of 32-byte secrets that yields the keys of one direction. No secret leads back to the one before it.
struct Chain([u8; 32]);

impl Drop for Chain {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Output length requested from HKDF, in bytes.
struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

impl Chain {
    /// HKDF-Expand (RFC 5869 section 2.3). Callers request at most 32 bytes, which it always provides.
    fn expand<const N: usize>(&self, label: &[u8]) -> [u8; N] {
        let mut bytes = [0; N];
        let info = [label];
        let secret = Prk::new_less_safe(HKDF_SHA256, &self.0);
        let expanded = secret.expand(&info, Len(N));
        let is_filled = expanded.and_then(|okm| okm.fill(&mut bytes)).is_ok();
        debug_assert!(is_filled, "{N} bytes of HKDF");
        bytes
    }

    fn key(&self) -> Option<LessSafeKey> {
        let mut bytes: [u8; 16] = self.expand(b"weir hop packets");
        let key = UnboundKey::new(&AES_128_GCM, &bytes).ok().map(LessSafeKey::new);
        bytes.zeroize();
        key
    }

    fn next(&self) -> Chain {
        Chain(self.expand(b"weir hop next"))
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Seals the packets of one direction of a session.
pub(crate) struct Sealer {
    chain: Chain,
    key: Option<LessSafeKey>,
    epoch: u8,
    /// First packet number that gets the next key.
    until: u64,
}

impl Sealer {
    /// Starts with the secret that the handshake produced for this direction.
    pub(crate) fn new(secret: [u8; 32]) -> Sealer {
        let chain = Chain(secret);
        Sealer { key: chain.key(), chain, epoch: 0, until: PACKETS_A_KEY }
    }

    /// The key epoch for the header of packet `number`.
    pub(crate) fn epoch(&mut self, number: u64) -> u8 {
        if number >= self.until {
            self.rekey(number);
        }
        self.epoch
    }

    /// Switches to the next key from packet `number` on. Callers also do this after an hour.
    pub(crate) fn rekey(&mut self, number: u64) {
        self.chain = self.chain.next();
        self.key = self.chain.key();
        self.epoch = self.epoch.wrapping_add(1);
        self.until = number + PACKETS_A_KEY;
    }

    /// Seals the bytes behind the header at `begin` of `out` and appends the tag. `number` is the header's packet number and must
    /// never repeat.
    pub(crate) fn seal(&self, out: &mut Vec<u8>, begin: usize, number: u64) {
        let Some((header, inside)) = out.get_mut(begin..).and_then(|packet| {
            let (header, inside) = packet.split_first_chunk_mut::<HEADER_BYTES>()?;
            Some((*header, inside))
        }) else {
            return;
        };
        let sealed = self
            .key
            .as_ref()
            .map(|key| key.seal_in_place_separate_tag(nonce(number), Aad::from(header), inside));
        match sealed {
            Some(Ok(tag)) => out.extend_from_slice(tag.as_ref()),
            // Fails above 64 GiB, which no packet reaches. What is not sealed must not leave.
            _ => out.truncate(begin),
        }
    }
}

/// Opens the packets of one direction of a session. A receiver has many, so state needed once an hour is boxed or derived.
pub(crate) struct Opener {
    /// The secret that the next key comes from.
    next: Chain,
    previous: Option<Box<LessSafeKey>>,
    current: Option<LessSafeKey>,
    epoch: u8,
}

impl Opener {
    /// Starts with the secret that the handshake produced for this direction.
    pub(crate) fn new(secret: [u8; 32]) -> Opener {
        let chain = Chain(secret);
        Opener { current: chain.key(), previous: None, next: chain.next(), epoch: 0 }
    }

    /// Opens a packet in place and returns its content.
    ///
    /// # Errors
    /// The packet is too short or not authentic.
    pub(crate) fn open<'a>(
        &mut self,
        epoch: u8,
        number: u64,
        packet: &'a mut [u8],
    ) -> Result<&'a [u8], OpenError> {
        let (header, sealed) =
            packet.split_first_chunk_mut::<HEADER_BYTES>().ok_or(OpenError::TooShort)?;
        if sealed.len() < TAG_BYTES {
            return Err(OpenError::TooShort);
        }

        let mut next = None;
        let key = match epoch.wrapping_sub(self.epoch) {
            0 => self.current.as_ref(),
            1 => {
                next = self.next.key();
                next.as_ref()
            }
            u8::MAX => self.previous.as_deref(),
            _ => None,
        };
        let key = key.ok_or(OpenError::Forged)?;
        let opened = key.open_in_place(nonce(number), Aad::from(*header), sealed);
        let inside = opened.map_err(|_| OpenError::Forged)?.len();
        if next.is_some() {
            self.previous = std::mem::replace(&mut self.current, next).map(Box::new);
            self.next = self.next.next();
            self.epoch = epoch;
        }
        Ok(&sealed[..inside])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sealer: &mut Sealer, number: u64, inside: &[u8]) -> Vec<u8> {
        let mut out = vec![9, 9];
        out.extend([0x12; HEADER_BYTES]);
        out.extend(inside);
        out[3] = sealer.epoch(number);
        sealer.seal(&mut out, 2, number);
        out.split_off(2)
    }

    fn both() -> (Sealer, Opener) {
        (Sealer::new([5; 32]), Opener::new([5; 32]))
    }

    #[test]
    fn what_is_sealed_is_opened_and_nothing_else() {
        let (mut sealer, mut opener) = both();
        let sealed = packet(&mut sealer, 7, b"inside");
        assert_eq!(sealed.len(), HEADER_BYTES + 6 + TAG_BYTES);
        assert_eq!(opener.open(0, 7, &mut sealed.clone()), Ok(&b"inside"[..]));
        assert_eq!(opener.open(0, 8, &mut sealed.clone()), Err(OpenError::Forged));
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(opener.open(0, 7, &mut changed), Err(OpenError::Forged), "bit {bit}");
        }
        for len in 0..sealed.len() {
            assert!(opener.open(0, 7, &mut sealed[..len].to_vec()).is_err());
        }
        let mut other = Opener::new([6; 32]);
        assert_eq!(other.open(0, 7, &mut sealed.clone()), Err(OpenError::Forged));
    }

    #[test]
    fn keys_change_on_the_way_and_packets_may_overtake_the_change() {
        let (mut sealer, mut opener) = both();
        let mut late = packet(&mut sealer, 0, b"late");
        for epoch in 1..600u64 {
            sealer.rekey(epoch);
            let byte = epoch as u8;
            let mut now = packet(&mut sealer, epoch, b"now");
            assert_eq!(opener.open(byte, epoch, &mut now), Ok(&b"now"[..]), "{epoch}");
            let before = byte.wrapping_sub(1);
            assert_eq!(opener.open(before, epoch - 1, &mut late), Ok(&b"late"[..]), "{epoch}");
            late = packet(&mut sealer, epoch, b"late");
        }
        // Two key changes behind.
        sealer.rekey(600);
        let mut now = packet(&mut sealer, 600, b"now");
        opener.open(600u64 as u8, 600, &mut now).unwrap();
        sealer.rekey(601);
        let mut now = packet(&mut sealer, 601, b"now");
        opener.open(601u64 as u8, 601, &mut now).unwrap();
        assert_eq!(opener.open(599u64 as u8, 599, &mut late), Err(OpenError::Forged));
    }

    #[test]
    fn a_key_is_used_for_so_many_packets() {
        let (mut sealer, _) = both();
        assert_eq!([0, PACKETS_A_KEY - 1].map(|number| sealer.epoch(number)), [0, 0]);
        assert_eq!([PACKETS_A_KEY, PACKETS_A_KEY + 1].map(|number| sealer.epoch(number)), [1, 1]);
    }
}
