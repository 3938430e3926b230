//! Reading any bytes as a packet between two Weirs must not panic, and what is read is written as it was. What both ends do with
//! packets that were made with their key is `hop_session`.

#![no_main]

use hop::packet::{Cookie, DataHead, Floor, HEADER_BYTES, Header, Report, decode_hello};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = Header::decode(bytes) {
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        if let Ok((cookie, noise)) = decode_hello(header.kind, &bytes[HEADER_BYTES..]) {
            let cookie = cookie.map_or(&[][..], |cookie| cookie);
            assert_eq!([cookie, noise].concat(), bytes[HEADER_BYTES..]);
        }
    }
    if let Ok((head, datagram)) = DataHead::decode(bytes) {
        let mut again = Vec::new();
        head.encode(&mut again);
        again.extend_from_slice(datagram);
        assert_eq!(DataHead::decode(&again), Ok((head, datagram)));
    }
    if let Ok(report) = Report::decode(bytes) {
        let mut again = Vec::new();
        report.encode(&mut again);
        assert_eq!(again, bytes);
        for number in report.largest.saturating_sub(3_000)..report.largest.saturating_add(3) {
            let _ = report.has(number);
        }
    }
    if let Ok(cookie) = Cookie::decode(bytes) {
        let mut again = Vec::new();
        cookie.encode(&mut again);
        assert_eq!(again, bytes);
    }
    let _ = Floor::decode(bytes);
});
