//! POST while the server is down, slow or hanging.

use super::server::{Fake, OK};
use super::{lines, sink, to};
use crate::outage::{Outage, beside, with_spool, without_spool};
use crate::support::{Source, numbers_of};
use ledger::Event;
use sink::{HttpOptions, SinkOptions};
use std::collections::BTreeSet;
use std::time::Duration;
use testkit::proxy::{Fault, Proxy};
use testkit::wait_for;

struct Away(Fake);

impl Outage for Away {
    fn stop(&mut self) {
        self.0.stop();
    }

    fn start(&mut self) {
        self.0.restart();
    }

    fn numbers(&mut self) -> Vec<u64> {
        numbers(&self.0)
    }
}

/// The numbers of all rows received, including repetitions.
fn numbers(fake: &Fake) -> Vec<u64> {
    let of = |body| numbers_of(&String::from_utf8(body).unwrap());
    fake.requests().into_iter().flat_map(|request| of(request.body)).collect()
}

fn away() -> (Away, SinkOptions) {
    let fake = Fake::start(&[OK]);
    let options = sink(sink::http(to(&fake), lines()), 1_000);
    (Away(fake), options)
}

#[test]
fn an_outage_without_a_spool_loses_what_it_says() {
    let (away, options) = away();
    without_spool(away, || options);
}

#[test]
fn an_outage_with_a_spool_loses_nothing() {
    let (away, options) = away();
    with_spool(away, || options);
}

#[test]
fn a_slow_hanging_or_resetting_server_holds_no_other_sink() {
    let fake = Fake::start(&[OK]);
    let proxy = Proxy::start(fake.addr);
    let options = HttpOptions { url: format!("http://{}/in", proxy.addr()), ..to(&fake) };
    let hop = beside(
        sink(sink::http(options, lines()), 500),
        &proxy,
        &[
            Fault::Slow { bytes_per_sec: 100_000 },
            Fault::Hang,
            Fault::ResetAfter { sent_bytes: 30_000 },
            Fault::CloseAfter { answered_bytes: 20 },
            Fault::Refuse,
        ],
    );

    let numbers = numbers(&fake);
    let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
    assert!(distinct.iter().copied().eq(0..hop.received.count));
    let repeated = (numbers.len() - distinct.len()) as u64;
    assert!(repeated > 0, "an answer was cut off behind its rows");
    assert!(repeated <= hop.event(Event::PossibleDuplicates), "{repeated} {hop:?}");
}

/// Rows that were never sent cannot be duplicates.
#[test]
fn rows_that_found_nobody_count_as_no_duplicates() {
    let mut fake = Fake::start(&[OK]);
    fake.stop();
    let mut source = Source::to_one(sink(sink::http(to(&fake), lines()), 100));
    source.send(0..100);
    let trouble = wait_for("the trouble to be told", || source.hop().trouble);
    assert!(trouble.what.contains("no connection to http://127.0.0.1"), "{trouble:?}");
    assert!(trouble.fix.contains("curl -v"), "{trouble:?}");

    fake.restart();
    wait_for("everything to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!((hop.delivered.count, hop.event(Event::PossibleDuplicates)), (100, 0), "{hop:?}");
    assert_eq!(numbers(&fake).len(), 100);
}

/// A request that cannot be finished in time ends by its own timeout, long before the sink abandons the destination.
#[test]
fn what_a_server_is_too_slow_for_is_tried_again() {
    let fake = Fake::start(&[OK]);
    let proxy = Proxy::start(fake.addr);
    let url = format!("http://{}/in", proxy.addr());
    let options = HttpOptions { url, request_timeout: Duration::from_secs(1), ..to(&fake) };
    let mut source = Source::to_one(sink(sink::http(options, lines()), 1_000));
    proxy.set(Fault::Slow { bytes_per_sec: 5_000 });
    source.send(0..1_000);
    let trouble = wait_for("the trouble to be told", || source.hop().trouble);
    assert!(trouble.what.contains("has not answered in time"), "{trouble:?}");
    assert!(trouble.fix.contains("request_timeout"), "{trouble:?}");

    proxy.set(Fault::None);
    wait_for("everything to leave", || source.is_empty());
    let hop = source.hop();
    assert_eq!(hop.delivered.count, 1_000, "{hop:?}");
    assert!(hop.event(Event::Retries) > 0, "{hop:?}");
    assert_eq!(hop.event(Event::PossibleDuplicates), 1_000, "a part may have arrived: {hop:?}");
}
