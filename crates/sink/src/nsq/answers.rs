//! nsqd's errors (nsqd/protocol_v2.go), and what follows from them.

use super::{Ended, Front};
use crate::batch::Sent;
use ledger::{Reason, Trouble};

/// What an error to a publisher means. nsqd closes after each.
pub(super) fn ended(url: &str, words: &str) -> Ended {
    let code = words.split_ascii_whitespace().next().unwrap_or_default();
    let says = format!("{url}: nsqd says: {words}");
    let trouble = |fix: &str| Trouble { what: says.clone(), fix: fix.to_owned() };

    let (front, reason, fix) = match code {
        // A message is longer than --max-msg-size: nsqd has read up to it, and put nothing into the topic.
        "E_BAD_MESSAGE" => match limit(words) {
            Some(limit_bytes) => (
                Front::TooLarge { limit_bytes, says: says.clone() },
                None,
                "raise --max-msg-size of nsqd",
            ),
            None => {
                (Front::Failed(Sent::No), Some(Reason::Unavailable), "report it: it is a defect")
            }
        },
        // The command is larger than --max-body-size: the next one will be smaller.
        "E_BAD_BODY" if limit(words).is_some() => {
            (Front::Failed(Sent::No), None, "raise --max-body-size of nsqd")
        }
        "E_BAD_TOPIC" => (
            Front::Failed(Sent::No),
            Some(Reason::Unavailable),
            "a topic's name has at most 64 letters, digits, `.`, `_` and `-`; correct `to`",
        ),
        "E_AUTH_FIRST" => (
            Front::Failed(Sent::No),
            Some(Reason::Unavailable),
            "nsqd asks who this is: add token_file = \"/path\" to the sink",
        ),
        "E_AUTH_FAILED" | "E_AUTH_ERROR" | "E_UNAUTHORIZED" | "E_AUTH_DISABLED" => (
            Front::Failed(Sent::No),
            Some(Reason::Unavailable),
            "correct token_file of the sink, or what the authentication server of nsqd allows",
        ),
        // `cannot MPUB in current state (TLS required)`
        "E_INVALID" if words.contains("TLS required") => (
            Front::Failed(Sent::No),
            Some(Reason::Unavailable),
            "this nsqd wants TLS: write nsqs:// in `to`",
        ),
        // The topic is about to be deleted, or its disk accepts no writes: some messages may be stored.
        "E_MPUB_FAILED" => (
            Front::Failed(Sent::Maybe),
            Some(Reason::Unavailable),
            "see nsqd's log: its disk may be full (--data-path), or the topic is being deleted",
        ),
        _ => (Front::Failed(Sent::No), Some(Reason::Unavailable), "see nsqd's log"),
    };
    Ended { front, behind: Sent::No, reason, trouble: trouble(fix) }
}

/// The command size limit, if the error is about it.
pub(super) fn body_limit(words: &str) -> Option<usize> {
    limit(words).filter(|_| words.starts_with("E_BAD_BODY"))
}

/// Parses the 10 of `… too big 20 > 10`.
fn limit(words: &str) -> Option<usize> {
    let (before, limit) = words.rsplit_once(" > ")?;
    before.contains("too big").then(|| limit.trim().parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_where_there_are_any() {
        assert_eq!(limit("E_BAD_MESSAGE MPUB message too big 1048577 > 1048576"), Some(1_048_576));
        assert_eq!(limit("E_BAD_MESSAGE MPUB invalid message(3) body size 0"), None);
        assert_eq!(body_limit("E_BAD_BODY MPUB body too big 9 > 8"), Some(8));
        assert_eq!(body_limit("E_BAD_MESSAGE MPUB message too big 9 > 8"), None);
        assert_eq!(limit("too big 1 > x"), None);
    }
}
