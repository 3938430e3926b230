//! Frames of nsqd from any bytes: the same ones however the bytes are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sink::nsq::{Frame, Frames};

/// Every frame up to the first error.
fn frames<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Frame> {
    let (mut parser, mut found) = (Frames::default(), Vec::new());
    for piece in pieces {
        parser.push(piece);
        loop {
            match parser.next_frame() {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}

fuzz_target!(|input: (u8, &[u8])| {
    let (step, bytes) = input;
    let step = usize::from(step).max(1);
    assert_eq!(frames(std::iter::once(bytes)), frames(bytes.chunks(step)));
});
