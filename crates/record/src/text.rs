//! Writes numbers, addresses, bytes and quoted texts as ASCII, without allocating.

use std::io::Write;
use std::net::IpAddr;

/// A text of at most [`SHORT_BYTES`], copied at that size: a copy of known length is a few instructions, one of unknown length a
/// function call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    bytes: [u8; SHORT_BYTES],
    len: u8,
}

/// Room for a short text.
pub(crate) const SHORT_BYTES: usize = 48;

impl Short {
    pub(crate) const fn of(text: &str) -> Short {
        assert!(text.len() <= SHORT_BYTES, "it is not short");
        let mut bytes = [0; SHORT_BYTES];
        let mut at = 0;
        // A const function has no `for`.
        while at < text.len() {
            bytes[at] = text.as_bytes()[at];
            at += 1;
        }
        Short { bytes, len: text.len() as u8 }
    }

    /// The bytes, and how many of them count.
    #[inline(always)]
    pub(crate) fn padded(&self) -> (&[u8; SHORT_BYTES], usize) {
        (&self.bytes, self.len.into())
    }
}

/// Appends a number in decimal.
#[inline]
pub(crate) fn put_decimal(value: u64, out: &mut Vec<u8>) {
    let mut count = 0;
    let mut digits = [0; DIGITS_BYTES];
    decimal(value, |word, len| {
        if let Some(place) = digits.get_mut(count..).and_then(<[u8]>::first_chunk_mut) {
            *place = word;
        }
        count += len;
    });
    out.extend_from_slice(digits.get(..count).unwrap_or_default());
}

/// Room for the digits of a number, and for what is written after the last.
pub(crate) const DIGITS_BYTES: usize = 32;

/// Passes the digits of a number to `put`, eight bytes at a time with the count of valid ones. The number of digits is
/// unpredictable, so there is no branch on it up to eight.
#[inline(always)]
pub(crate) fn decimal(value: u64, mut put: impl FnMut([u8; 8], usize)) {
    if value < EIGHT_DIGITS {
        return put_first(value, &mut put);
    }

    let upper = value / EIGHT_DIGITS;
    if upper < EIGHT_DIGITS {
        put_first(upper, &mut put);
    } else {
        put_first(upper / EIGHT_DIGITS, &mut put);
        put(ascii(eight_digits(upper % EIGHT_DIGITS)), 8);
    }
    put(ascii(eight_digits(value % EIGHT_DIGITS)), 8);
}

/// Writes without leading zeros; a single zero for 0.
#[inline(always)]
fn put_first(value: u64, put: &mut impl FnMut([u8; 8], usize)) {
    let digits = eight_digits(value);
    // The leading digits are in the lowest bytes.
    let zeros = (digits | 1 << 56).trailing_zeros() as usize / 8;
    put(ascii(digits >> (8 * zeros)), 8 - zeros);
}

const EIGHT_DIGITS: u64 = 100_000_000;

#[inline(always)]
fn ascii(digits: u64) -> [u8; 8] {
    (digits | 0x3030_3030_3030_3030).to_le_bytes()
}

/// The eight digits of a number below 10^8, one per byte, the first in the lowest: halves, quarters and eighths side by side in
/// one register. A division by a constant is a multiplication that is exact for numbers this small: by 100 below 10^4, by 10
/// below 100.
#[inline(always)]
fn eight_digits(value: u64) -> u64 {
    let halves = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let quarters = hundreds | ((halves - 100 * hundreds) << 16);
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((quarters - 10 * tens) << 8)
}

/// Appends an address in its usual notation, IPv6 according to RFC 5952. Each peer has one notation: an IPv4 address that an IPv6
/// socket reports as `::ffff:a.b.c.d` is written as IPv4.
pub(crate) fn put_address(address: IpAddr, out: &mut Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            put_decimal(a.into(), out);
            for byte in [b, c, d] {
                out.push(b'.');
                put_decimal(byte.into(), out);
            }
        }
        IpAddr::V6(v6) => write!(out, "{v6}").expect("a vector takes every byte"),
    }
}

/// Appends bytes in base64 (RFC 4648 section 4), padded.
pub(crate) fn put_base64(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in bytes.chunks(3) {
        // Three bytes are four digits of 6 bits each; `=` replaces the digits that a short group lacks.
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let group = u32::from_be_bytes(group);
        let digits = [18, 12, 6, 0].map(|shift| DIGITS[(group >> shift & 63) as usize]);
        let used = chunk.len() + 1;
        out.extend_from_slice(&digits[..used]);
        out.extend_from_slice(&b"=="[..4 - used]);
    }
}

/// Appends a text as a JSON string in double quotes (RFC 8259 section 7).
pub(crate) fn put_json_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;

    // Bytes that need no escape are copied in runs.
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }

        out.extend_from_slice(&bytes[start..at]);
        start = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                out.extend_from_slice(b"\\u00");
                put_hex(byte, out);
            }
        }
    }

    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

/// Appends bytes in double quotes as in protobuf text: everything except printable ASCII in octal.
pub(crate) fn put_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x20..0x7f => out.push(byte),
            _ => out.extend_from_slice(&[
                b'\\',
                b'0' + (byte >> 6),
                b'0' + (byte >> 3 & 7),
                b'0' + (byte & 7),
            ]),
        }
    }
    out.push(b'"');
}

fn put_hex(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_lengths_are_their_digits() {
        let powers = (0..20).map(|exponent| 10_u64.pow(exponent));
        let edges = powers.flat_map(|power| [power - 1, power, power + 1, power.wrapping_mul(9)]);
        let mut random = testkit::Random(7);
        let some = (0..200_000).map(|_| random.number(u64::MAX));
        let mut out = Vec::new();
        for value in (0..20_000).chain(edges).chain(some).chain([u64::MAX]) {
            out.clear();
            put_decimal(value, &mut out);
            assert_eq!(out, value.to_string().as_bytes());
        }
        // Through each of the four multiplications, over the range of inputs they get.
        for value in (0..EIGHT_DIGITS).step_by(997) {
            out.clear();
            put_decimal(value, &mut out);
            assert_eq!(out, value.to_string().as_bytes());
        }
    }
}
