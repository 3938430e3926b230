//! Numbers, addresses, bytes and quoted texts as ASCII, without allocation.

use std::io::Write;
use std::net::IpAddr;

const PAIRS: &[u8; 200] =
    b"00010203040506070809101112131415161718192021222324252627282930313233343536373839\
40414243444546474849505152535455565758596061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// Appends a number in decimal.
#[inline]
pub(crate) fn put_decimal(mut value: u64, out: &mut Vec<u8>) {
    if value < 10 {
        return out.push(b'0' + value as u8);
    }

    // 20 digits at most, filled from the end.
    let mut digits = [0; 20];
    let mut at = digits.len();

    // Two digits for each division.
    while value >= 10 {
        let pair = 2 * (value % 100) as usize;
        value /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }

    if value > 0 {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }

    out.extend_from_slice(&digits[at..]);
}

/// Appends an address as it is usually written, IPv6 as RFC 5952 says. One peer has one text: an IPv4 address that an IPv6
/// socket has as `::ffff:a.b.c.d` is written as IPv4.
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
        // Three bytes are four digits of 6 bits each; `=` stands in for those that a short group lacks.
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let group = u32::from_be_bytes(group);
        let digits = [18, 12, 6, 0].map(|shift| DIGITS[(group >> shift & 63) as usize]);
        let used = chunk.len() + 1;
        out.extend_from_slice(&digits[..used]);
        out.extend_from_slice(&b"=="[..4 - used]);
    }
}

/// Appends a text in double quotes as JSON has it (RFC 8259 section 7).
pub(crate) fn put_json_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;

    // What needs no escape is copied in runs.
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

/// Appends bytes in double quotes as protobuf text has them: everything but printable ASCII in octal.
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
