//! Decoding any bytes must not panic. Where it succeeds, writing the check data that was read over a copy gives a datagram
//! that reads the same, and for the binary payload the very bytes that came in.

#![no_main]

use load::Payload;
use load::check::{self, Datagram, HEADER_BYTES};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(datagram) = check::decode(bytes) {
        written_again(&datagram, bytes);
    }
    // A fuzzer does not find a CRC by chance: the same bytes as fields of a datagram reach the part behind it.
    if let Some(datagram) = from_fields(bytes) {
        let mut whole = bytes.to_vec();
        whole.resize(whole.len().max(datagram.payload.size_min_bytes()), b'x');
        check::encode(datagram.payload, &datagram.check, &mut whole);
        assert_eq!(check::decode(&whole), Ok(datagram));
        written_again(&datagram, &whole);
        // One changed byte is seen, whichever it is.
        let at = usize::from(bytes[0]) * usize::from(bytes[1]) % whole.len();
        whole[at] ^= bytes[2].max(1);
        assert!(check::decode(&whole).is_err());
    }
});

fn written_again(datagram: &Datagram, bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    if datagram.payload == Payload::Binary {
        copy[..HEADER_BYTES].fill(0);
    }
    check::encode(datagram.payload, &datagram.check, &mut copy);
    assert_eq!(check::decode(&copy), Ok(*datagram));
    if datagram.payload == Payload::Binary {
        assert_eq!(copy, bytes);
    }
}

fn from_fields(bytes: &[u8]) -> Option<Datagram> {
    let fields = bytes.first_chunk::<40>()?;
    let number = |at: usize| u64::from_be_bytes(*fields[at..].first_chunk().expect("40 bytes"));
    let payloads =
        [Payload::Binary, Payload::Text, Payload::Syslog, Payload::SyslogRfc3164, Payload::Statsd];
    let kinds = [check::Kind::Data, check::Kind::Heartbeat, check::Kind::End];
    let check = check::Check {
        run: number(8),
        sender: number(16) as u16,
        flow: (number(16) >> 16) as u16,
        streams: (number(16) >> 32) as u16,
        kind: kinds[usize::from(fields[3]) % kinds.len()],
        sequence: number(24),
        stamp_ns: number(32),
        heartbeats: number(0) as u32,
    };
    let payload = payloads[usize::from(fields[4]) % payloads.len()];
    (bytes.len() <= 65_507).then_some(Datagram { check, payload })
}
