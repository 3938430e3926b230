//! Logs of OpenTelemetry.

use super::server::{Fake, OK, answer};
use super::{sent, sink, to};
use ledger::{Event, RejectClass};
use record::FieldSet;

/// The rows that a server refuses are counted; it says how many.
#[test]
fn logs_that_are_refused_in_part_are_counted() {
    let refusal = answer("200 OK", "", "\n\u{6}\u{8}\u{7}\u{12}\u{2}no");
    let fake = Fake::start(&[&refusal]);
    let hop = sent(sink(sink::otlp(to(&fake), FieldSet::ALL), 100), 100);
    assert_eq!((hop.delivered.count, hop.rejected_with(RejectClass::Invalid).count), (93, 7));
    let request = fake.requests().pop().unwrap();
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));

    // More than there were: 127 of 100.
    let fake = Fake::start(&[&answer("200 OK", "", "\n\u{2}\u{8}\u{7f}")]);
    let hop = sent(sink(sink::otlp(to(&fake), FieldSet::ALL), 100), 100);
    assert_eq!((hop.delivered.count, hop.rejected_with(RejectClass::Invalid).count), (0, 100));
}

/// What stands in the body of an error is no answer of success.
#[test]
fn logs_that_were_answered_with_an_error_are_sent_again() {
    let fake = Fake::start(&[&answer("503 Service Unavailable", "", ""), OK]);
    let hop = sent(sink(sink::otlp(to(&fake), FieldSet::ALL), 100), 100);
    assert_eq!((hop.delivered.count, hop.event(Event::Retries)), (100, 1), "{hop:?}");
    assert_eq!(hop.event(Event::PossibleDuplicates), 100, "{hop:?}");
    let [first, second] = &fake.requests()[..] else { panic!("two requests") };
    assert_eq!(first.body, second.body);
}
