//! NSQ's protocol, version V2 (<https://nsq.io/clients/tcp_protocol_spec.html>): decodes frames, encodes
//! commands. No I/O.

/// The first bytes of a connection.
pub(super) const MAGIC: &[u8] = b"  V2";

/// The answer to a heartbeat.
pub(super) const NOP: &[u8] = b"NOP\n";

/// Longest frame to accept: answers are short, and that to IDENTIFY is about a kilobyte.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// A frame from nsqd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// The answer to the oldest unanswered command.
    Response(Vec<u8>),
    /// The same for a failed command: a code, often followed by words.
    Error(String),
    /// It checks that the client is alive.
    Heartbeat,
    /// A message; this client does not subscribe.
    Message,
}

/// The bytes are not NSQ's protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotNsq;

/// Splits bytes into frames.
#[derive(Default)]
pub struct Frames {
    buffer: Vec<u8>,
    read: usize,
}

impl Frames {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read);
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame: its length, its type, and the rest.
    ///
    /// # Errors
    /// The bytes are not a frame, and nothing after them can be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, NotNsq> {
        let rest = self.buffer.get(self.read..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if !(4..=FRAME_BYTES_MAX).contains(&length) {
            return Err(NotNsq);
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };

        let (kind, data) = frame.split_first_chunk::<4>().ok_or(NotNsq)?;
        let frame = match u32::from_be_bytes(*kind) {
            0 if data == b"_heartbeat_" => Frame::Heartbeat,
            0 => Frame::Response(data.to_vec()),
            1 => Frame::Error(String::from_utf8_lossy(data).into_owned()),
            2 => Frame::Message,
            _ => return Err(NotNsq),
        };
        self.read += 4 + length;
        Ok(Some(frame))
    }
}

/// A command with a body.
pub(super) fn command(line: &str, body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(body);
}

/// Publishes messages to a topic, all or none of them.
pub(super) fn publish<'a>(
    topic: &str,
    messages: impl Iterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(format!("MPUB {topic}\n").as_bytes());
    let head = out.len();
    // Room for the length of the body and the number of messages, which are known at the end.
    out.extend_from_slice(&[0; 8]);
    let mut count = 0_u32;
    for message in messages {
        out.extend_from_slice(&(message.len() as u32).to_be_bytes());
        out.extend_from_slice(message);
        count += 1;
    }

    let body = (out.len() - head - 4) as u32;
    if let Some(lengths) = out.get_mut(head..head + 8) {
        lengths[..4].copy_from_slice(&body.to_be_bytes());
        lengths[4..].copy_from_slice(&count.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of this type.
    fn frame(kind: u32, data: &[u8]) -> Vec<u8> {
        let length = (data.len() as u32 + 4).to_be_bytes();
        [&length[..], &kind.to_be_bytes(), data].concat()
    }

    #[test]
    fn frames_are_read_wherever_they_are_cut() {
        let all = [
            frame(0, b"OK"),
            frame(0, b"_heartbeat_"),
            frame(1, b"E_BAD_TOPIC no"),
            frame(2, b"0123456789"),
            frame(0, b""),
        ];
        let expected = [
            Frame::Response(b"OK".to_vec()),
            Frame::Heartbeat,
            Frame::Error("E_BAD_TOPIC no".to_owned()),
            Frame::Message,
            Frame::Response(Vec::new()),
        ];
        let bytes = all.concat();
        for step in 1..=bytes.len() {
            let mut frames = Frames::default();
            let mut read = Vec::new();
            for piece in bytes.chunks(step) {
                frames.push(piece);
                while let Some(frame) = frames.next_frame().unwrap() {
                    read.push(frame);
                }
            }
            assert_eq!(read, expected, "in pieces of {step}");
        }
    }

    #[test]
    fn what_is_not_nsq_is_refused() {
        for bytes in [&b"HTTP/1.1 400"[..], &[0, 0, 0, 3, 0, 0, 0], &frame(3, b"x"), &[255; 8]] {
            let mut frames = Frames::default();
            frames.push(bytes);
            assert_eq!(frames.next_frame(), Err(NotNsq), "{bytes:?}");
        }
    }

    #[test]
    fn messages_have_their_lengths() {
        let mut out = Vec::new();
        publish("t", [&b"ab"[..], b"c"].into_iter(), &mut out);
        let body = b"\0\0\0\x02\0\0\0\x02ab\0\0\0\x01c";
        assert_eq!(out, [b"MPUB t\n\0\0\0\x0f", &body[..]].concat());

        let mut out = Vec::new();
        command("IDENTIFY", b"{}", &mut out);
        assert_eq!(out, b"IDENTIFY\n\0\0\0\x02{}");
    }
}
