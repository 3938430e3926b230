//! Detects changes of a socket between two polls.

use wire::inet_diag::SOCKET_HEADER_BYTES;
use wire::inet_diag::attribute::INFO;
use wire::netlink::Attributes;

/// Offset and end of `idiag_expires` in `struct inet_diag_msg`: the time until a timer fires, which changes with the clock.
const EXPIRES: (usize, usize) = (52, 56);
/// `tcpi_last_data_sent` to `tcpi_last_ack_recv` in `struct tcp_info`, which change with the clock too.
const LAST: (usize, usize) = (44, 60);

/// A hash of the body of a socket's message, without the fields that change with the clock.
pub(crate) fn fingerprint(body: &[u8]) -> u64 {
    let mut hash = Hash(0x243f_6a88_85a3_08d3);
    let head = body.get(..SOCKET_HEADER_BYTES).unwrap_or(body);
    hash.write(head.get(..EXPIRES.0).unwrap_or_default());
    hash.write(head.get(EXPIRES.1..).unwrap_or_default());

    for (kind, payload) in
        Attributes::new(body.get(SOCKET_HEADER_BYTES..).unwrap_or_default()).flatten()
    {
        // Includes the length, so that no byte can move to the next attribute unnoticed.
        hash.mix(u64::from(kind) << 32 | payload.len() as u64);
        if kind == INFO {
            hash.write(payload.get(..LAST.0).unwrap_or(payload));
            hash.write(payload.get(LAST.1..).unwrap_or_default());
        } else {
            hash.write(payload);
        }
    }

    hash.0
}

/// Multiply and fold, eight bytes per step. Someone who finds a collision only hides a change until the next keyframe.
struct Hash(u64);

impl Hash {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_ne_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_ne_bytes(last));
        }
    }

    #[inline]
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use wire::inet_diag::{Family, SocketId, SocketMessage, State, TcpInfo, encode};

    fn message(change: impl Fn(&mut SocketMessage<'_>, &mut [u8])) -> u64 {
        let any: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let mut info = [7; 280];
        let mut message =
            SocketMessage::new(Family::Inet, State::Established, SocketId::between(any, any));
        change(&mut message, &mut info);
        message.tcp_info = Some(TcpInfo::decode(&info).unwrap());
        let mut bytes = Vec::new();
        encode(&message, 20, 0, 1, &mut bytes);
        fingerprint(&bytes[16..])
    }

    #[test]
    fn the_clock_is_no_change() {
        let same = message(|_, _| {});
        assert_eq!(same, message(|message, _| message.expires_ms = 9));
        for at in 44..60 {
            assert_eq!(same, message(|_, info| info[at] = 8), "{at}");
        }
    }

    #[test]
    fn everything_else_is() {
        let same = message(|_, _| {});
        for at in (0..44).chain(60..280) {
            assert_ne!(same, message(|_, info| info[at] = 8), "{at}");
        }
        assert_ne!(same, message(|message, _| message.state = State::CloseWait));
        assert_ne!(same, message(|message, _| message.receive_queue = 1));
        assert_ne!(same, message(|message, _| message.congestion = Some("bbr")));
        assert_ne!(same, message(|message, _| message.mark = Some(0)));
    }
}
