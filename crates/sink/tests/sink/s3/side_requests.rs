//! A store that takes objects, and breaks or hangs at what goes with them.

use super::{LARGE_ROWS, Store, end, sink_options, write, write_large};
use crate::http::server::{Fake, Request, answer};
use crate::parquet::hop;
use crate::support::check_law;
use sink::{DeliveryOptions, Sink, SinkOptions};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::wait_for;

/// What a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    /// A whole object.
    Put,
    /// An upload in parts: its start, a part, its end, its removal.
    Create,
    Part,
    Complete,
    Abort,
    Head,
}

fn about(request: &Request) -> About {
    let has = |word: &str| request.line.contains(word);
    match request.line.split(' ').next().unwrap() {
        "HEAD" => About::Head,
        "DELETE" => About::Abort,
        "POST" if has("uploads") => About::Create,
        "POST" => About::Complete,
        "PUT" if has("partNumber") => About::Part,
        "PUT" => About::Put,
        other => panic!("{other}"),
    }
}

fn count(fake: &Fake, wanted: About) -> usize {
    fake.requests().iter().filter(|request| about(request) == wanted).count()
}

/// The answer of a store in which everything succeeds.
fn success(about: About) -> String {
    match about {
        About::Create => {
            let upload = "<Bucket>b</Bucket><Key>k</Key><UploadId>u</UploadId>";
            let result = "InitiateMultipartUploadResult";
            answer("200 OK", "", &format!("<{result}>{upload}</{result}>"))
        }
        About::Complete => {
            let result = "CompleteMultipartUploadResult";
            answer("200 OK", "", &format!("<{result}><ETag>\"e\"</ETag></{result}>"))
        }
        About::Abort => answer("204 No Content", "", ""),
        About::Put | About::Part | About::Head => answer("200 OK", "ETag: \"e\"\r\n", ""),
    }
}

/// A sink into a bucket of this server, and the folder with its secret.
fn open(fake: &Fake, rows: usize) -> (Sink, Store) {
    let store = Store::without_bucket(fake.addr);
    let delivery = DeliveryOptions {
        in_flight_max: 2,
        retry_max: Duration::from_millis(100),
        ..DeliveryOptions::default()
    };
    let sink = Sink::open(SinkOptions { delivery, ..sink_options(store.options(), rows) });
    (sink.unwrap(), store)
}

#[test]
fn a_store_that_hangs_at_an_abort_still_gets_every_object() {
    let parts = AtomicUsize::new(0);
    let fake = Fake::answering(move |request| match about(request) {
        About::Abort => None,
        About::Part if parts.fetch_add(1, Ordering::Relaxed) == 0 => {
            Some(answer("500 Internal Server Error", "", ""))
        }
        about => Some(success(about)),
    });
    let (sink, _store) = open(&fake, LARGE_ROWS as usize);
    write_large(&sink);
    let delivered = |count: u64| {
        let meter = sink.meter();
        wait_for("rows to leave", || (hop(&*meter).delivered.count == count).then_some(()));
    };
    delivered(LARGE_ROWS);
    assert_eq!((count(&fake, About::Create), count(&fake, About::Complete)), (2, 1));

    // The next objects do not wait for it either.
    for number in 2..5 {
        write_large(&sink);
        delivered(number * LARGE_ROWS);
    }
    let hop = end(sink);
    check_law(&hop);
    assert!(count(&fake, About::Abort) > 0, "nobody has asked to remove the parts");
    assert_eq!(count(&fake, About::Complete), 4, "an object was put twice: {hop:?}");
}

#[test]
fn an_object_that_is_stored_is_not_put_again_because_the_answer_is_cut() {
    let bytes = AtomicUsize::new(0);
    let fake = Fake::answering(move |request| match about(request) {
        About::Part => {
            bytes.fetch_add(request.body.len(), Ordering::Relaxed);
            Some(success(About::Part))
        }
        About::Complete => {
            let cut = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\n<Comp";
            Some(cut.to_owned())
        }
        About::Head => {
            let length = bytes.load(Ordering::Relaxed);
            let time = "Last-Modified: Sun, 22 Nov 2026 18:42:00 GMT";
            Some(format!(
                "HTTP/1.1 200 OK\r\n{time}\r\nETag: \"e\"\r\nContent-Length: {length}\r\n\r\n"
            ))
        }
        about => Some(success(about)),
    });
    let (sink, _store) = open(&fake, LARGE_ROWS as usize);
    write_large(&sink);
    let hop = end(sink);
    assert_eq!(hop.delivered.count, LARGE_ROWS, "{hop:?}");
    assert_eq!((count(&fake, About::Create), count(&fake, About::Complete)), (1, 1));
}

/// The status is the whole answer to a put.
#[test]
fn an_object_in_one_request_is_put_once_whatever_the_body_of_the_answer_does() {
    for end_of_body in ["Connection: close\r\n\r\nx", "\r\nx"] {
        let head = "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 10\r\n";
        let fake = Fake::answering(move |_| Some(format!("{head}{end_of_body}")));
        let (sink, _store) = open(&fake, 10);
        write(&sink, 30);
        let hop = end(sink);
        assert_eq!((hop.delivered.count, count(&fake, About::Put)), (30, 3), "{hop:?}");
    }
}
