//! What Redis answers, and what that means for a row.

use super::{RedisOptions, RedisPlace, failed};
use crate::batch::{Fate, Sent};
use ::redis::{ErrorKind, RedisError, ServerError, Value};
use ledger::{Reason, RejectClass, Trouble};

/// The fate of the part whose command had this answer.
pub(super) fn fate(options: &RedisOptions, answer: Option<&Value>) -> Fate {
    match answer {
        Some(Value::ServerError(error)) => refused(options, error),
        // PUBLISH returns the number of receivers.
        Some(Value::Int(0)) if matches!(options.place, RedisPlace::Channel(_)) => {
            Fate::Dropped(Reason::Refused)
        }
        Some(_) => Fate::Acknowledged,
        None => failed(
            Sent::Maybe,
            Trouble {
                what: format!("{options}: fewer answers than commands"),
                fix: "see whether that is a Redis, or what is between".to_owned(),
            },
        ),
    }
}

/// An error answer: the command did nothing. Codes: <https://redis.io/docs/latest/develop/reference/protocol-spec/>
/// (simple errors), and `shared.*err` and `addReplyError` in server.c and t_stream.c of Redis 7.
fn refused(options: &RedisOptions, error: &ServerError) -> Fate {
    let (code, details) = (error.code(), error.details().unwrap_or_default());
    if code == "ERR" && details.contains("string exceeds maximum allowed size") {
        let says = format!("{options}: {details}");
        return Fate::Rejected { class: RejectClass::TooLarge, says };
    }
    let what = format!("{options}: {code} {details}");
    failed(Sent::No, Trouble { what, fix: cure(code).to_owned() })
}

fn cure(code: &str) -> &'static str {
    match code {
        "OOM" => "raise maxmemory of the server, or bound the stream with stream_max",
        "READONLY" => "connect to the primary: this is a replica",
        "NOAUTH" => "give the sink a password_file, and a user if the server has users",
        "WRONGPASS" => "correct user and password_file of the sink",
        "NOPERM" => "allow the user the command and the key: ACL SETUSER NAME ~KEY +xadd +publish",
        "WRONGTYPE" => "choose another name, or remove the key: it is not a stream",
        "MISCONF" => "free space on the server's disk: it cannot save, and takes no writes",
        "MOVED" | "ASK" => "connect to the node of the cluster that has this key",
        "CLUSTERDOWN" | "MASTERDOWN" | "NOREPLICAS" => {
            "see the state of the servers: INFO replication"
        }
        "LOADING" | "BUSY" | "TRYAGAIN" => "nothing: it passes",
        _ => "see the server's log",
    }
}

/// There is no connection: nothing was sent.
pub(super) fn unconnected(options: &RedisOptions, error: &RedisError) -> Trouble {
    let what = format!("{options}: no connection: {error}");
    let code = error.code();
    let fix = match error.kind() {
        _ if code.is_some_and(|code| code != "ERR") => cure(code.unwrap_or_default()).to_owned(),
        ErrorKind::AuthenticationFailed => cure("WRONGPASS").to_owned(),
        _ if error.is_connection_refusal() => {
            "start the server, or correct the address: nobody listens there".to_owned()
        }
        _ if error.is_timeout() => "check the address, and the firewalls between".to_owned(),
        ErrorKind::Io if what.contains("certificate") => {
            "renew the server's certificate if it has expired; else name its authority in tls_ca"
                .to_owned()
        }
        ErrorKind::Io if what.contains("lookup") => {
            format!("correct the name, or fix the resolver: getent hosts {}", options.host)
        }
        ErrorKind::Io => {
            format!("check the address {}:{}, and whether it wants TLS", options.host, options.port)
        }
        _ => "see the server's log".to_owned(),
    };
    Trouble { what, fix }
}

/// The connection ended before the answers, or they did not arrive in time.
pub(super) fn lost(options: &RedisOptions, error: &RedisError) -> Trouble {
    Trouble {
        what: format!("{options}: no answer: {error}"),
        fix: "see whether the server runs and answers: redis-cli ping; its log".to_owned(),
    }
}
