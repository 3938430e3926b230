//! Sealed packets: AES-128-GCM (RFC 5116) with the packet's number as the nonce and its header authenticated too.

use crate::packet::{HEADER_BYTES, TAG_BYTES};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use thiserror::Error;
use zeroize::Zeroize;

/// Packets that one key seals: well below 2^28, where RFC 9001 section B.1 sees the advantage of an attacker grow.
const PACKETS_A_KEY: u64 = 1 << 24;

/// Why a packet is not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum OpenError {
    #[error("it is too short")]
    TooShort,
    #[error("it was sealed with a key that is not known, or was changed on its way")]
    Forged,
}

/// 32 bytes from which the keys of one direction come: one after the other, and none leads back to the one before.
struct Chain([u8; 32]);

impl Drop for Chain {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// How many bytes HKDF is to give.
struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

impl Chain {
    /// HKDF-Expand (RFC 5869 section 2.3). Asked for at most 32 bytes, which it always gives.
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
    /// Number of the first packet that gets the next key.
    until: u64,
}

impl Sealer {
    /// Begins with the secret of a direction, as the handshake gave it.
    pub(crate) fn new(secret: [u8; 32]) -> Sealer {
        let chain = Chain(secret);
        Sealer { key: chain.key(), chain, epoch: 0, until: PACKETS_A_KEY }
    }

    /// What the next packet's header is to say of its key.
    pub(crate) fn epoch(&mut self, number: u64) -> u8 {
        if number >= self.until {
            self.rekey(number);
        }
        self.epoch
    }

    /// Takes the next key from packet `number` on. To be called after an hour, too.
    pub(crate) fn rekey(&mut self, number: u64) {
        self.chain = self.chain.next();
        self.key = self.chain.key();
        self.epoch = self.epoch.wrapping_add(1);
        self.until = number + PACKETS_A_KEY;
    }

    /// Seals what stands behind the header at `begin` of `out`, and appends the tag. `number` is the header's, and never the same
    /// twice.
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
            // 64 GiB at once: not with packets. What is not sealed does not leave.
            _ => out.truncate(begin),
        }
    }
}

/// Opens the packets of one direction of a session. A receiver has many: what is needed once an hour is not kept at hand.
pub(crate) struct Opener {
    /// From which the next key comes.
    next: Chain,
    previous: Option<Box<LessSafeKey>>,
    current: Option<LessSafeKey>,
    epoch: u8,
}

impl Opener {
    /// Begins with the secret of a direction, as the handshake gave it.
    pub(crate) fn new(secret: [u8; 32]) -> Opener {
        let chain = Chain(secret);
        Opener { current: chain.key(), previous: None, next: chain.next(), epoch: 0 }
    }

    /// Opens a packet in place and returns what was sealed.
    ///
    /// # Errors
    /// It is too short, or not authentic.
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
        // Two changes behind.
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
