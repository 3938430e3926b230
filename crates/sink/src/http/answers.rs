//! What a status code means for the rows of a request (RFC 9110 section 15).

use super::client::{Answer, failure};
use crate::batch::{Failure, Fate, Sent};
use ledger::RejectClass;
use reqwest::header::LOCATION;

/// The fate of a request body with this answer. `address` is the server.
pub(crate) fn fate_of(answer: &Answer, address: &str) -> Fate {
    let status = answer.status.as_u16();
    let rejected = |class| Fate::Rejected { class, says: format!("{address}: {}", answer.words()) };
    match status {
        200..=299 => Fate::Acknowledged,
        400 => rejected(RejectClass::Invalid),
        413 => rejected(RejectClass::TooLarge),
        422 => rejected(RejectClass::Schema),
        _ => Fate::Failed(Failure {
            after: answer.retry_after(),
            ..failure(
                sent(status),
                format!("{address} answers {}", answer.words()),
                fix(answer, address),
            )
        }),
    }
}

/// A refusal comes from the server itself; an error may have occurred behind it, after it passed the
/// rows on.
fn sent(status: u16) -> Sent {
    match status {
        300..=499 => Sent::No,
        _ => Sent::Maybe,
    }
}

fn fix(answer: &Answer, address: &str) -> String {
    match answer.status.as_u16() {
        300..=399 => {
            let to =
                answer.headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
            let to = to.split('?').next().unwrap_or_default();
            format!("it sends on to {to}, where nothing is sent unasked: write that URL in `to`")
        }
        401 | 407 => "set token_file, or user and password_file, to what it takes".to_owned(),
        403 => "give this user or token the right to write there".to_owned(),
        404 | 405 | 410 => "see that the path in `to` is the one that takes POST".to_owned(),
        415 => "set format and compression of the sink to what it takes".to_owned(),
        408 | 425 | 429 => {
            "it asks for less at a time: lower in_flight or batch_size of the sinks".to_owned()
        }
        _ => format!("see what {address} has in its log"),
    }
}
