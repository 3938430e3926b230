use super::attribute::MD5SIG;
use super::message::SOCKET_HEADER_BYTES;
use super::request::{SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK};
use crate::netlink::{ATTRIBUTE_HEADER_BYTES, Attributes, HEADER_BYTES, Message};

/// Overwrites MD5 keys in a complete netlink message with zeros, so that it may leave the process. Everything else,
/// including lengths, is unchanged. Messages that are not replies of the socket diagnosis are left alone.
pub fn redact(message: &mut [u8]) {
    let Ok(Message { kind: SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK, body, .. }) =
        Message::first(message)
    else {
        return;
    };

    let mut attributes = Attributes::new(body.get(SOCKET_HEADER_BYTES..).unwrap_or_default());
    let body_len = body.len();
    let mut keys = Vec::new();

    loop {
        // Where the payload of the next attribute begins in the message.
        let start = HEADER_BYTES + body_len - attributes.rest().len() + ATTRIBUTE_HEADER_BYTES;
        match attributes.next() {
            Some(Ok((MD5SIG, payload))) => keys.push(start..start + payload.len()),
            Some(Ok(_)) => {}
            // After a wrong length, keys may be anywhere.
            Some(Err(_)) => {
                keys.push(start - ATTRIBUTE_HEADER_BYTES..HEADER_BYTES + body_len);
                break;
            }
            None => break,
        }
    }

    // Overwritten only now, because the attributes have borrowed the message until here.
    for key in keys {
        if let Some(bytes) = message.get_mut(key) {
            bytes.fill(0);
        }
    }
}
