//! The check data in every datagram, and the payloads that carry it.
//!
//! The header is 48 bytes, big-endian:
//!
//! ```text
//!  0  4  magic "WEIR"
//!  4  1  version, 1
//!  5  1  kind: 0 data, 1 heartbeat, 2 end
//!  6  2  sender
//!  8  2  flow
//! 10  2  streams of this run that go to the same target
//! 12  4  length of the whole datagram
//! 16  4  CRC-32 (IEEE 802.3) of the whole datagram without these four bytes
//! 20  8  run id
//! 28  8  sequence number, from 0 in each (run, sender, flow); in heartbeats: data datagrams sent so far
//! 36  8  nanoseconds since 1970-01-01 UTC (CLOCK_REALTIME) when the datagram was made
//! 44  4  heartbeats sent so far in this stream; in the end heartbeats, how many there will have been
//! ```
//!
//! A binary payload is the header and filler. The other payloads are text: a fixed prefix, the header as 96 lowercase
//! hexadecimal digits, a fixed suffix, and filler. The CRC covers the text as sent, without the CRC's own eight digits.

mod payload;

pub use payload::Payload;

/// Bytes of the header in a binary payload.
pub const HEADER_BYTES: usize = 48;

const MAGIC: [u8; 4] = *b"WEIR";
const VERSION: u8 = 1;
const CRC_AT: usize = 16;
const CRC_BYTES: usize = 4;

/// The purpose of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Data: counted and checked.
    Data = 0,
    /// Reports how many data datagrams were sent so far, so that loss shows before the next one arrives.
    Heartbeat = 1,
    /// The same, and no more will follow.
    End = 2,
}

/// The check data of one datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Check {
    /// Random for each run of the generator, so that an old run is not mistaken for this one.
    pub run: u64,
    /// Index of the sending thread.
    pub sender: u16,
    /// Index of the source socket within the run.
    pub flow: u16,
    /// Streams of this run that go to the same target, so that a receiver knows when it has received all of them.
    pub streams: u16,
    pub kind: Kind,
    /// Position in the stream (run, sender, flow), from 0. In heartbeats, the number of data datagrams sent so far.
    pub sequence: u64,
    /// When the datagram was made, in nanoseconds since 1970-01-01 UTC.
    pub stamp_ns: u64,
    /// Heartbeats sent so far in this stream, including this one; in [`Kind::End`], the total including those still to
    /// come.
    pub heartbeats: u32,
}

/// A datagram with valid check data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    pub check: Check,
    pub payload: Payload,
}

/// Why a datagram's check data is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reject {
    /// No check data of this version.
    Foreign,
    /// The declared length exceeds the actual one.
    Truncated,
    /// Bytes were changed or added.
    Corrupt,
}

/// Fills a whole buffer with filler, once before any number of [`encode`] calls on it.
pub fn fill(payload: Payload, buffer: &mut [u8]) {
    for (idx, byte) in buffer.iter_mut().enumerate() {
        *byte = match payload {
            Payload::Binary => (idx as u8).wrapping_mul(157) ^ 0xa5,
            _ => b'a' + (idx % 26) as u8,
        };
    }
}

/// Writes check data into a datagram: into the first [`Payload::size_min_bytes`] bytes and up to three after them. The
/// rest is filler, which is not changed and is covered by the CRC.
///
/// # Panics
/// If the datagram is shorter than the payload's minimum or longer than 4 GiB.
pub fn encode(payload: Payload, check: &Check, datagram: &mut [u8]) {
    let header = header_bytes(check, datagram.len());
    match payload.text() {
        None => {
            datagram[..HEADER_BYTES].copy_from_slice(&header);
            let crc = crc_without(datagram, CRC_AT, CRC_BYTES);
            datagram[CRC_AT..CRC_AT + CRC_BYTES].copy_from_slice(&crc.to_be_bytes());
        }
        Some(text) => {
            text.write_frame(check, datagram);
            let digits_at = text.digits_at();
            write_hex(&header, &mut datagram[digits_at..digits_at + 2 * HEADER_BYTES]);

            let crc_at = digits_at + 2 * CRC_AT;
            let crc = crc_without(datagram, crc_at, 2 * CRC_BYTES);
            write_hex(&crc.to_be_bytes(), &mut datagram[crc_at..crc_at + 2 * CRC_BYTES]);
        }
    }
}

/// Decodes and checks a datagram with any payload.
///
/// # Errors
/// Why the datagram is invalid. Never panics, whatever the bytes.
pub fn decode(datagram: &[u8]) -> Result<Datagram, Reject> {
    if datagram.starts_with(&MAGIC) && datagram.get(4) == Some(&VERSION) {
        let header = datagram.first_chunk::<HEADER_BYTES>().ok_or(Reject::Truncated)?;
        let check = checked(header, datagram, CRC_AT, CRC_BYTES)?;
        return Ok(Datagram { check, payload: Payload::Binary });
    }
    let (payload, text) = Payload::recognise(datagram).ok_or(Reject::Foreign)?;
    let digits_at = text.digits_at();
    let digits = datagram.get(digits_at..digits_at + 2 * HEADER_BYTES).ok_or(Reject::Truncated)?;
    let header = read_hex(digits).ok_or(Reject::Corrupt)?;
    let check = checked(&header, datagram, digits_at + 2 * CRC_AT, 2 * CRC_BYTES)?;
    Ok(Datagram { check, payload })
}

fn header_bytes(check: &Check, datagram_bytes: usize) -> [u8; HEADER_BYTES] {
    let datagram_bytes = u32::try_from(datagram_bytes).expect("a datagram is below 64 KiB");
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4] = VERSION;
    header[5] = check.kind as u8;
    header[6..8].copy_from_slice(&check.sender.to_be_bytes());
    header[8..10].copy_from_slice(&check.flow.to_be_bytes());
    header[10..12].copy_from_slice(&check.streams.to_be_bytes());
    header[12..16].copy_from_slice(&datagram_bytes.to_be_bytes());
    header[20..28].copy_from_slice(&check.run.to_be_bytes());
    header[28..36].copy_from_slice(&check.sequence.to_be_bytes());
    header[36..44].copy_from_slice(&check.stamp_ns.to_be_bytes());
    header[44..48].copy_from_slice(&check.heartbeats.to_be_bytes());
    header
}

fn checked(
    header: &[u8; HEADER_BYTES],
    datagram: &[u8],
    crc_at: usize,
    crc_bytes: usize,
) -> Result<Check, Reject> {
    fn field<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
        *header[at..].first_chunk().expect("the fields lie within the header")
    }

    if header[..4] != MAGIC || header[4] != VERSION {
        return Err(Reject::Corrupt);
    }

    let datagram_bytes = u32::from_be_bytes(field(header, 12)) as usize;
    if datagram_bytes > datagram.len() {
        return Err(Reject::Truncated);
    }

    let crc = u32::from_be_bytes(field(header, CRC_AT));
    if datagram_bytes < datagram.len() || crc != crc_without(datagram, crc_at, crc_bytes) {
        return Err(Reject::Corrupt);
    }

    let kind = match header[5] {
        0 => Kind::Data,
        1 => Kind::Heartbeat,
        2 => Kind::End,
        _ => return Err(Reject::Corrupt),
    };

    Ok(Check {
        run: u64::from_be_bytes(field(header, 20)),
        sender: u16::from_be_bytes(field(header, 6)),
        flow: u16::from_be_bytes(field(header, 8)),
        streams: u16::from_be_bytes(field(header, 10)),
        kind,
        sequence: u64::from_be_bytes(field(header, 28)),
        stamp_ns: u64::from_be_bytes(field(header, 36)),
        heartbeats: u32::from_be_bytes(field(header, 44)),
    })
}

/// CRC of all bytes except the `len` bytes at `at`.
fn crc_without(datagram: &[u8], at: usize, len: usize) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&datagram[..at]);
    hasher.update(&datagram[at + len..]);
    hasher.finalize()
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn write_hex(bytes: &[u8], digits: &mut [u8]) {
    for (byte, pair) in bytes.iter().zip(digits.chunks_exact_mut(2)) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
}

/// Accepts only lower case: the CRC does not cover its own digits, and `a` and `A` differ in a single bit.
fn read_hex(digits: &[u8]) -> Option<[u8; HEADER_BYTES]> {
    fn nibble(digit: u8) -> Option<u8> {
        match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        }
    }
    let mut bytes = [0; HEADER_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: Check = Check {
        run: 0x0123_4567_89ab_cdef,
        sender: 3,
        flow: 259,
        streams: 8,
        kind: Kind::Data,
        sequence: 1_000_000,
        stamp_ns: 1_763_644_861_123_456_789, // 2025-11-20T13:21:01.123456789Z
        heartbeats: 17,
    };

    fn datagram(payload: Payload, check: &Check, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        fill(payload, &mut bytes);
        encode(payload, check, &mut bytes);
        bytes
    }

    /// Checks the round trip at several sizes; every truncation, extension and flipped bit is detected.
    fn check_payload(payload: Payload) {
        let min = payload.size_min_bytes();
        for size in [min, min + 1, min + 2, min + 100, 1_472, 65_507] {
            for kind in [Kind::Data, Kind::Heartbeat, Kind::End] {
                let check = Check { kind, ..CHECK };
                let bytes = datagram(payload, &check, size);
                assert_eq!(decode(&bytes), Ok(Datagram { check, payload }), "{payload:?} {size}");
            }
        }
        for size in [min, min + 1, min + 30] {
            let mut bytes = datagram(payload, &CHECK, size);
            for len in 0..size {
                assert!(decode(&bytes[..len]).is_err(), "{payload:?} cut to {len}");
            }
            for bit in 0..size * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&bytes).is_err(), "{payload:?} bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            bytes.push(b'x');
            assert_eq!(decode(&bytes), Err(Reject::Corrupt), "{payload:?} grown");
        }
    }

    #[test]
    fn binary() {
        check_payload(Payload::Binary);
    }
    #[test]
    fn text() {
        check_payload(Payload::Text);
    }
    #[test]
    fn syslog() {
        check_payload(Payload::Syslog);
    }
    #[test]
    fn syslog_rfc3164() {
        check_payload(Payload::SyslogRfc3164);
    }
    #[test]
    fn statsd() {
        check_payload(Payload::Statsd);
    }

    #[test]
    fn the_binary_layout() {
        let bytes = datagram(Payload::Binary, &CHECK, 50);
        #[rustfmt::skip]
        let expected = [
            b'W', b'E', b'I', b'R', 1, 0,                      // magic, version, kind
            0, 3,  1, 3,  0, 8,                                // sender, flow, streams
            0, 0, 0, 50,                                       // length
            bytes[16], bytes[17], bytes[18], bytes[19],        // CRC
            0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,    // run
            0, 0, 0, 0, 0, 0x0f, 0x42, 0x40,                   // sequence
            0x18, 0x79, 0xb9, 0xa8, 0x31, 0x34, 0xef, 0x15,    // stamp
            0, 0, 0, 17,                                       // heartbeats
            bytes[48], bytes[49],                              // filler
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_the_texts_look_like() {
        let digits = "57454952010000030103000800000";
        let text = |payload, size| String::from_utf8(datagram(payload, &CHECK, size)).unwrap();
        assert!(text(Payload::Text, 110).starts_with(&format!("weir1={digits}")));
        let syslog = text(Payload::Syslog, 200);
        assert!(
            syslog.starts_with(&format!(
                "<134>1 2025-11-20T13:21:01.123456Z weir weir-gen - - [weir@32473 weir1=\"{digits}"
            )),
            "{syslog}"
        );
        assert_eq!(&syslog[168..174], "\"] pqr", "{syslog}");
        let old = text(Payload::SyslogRfc3164, 200);
        assert!(old.starts_with(&format!("<134>Nov 20 13:21:01 weir weir-gen: weir1={digits}")));
        let statsd = text(Payload::Statsd, 128);
        assert!(statsd.starts_with(&format!("weir.gen:1|c|#weir1:{digits}")), "{statsd}");
        assert_eq!(&statsd[116..], ",p:pqrstuvwx");
        assert_eq!(&text(Payload::Statsd, 119)[116..], "\n\n\n");
        assert_eq!(&text(Payload::Statsd, 120)[116..], ",p:p");
    }

    #[test]
    fn others_are_foreign() {
        for bytes in [&b""[..], b"x", b"WEIR", b"weir", b"<134>1 - - - - - -", b"a:1|c"] {
            assert_eq!(decode(bytes), Err(Reject::Foreign), "{bytes:?}");
        }
        let mut next_version = datagram(Payload::Binary, &CHECK, 64);
        next_version[4] = 2;
        assert_eq!(decode(&next_version), Err(Reject::Foreign));
    }
}
