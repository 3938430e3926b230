//! Reading any bytes as a capture must end without a panic, with no more messages than the bytes have room for, and judging each
//! message leaves no more requests open than there were messages. What was read, written in either form, reads as the same
//! messages, without keys; one that does not tell its protocol tells it in pcap.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::DecodeError;
use wire::capture::{Captured, Format, Writer, read};
use wire::inet_diag::redact;

fuzz_target!(|bytes: &[u8]| {
    let reader = match read(bytes) {
        Ok(reader) => reader,
        Err(error) => return assert!(DecodeError::CLASSES.contains(&error.class())),
    };
    let mut replies = reader.replies();
    let mut messages: Vec<Captured<'_>> = Vec::new();
    for (index, captured) in reader.enumerate() {
        assert!(index <= bytes.len() / 12, "more messages and errors than bytes for them");
        match captured {
            Ok(captured) => {
                if let Err(error) = replies.judge(&captured.message) {
                    assert!(DecodeError::CLASSES.contains(&error.class()));
                }
                messages.push(captured);
            }
            Err(error) => assert!(DecodeError::CLASSES.contains(&error.class())),
        }
    }
    assert!(replies.unanswered().count() <= messages.len());
    assert!(replies.interrupted_dumps() + replies.headless_dumps() <= 2 * messages.len() as u64);
    written_again(&messages, Format::Ss);
    written_again(&messages, Format::Pcap);
});

fn written_again(messages: &[Captured<'_>], format: Format) {
    // The form of `ss` is recognised by the type of its first message.
    let known = |captured: &Captured<'_>| matches!(captured.message.kind, 2 | 3 | 18 | 20);
    if format == Format::Ss && !messages.first().is_some_and(known) {
        return;
    }
    let mut file = Vec::new();
    let writer = Writer::begin(format, &mut file);
    for captured in messages {
        writer.message(captured.time_unix_ns.unwrap_or(0), captured.message.raw, &mut file);
    }
    writer.end(0, &mut file);
    let again: Vec<Captured<'_>> = read(&file)
        .expect("written by us")
        .map(|captured| captured.expect("written by us"))
        .collect();
    assert_eq!(again.len(), messages.len() + 1);
    for (again, captured) in again.iter().zip(messages) {
        let mut expected = captured.message.raw.to_vec();
        redact(&mut expected);
        if format == Format::Pcap && (captured.message.kind, again.message.kind) == (20, 18) {
            expected[4..6].copy_from_slice(&18_u16.to_ne_bytes());
        }
        assert_eq!(again.message.raw, expected);
        // pcap's seconds end in 2106.
        let time = captured.time_unix_ns.unwrap_or(0);
        if format == Format::Pcap && u32::try_from(time / 1_000_000_000).is_ok() {
            assert_eq!(again.time_unix_ns, Some(time));
        }
    }
}
