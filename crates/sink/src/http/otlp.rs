//! Rows as OpenTelemetry logs (OTLP/HTTP, <https://opentelemetry.io/docs/specs/otlp/#otlphttp>).

use super::client::{Answer, BodyEnd};
use crate::batch::{Batch, Encoded, Fate, Outcome, Part, PartKey, Parts};
use crate::destination::{BatchEncoder, Pushed};
use ledger::{Reason, RejectClass};
use record::{FieldSet, OtlpLogs, Row};

/// One request with all rows. Each row is a part, so that rows refused by a server can be counted; the parts share the
/// bytes.
pub(super) struct OtlpEncoder {
    logs: OtlpLogs,
    parts: Vec<Part>,
}

impl OtlpEncoder {
    pub(super) fn new(fields: &FieldSet) -> OtlpEncoder {
        OtlpEncoder { logs: OtlpLogs::new(fields), parts: Vec::new() }
    }
}

impl BatchEncoder for OtlpEncoder {
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed {
        if self.logs.row(row.kind, row.bytes).is_err() {
            return Pushed::Skipped(Reason::EncodeError);
        }
        self.parts.push(Part { end: 0, rows: 1, row_bytes: row.bytes.len() as u64, key });
        Pushed::Taken
    }

    fn bytes(&self) -> usize {
        self.logs.bytes()
    }

    fn finish(&mut self) -> Encoded {
        Encoded { bytes: self.logs.finish(), parts: std::mem::take(&mut self.parts) }
    }

    fn memory_max_bytes(&self, batch_bytes: usize) -> usize {
        // Log records per host, the request made from them, and the parts: a log record is longer than its part.
        3 * batch_bytes
    }
}

/// The fate of each row after a success status. A server that refuses some rows reports how many, not which: the number
/// is exact.
///
/// Nothing is sent again after this status, whatever its body says (<https://opentelemetry.io/docs/specs/otlp/#partial-success>).
/// If the body is not whole, how many were refused is unknown, and so is the fate of them all.
pub(super) fn outcomes(batch: &Batch, answer: &Answer) -> Vec<Outcome> {
    let count = batch.encoded.parts.len() as u32;
    let (refused, says) = match (partial_success(&answer.body), &answer.end) {
        (Some(partial), _) => partial,
        (None, BodyEnd::Complete) => (0, String::new()),
        (None, BodyEnd::TooLong | BodyEnd::Broken(_)) => {
            return vec![Outcome::all(batch.id, Fate::Uncertain)];
        }
    };
    let refused = u32::try_from(refused).unwrap_or(u32::MAX).min(count);
    if refused == 0 {
        return vec![Outcome::all(batch.id, Fate::Acknowledged)];
    }

    let of = |places: std::ops::Range<u32>, fate| Outcome {
        batch: batch.id,
        parts: Parts::Some(places.collect()),
        fate,
    };
    let says = format!("{refused} of {count} log records: {says}");
    let rejected = of(0..refused, Fate::Rejected { class: RejectClass::Invalid, says });
    vec![of(refused..count, Fate::Acknowledged), rejected]
}

/// `rejected_log_records` and `error_message` of an `ExportLogsServiceResponse`, if it has them.
fn partial_success(body: &[u8]) -> Option<(u64, String)> {
    let mut found = (0, String::new());
    let (_, partial) = fields(body).into_iter().find(|(number, _)| *number == 1)?;
    let Wire::Bytes(partial) = partial else { return None };
    for field in fields(partial) {
        match field {
            (1, Wire::Varint(count)) => found.0 = count,
            (2, Wire::Bytes(text)) => {
                let text = String::from_utf8_lossy(text);
                found.1 = text.chars().filter(|c| !c.is_control()).take(300).collect();
            }
            _ => {}
        }
    }
    Some(found)
}

enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// The fields of a protobuf message, up to the first malformed one.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Wire<'_>)> {
    let mut found = Vec::new();
    while let Some((key, rest)) = varint(bytes) {
        let Some((value, rest)) = varint(rest) else { break };
        let (wire, rest) = match key & 7 {
            0 => (Wire::Varint(value), rest),
            2 => {
                let Some((inner, rest)) =
                    usize::try_from(value).ok().and_then(|len| rest.split_at_checked(len))
                else {
                    break;
                };
                (Wire::Bytes(inner), rest)
            }
            _ => break,
        };
        found.push((key >> 3, wire));
        bytes = rest;
    }
    found
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_says_of_refused_records() {
        let check = |body: &[u8], expected: Option<(u64, &str)>| {
            let found = partial_success(body);
            assert_eq!(found.as_ref().map(|(count, text)| (*count, text.as_str())), expected);
        };
        check(b"", None);
        check(b"\x0a\x00", Some((0, "")));
        check(b"\x0a\x06\x08\x07\x12\x02no", Some((7, "no")));
        check(b"\x0a\x06\x08\x07\x12\x09no", Some((7, "")));
        check(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", None);
        check(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None);
        check(b"not found", None);
    }
}
