//! Netlink framing: annotated bytes, truncations, wrong lengths.

use wire::DecodeError::{self, BadLength, Truncated};
use wire::netlink::{Attributes, MessageWriter, Messages, done_status, error_of};

#[rustfmt::skip]
#[cfg(target_endian = "little")]
const TWO: &[u8] = &[
    22, 0, 0, 0,  20, 0,  2, 0,  7, 0, 0, 0,  9, 0, 0, 0,   // length 22, type 20, multi, sequence 7, port 9
    1, 2, 3, 4, 5, 6,  0, 0,                                // six bytes of body, padding to 24
    20, 0, 0, 0,  3, 0,  2, 0,  7, 0, 0, 0,  9, 0, 0, 0,    // length 20, NLMSG_DONE
    0xfe, 0xff, 0xff, 0xff,                                 // -2, ENOENT
];

#[test]
#[cfg(target_endian = "little")]
fn two_messages_and_their_padding() {
    let messages: Vec<_> = Messages::new(TWO).map(Result::unwrap).collect();
    let [first, done] = messages[..] else { panic!("{messages:?}") };
    assert_eq!((first.kind, first.flags, first.sequence, first.port_id), (20, 2, 7, 9));
    assert_eq!(first.body, [1, 2, 3, 4, 5, 6]);
    assert_eq!(first.raw, &TWO[..22]);
    assert_eq!((done.kind, done_status(done.body)), (3, Ok(-2)));
    let mut written = Vec::new();
    MessageWriter::begin(&mut written, 20, 2, 7).bytes(first.body).finish();
    assert_eq!(written.len(), 24);
    assert_eq!(written[..12], TWO[..12]);
}

#[test]
fn codes_of_errors_and_ends() {
    assert_eq!(error_of(&(-16_i32).to_ne_bytes()), Ok(-16));
    assert_eq!(error_of(&[0, 0, 0]), Err(Truncated { need: 4, have: 3 }));
    assert_eq!(done_status(&[]), Ok(0));
    assert_eq!(done_status(&[0]), Err(Truncated { need: 4, have: 1 }));
}

#[track_caller]
fn check_messages(bytes: &[u8], whole: usize, error: Option<DecodeError>) {
    let mut messages = Messages::new(bytes);
    assert_eq!(messages.by_ref().take(whole).filter(Result::is_ok).count(), whole);
    assert_eq!(messages.next().map(Result::unwrap_err), error);
    assert_eq!(messages.next(), None);
}

#[test]
#[cfg(target_endian = "little")]
fn every_truncation_of_messages() {
    check_messages(&[], 0, None);
    for end in 1..16 {
        check_messages(&TWO[..end], 0, Some(Truncated { need: 16, have: end as u32 }));
    }
    for end in 16..22 {
        check_messages(&TWO[..end], 0, Some(BadLength { length: 22, have: end as u32 }));
    }
    // The padding of the last message may be missing.
    for end in 22..=24 {
        check_messages(&TWO[..end], 1, None);
    }
    for end in 25..40 {
        check_messages(&TWO[..end], 1, Some(Truncated { need: 16, have: end as u32 - 24 }));
    }
    for end in 40..44 {
        check_messages(&TWO[..end], 1, Some(BadLength { length: 20, have: end as u32 - 24 }));
    }
    check_messages(TWO, 2, None);
}

#[test]
fn lengths_that_lie() {
    for length in [0, 1, 15, 17, u32::MAX - 3, u32::MAX] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        check_messages(&bytes, 0, Some(BadLength { length, have: 16 }));
    }
    for length in [0, 1, 3, 5, u16::MAX] {
        let bytes = [length.to_ne_bytes(), [1, 0]].concat();
        let mut attributes = Attributes::new(&bytes);
        assert_eq!(attributes.next(), Some(Err(BadLength { length: length.into(), have: 4 })));
        assert_eq!(attributes.next(), None);
    }
}

#[test]
fn flags_of_attribute_types_are_masked() {
    let mut bytes = Vec::new();
    MessageWriter::begin(&mut bytes, 1, 0, 0)
        .attribute(0x8000 | 19, &[1])
        .attribute(0x4000 | 2, &[])
        .finish();
    let attributes: Vec<_> = Attributes::new(&bytes[16..]).map(Result::unwrap).collect();
    assert_eq!(attributes, [(19, &[1][..]), (2, &[][..])]);
}

#[test]
fn every_truncation_of_attributes() {
    let mut bytes = Vec::new();
    MessageWriter::begin(&mut bytes, 1, 0, 0).attribute(5, &[1]).attribute(2, &[9; 4]).finish();
    let bytes = &bytes[16..];
    assert_eq!(bytes.len(), 16);
    for end in 0..=bytes.len() {
        let all: Vec<_> = Attributes::new(&bytes[..end]).collect();
        let whole = all.iter().filter(|attribute| attribute.is_ok()).count();
        let errors = all.len() - whole;
        let expected = match end {
            0 => (0, 0),
            1..=4 => (0, 1),
            // A payload of one byte, and padding that may be missing.
            5..=8 => (1, 0),
            9..=15 => (1, 1),
            _ => (2, 0),
        };
        assert_eq!((whole, errors), expected, "{end}");
    }
}

#[test]
fn a_writer_cuts_what_no_attribute_can_say() {
    let mut bytes = Vec::new();
    MessageWriter::begin(&mut bytes, 1, 0, 0).attribute(5, &[7; 70_000]).finish();
    let attribute = Attributes::new(&bytes[16..]).next().unwrap().unwrap();
    assert_eq!((attribute.0, attribute.1.len()), (5, 65_531));
}
