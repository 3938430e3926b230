//! Answers whose head says success and whose body is cut, slow, broken or endless.

use super::server::{ENDLESS, Fake, OK, TRICKLING, answer};
use super::{clickhouse, lines, sent, sink, to};
use ledger::{Event, HopSnapshot, RejectClass};
use record::FieldSet;
use sink::{AskErrorKind, AskLimits, Asker, ClickHouseOptions, Connector, Insertion, SinkOptions};
use std::time::Duration;

/// Whole answers without the end of their body.
const BROKEN: &[&str] = &[
    // Cut: before the body, and in it.
    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nx",
    // Pieces without an end, and one whose length is no number.
    "HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhel",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\nhello",
    // It hangs before its end.
    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx",
    TRICKLING,
    ENDLESS,
];

/// What becomes of three batches of a hundred rows, to a server that only has this answer. Each is sent once.
#[track_caller]
fn sent_once(answer: &str, connector: impl FnOnce(&Fake) -> Connector) -> HopSnapshot {
    let fake = Fake::start(&[answer]);
    let hop = sent(sink(connector(&fake), 100), 300);
    assert_eq!(fake.requests().len(), 3, "{answer}: {hop:?}");
    assert_eq!(
        (hop.event(Event::Retries), hop.event(Event::PossibleDuplicates)),
        (0, 0),
        "{answer}"
    );
    hop
}

#[test]
fn a_success_whose_body_is_broken_is_one_and_is_not_sent_again() {
    for answer in BROKEN {
        let hop = sent_once(answer, |fake| sink::http(to(fake), lines()));
        assert_eq!(hop.delivered.count, 300, "{answer}: {hop:?}");
        let hop = sent_once(answer, |fake| sink::clickhouse(clickhouse(fake)));
        assert_eq!(hop.delivered.count, 300, "{answer}: {hop:?}");
    }
}

/// The same for a refusal: its status says it.
#[test]
fn a_refusal_whose_body_is_broken_is_one() {
    for (status, class) in [(400, RejectClass::Invalid), (413, RejectClass::TooLarge)] {
        let answer =
            format!("HTTP/1.1 {status} No\r\nContent-Length: 9\r\nConnection: close\r\n\r\nx");
        let hop = sent_once(&answer, |fake| sink::http(to(fake), lines()));
        assert_eq!(hop.rejected_with(class).count, 300, "{hop:?}");
    }
}

/// How many records were refused stands in the body: without it, nobody knows what became of them.
#[test]
fn logs_whose_answer_is_broken_are_uncertain_and_are_not_sent_again() {
    for answer in BROKEN {
        let hop = sent_once(answer, |fake| sink::otlp(to(fake), FieldSet::ALL));
        assert_eq!((hop.uncertain.count, hop.delivered.count), (300, 0), "{answer}: {hop:?}");
    }

    // It is cut behind the number.
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\n\n\u{6}\u{8}\u{7}\u{12}\u{2}no";
    let hop = sent_once(answer, |fake| sink::otlp(to(fake), FieldSet::ALL));
    let rejected = hop.rejected_with(RejectClass::Invalid).count;
    assert_eq!((hop.delivered.count, rejected, hop.uncertain.count), (279, 21, 0), "{hop:?}");
}

/// A body that breaks off in an error is not that of a success.
#[test]
fn an_insert_whose_answer_breaks_off_in_an_error_is_sent_again() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\nCode: 24";
    let fake = Fake::start(&[cut, OK]);
    let hop = sent(sink(sink::clickhouse(clickhouse(&fake)), 100), 100);
    assert_eq!((hop.delivered.count, hop.event(Event::Retries)), (100, 1), "{hop:?}");
    assert_eq!(hop.event(Event::PossibleDuplicates), 100, "{hop:?}");
}

/// Rows of an answer that breaks off are not shown as if they were all.
#[test]
fn a_question_needs_its_whole_answer() {
    let limits = AskLimits { time: Duration::from_secs(2), rows_max: 100, bytes_max: 1_000 };
    let ask = |answer: &str| {
        let fake = Fake::start(&[answer]);
        Asker::new(clickhouse(&fake), limits.time).unwrap().ask("SELECT 1", limits)
    };
    let whole = ask(&answer("200 OK", "", &"x".repeat(1_000))).unwrap();
    assert_eq!((whole.bytes.len(), whole.is_cut), (1_000, false));
    let long = ask(&answer("200 OK", "", &"x".repeat(1_001))).unwrap();
    assert_eq!((long.bytes.len(), long.is_cut), (1_000, true));
    for cut in BROKEN.iter().filter(|answer| answer.contains("Connection: close")) {
        assert_eq!(ask(cut).unwrap_err().kind, AskErrorKind::Unreachable, "{cut}");
    }
}

fn gathered(fake: &Fake) -> SinkOptions {
    let insertion = Insertion::Gathered;
    sink(sink::clickhouse(ClickHouseOptions { insertion, ..clickhouse(fake) }), 100)
}

/// The server refuses all inserts that it gathered for the bad rows of one.
#[test]
fn a_gathered_insert_that_is_refused_is_tried_alone_before_it_is_rejected() {
    let refusal = super::exception("500 Internal Server Error", 469, "Constraint is violated");
    let fake = Fake::start(&[&refusal, OK]);
    let hop = sent(gathered(&fake), 100);
    assert_eq!((hop.delivered.count, hop.event(Event::PossibleDuplicates)), (100, 0), "{hop:?}");
    let [together, alone] = &fake.requests()[..] else { panic!("{:?}", fake.requests().len()) };
    assert!(together.line.contains("&async_insert=1"), "{}", together.line);
    assert!(alone.line.contains("&async_insert=0"), "{}", alone.line);
    assert_eq!(together.body, alone.body);
    let token = |line: &str| {
        line.split(['?', '&', ' ']).find(|one| one.starts_with("insert_dedup")).map(str::to_owned)
    };
    assert!(token(&alone.line).is_some());
    assert_eq!(token(&together.line), token(&alone.line));

    // Its own rows are refused.
    let fake = Fake::start(&[&refusal]);
    let hop = sent(gathered(&fake), 100);
    assert_eq!(hop.rejected_with(RejectClass::Denied).count, 100, "{hop:?}");
    assert_eq!(fake.requests().len(), 2);

    // Nothing is known of the second one: the next attempt is gathered again.
    let fake = Fake::start(&[&refusal, "", OK]);
    let hop = sent(gathered(&fake), 100);
    assert_eq!((hop.delivered.count, hop.event(Event::PossibleDuplicates)), (100, 100), "{hop:?}");
    assert!(fake.requests()[2].line.contains("&async_insert=1"));
}
