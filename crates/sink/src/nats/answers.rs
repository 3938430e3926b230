//! What NATS answers, and what that means for a row.

use super::NatsOptions;
use crate::batch::{Failure, Fate, Sent};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::publish::PublishAck;
use async_nats::{Client, ConnectError, ConnectErrorKind};
use ledger::{Reason, RejectClass, Trouble};
use std::error::Error;

pub(super) fn failed(sent: Sent, trouble: Trouble) -> Fate {
    let reason = Some(Reason::Unavailable);
    Fate::Failed(Failure { sent, reason, after: None, trouble })
}

/// The server closes a connection that sends a message larger than `max_payload` of its INFO
/// (<https://docs.nats.io/reference/reference-protocols/nats-protocol>). Headers count too.
pub(super) fn too_large(options: &NatsOptions, client: &Client, len: usize) -> Option<Fate> {
    let max = client.max_payload();
    (len + HEADER_BYTES > max).then(|| rejected_size(options, len, max))
}

/// More than `NATS/1.0` and one short header take.
const HEADER_BYTES: usize = 64;

fn rejected_size(options: &NatsOptions, len: usize, max: usize) -> Fate {
    let says = format!("{options}: a message of {len} bytes is above max_payload, {max}");
    Fate::Rejected { class: RejectClass::TooLarge, says }
}

/// The fate of a message to a stream.
///
/// Stream errors are in `errors.json` of nats-server (10054: larger than the stream accepts; 10077, 10023: full; 10060 and
/// following: an expectation about the stream does not hold).
pub(super) fn fate_of(options: &NatsOptions, answer: Result<PublishAck, PublishError>) -> Fate {
    let Err(error) = answer else { return Fate::Acknowledged };

    let says = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let (sent, fix) = match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => {
            return Fate::Rejected { class: RejectClass::TooLarge, says };
        }
        PublishErrorKind::Other if says.contains("10054") => {
            return Fate::Rejected { class: RejectClass::TooLarge, says };
        }
        PublishErrorKind::StreamNotFound => (
            Sent::No,
            format!(
                "make a stream for it: nats stream add NAME --subjects {}; or see that the server has JetStream",
                options.subject
            ),
        ),
        PublishErrorKind::Other => (
            Sent::No,
            "see the limits of the stream (nats stream info) and the server's log".to_owned(),
        ),
        _ => (Sent::Maybe, "see whether the server answers: its log".to_owned()),
    };
    failed(sent, Trouble { what: format!("{options}: {says}"), fix })
}

pub(super) fn lost(options: &NatsOptions) -> Trouble {
    Trouble {
        what: format!("{options}: the connection was lost before an answer"),
        fix: "see whether the server runs, and its log".to_owned(),
    }
}

/// The server refused permission.
pub(super) fn denied(options: &NatsOptions, says: &str) -> Trouble {
    Trouble {
        what: format!("{options}: the server says: {says}"),
        fix: format!(
            "allow the user to publish to {} and _INBOX.>, and to subscribe to _INBOX.>",
            options.subject
        ),
    }
}

/// There is no connection: nothing was sent.
pub(super) fn unconnected(options: &NatsOptions, error: &ConnectError) -> Trouble {
    let mut what = format!("{options}: no connection: {error}");
    let mut inner = error.source();
    while let Some(error) = inner {
        let says = error.to_string();
        if !what.contains(&says) {
            what.push_str(": ");
            what.push_str(&says);
        }
        inner = error.source();
    }

    let fix = match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            "correct user and password, token, nkey or credentials of the sink"
        }
        ConnectErrorKind::Dns => "correct the name, or fix the resolver: getent hosts NAME",
        ConnectErrorKind::TimedOut => "check the address, and the firewalls between",
        _ if what.contains("certificate") => {
            "renew the server's certificate if it has expired; else name its authority in tls_ca"
        }
        ConnectErrorKind::Tls => "see that the server has TLS, and name its authority in tls_ca",
        ConnectErrorKind::ServerParse => "write the address as HOST:PORT",
        ConnectErrorKind::Io | ConnectErrorKind::MaxReconnects => {
            "start the server, or correct the address"
        }
    };
    Trouble { what, fix: fix.to_owned() }
}
