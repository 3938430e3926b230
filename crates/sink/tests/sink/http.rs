//! Batches as request bodies, to a server with scripted answers.

mod bodies;
mod faults;
mod otlp;
pub(crate) mod server;

use crate::support::{
    Source, batch_rows, check_law, fields, line_of, numbered, numbers_of, options,
};
use ledger::{Event, RejectClass};
use record::{Encoding, FieldSet};
use server::{Fake, OK, answer};
use sink::{
    ClickHouseOptions, Compression, Content, DeliveryOptions, Duplicates, HttpOptions, Insertion,
    Login, MissingTables, SecretSource, SinkOptions, TlsOptions,
};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{TempDir, wait_for};

fn to(fake: &Fake) -> HttpOptions {
    HttpOptions {
        url: format!("http://{}/in", fake.addr),
        login: Login::default(),
        tls: TlsOptions::default(),
        request_timeout: Duration::from_secs(2),
        compression: Compression::None,
        headers: vec![("X-Scope".to_owned(), "net".to_owned())],
        secret_headers: Vec::new(),
    }
}

fn lines() -> Content {
    Content::Records(Encoding::Jsonl, fields(&["sequence", "host"]))
}

fn sink(connector: sink::Connector, rows: usize) -> SinkOptions {
    let delivery = DeliveryOptions {
        in_flight_max: 4,
        retry_max: Duration::from_millis(200),
        ..DeliveryOptions::default()
    };
    SinkOptions { batch: batch_rows(rows), delivery, ..options("post", connector) }
}

/// Sends records, and waits until the fate of each is known.
fn sent(options: SinkOptions, count: u64) -> ledger::HopSnapshot {
    let mut source = Source::to_one(options);
    source.send_all((0..count).map(numbered));
    wait_for("everything to leave", || source.is_empty());
    let hop = source.hop();
    check_law(&hop);
    source.stop(Instant::now() + Duration::from_secs(5));
    hop
}

fn inflated(tool: &str, body: &[u8]) -> String {
    let mut tool = Command::new(tool);
    let mut child = tool.arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let body = body.to_owned();
    let writer = thread::spawn(move || stdin.write_all(&body).unwrap());
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn every_row_is_in_one_body_of_its_media_type() {
    let count = testkit::rows();
    for (compression, coding) in [(Compression::None, None), (Compression::Gzip, Some("gzip"))] {
        let fake = Fake::start(&[OK]);
        let options = HttpOptions { compression, ..to(&fake) };
        let hop = sent(sink(sink::http(options, lines()), 10_000), count);
        assert_eq!(hop.delivered.count, count, "{hop:?}");

        let mut numbers = Vec::new();
        for request in fake.requests() {
            assert_eq!(request.line, "POST /in HTTP/1.1\r\n");
            assert_eq!(request.header("content-type"), Some("application/x-ndjson"));
            assert_eq!(request.header("content-encoding"), coding);
            assert_eq!(request.header("x-scope"), Some("net"));
            let text = match coding {
                None => String::from_utf8(request.body).unwrap(),
                Some(tool) => inflated(tool, &request.body),
            };
            numbers.extend(numbers_of(&text));
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..count));
    }
}

#[test]
fn each_body_of_a_table_has_its_line_of_names() {
    let fake = Fake::start(&[OK]);
    let content = Content::Records(Encoding::Csv, fields(&["sequence", "host"]));
    sent(sink(sink::http(to(&fake), content), 1), 2);
    let mut bodies: Vec<_> = fake.requests().into_iter().map(|request| request.body).collect();
    bodies.sort();
    assert_eq!(bodies, [&b"sequence,host\n0,\"\"\n"[..], b"sequence,host\n1,x\n"]);
}

#[test]
fn what_passes_is_tried_again_with_the_same_bytes() {
    let moved =
        answer("307 Temporary Redirect", "Location: http://example.net/other?token=geheim\r\n", "");
    let cases = [
        (answer("401 Unauthorized", "", ""), "token_file"),
        (answer("403 Forbidden", "", "no"), "right"),
        (answer("404 Not Found", "", ""), "path"),
        (answer("408 Request Timeout", "", ""), "in_flight"),
        (answer("415 Unsupported Media Type", "", ""), "format"),
        (answer("429 Too Many Requests", "Retry-After: 1\r\n", ""), "in_flight"),
        (answer("500 Internal Server Error", "", "on fire"), "on fire"),
        (answer("503 Service Unavailable", "Retry-After: 1\r\n", ""), "log"),
        (answer("409 Conflict", "", "later"), "later"),
        (answer("502 Bad Gateway", "", "behind it"), "behind it"),
        (moved, "example.net/other"),
        (String::new(), "the connection"),
    ];
    for (refusal, words) in cases {
        let fake = Fake::start(&[&refusal, OK]);
        let mut source = Source::to_one(sink(sink::http(to(&fake), lines()), 100));
        let began = Instant::now();
        source.send(0..100);
        // The trouble may have been too brief to be seen.
        let trouble = wait_for("the trouble", || match source.hop().trouble {
            None if fake.requests().len() < 2 => None,
            trouble => Some(trouble),
        });
        wait_for("everything to leave", || source.is_empty());
        let hop = source.hop();
        assert_eq!((hop.delivered.count, hop.events[&Event::Retries]), (100, 1), "{refusal}");
        let [first, second] = &fake.requests()[..] else { panic!("{refusal}") };
        assert_eq!(first.body, second.body);

        if let Some(trouble) = trouble {
            let said = format!("{} — {}", trouble.what, trouble.fix);
            assert!(said.contains(words), "{refusal}: {said}");
            assert!(!said.contains("geheim"), "{said}");
        }
        if refusal.contains("Retry-After") {
            assert!(began.elapsed() >= Duration::from_secs(1), "{refusal}");
        }
        let copies = hop.events.get(&Event::PossibleDuplicates).copied().unwrap_or(0);
        let may_be_there = refusal.contains("1 50") || refusal.is_empty();
        assert_eq!(copies, if may_be_there { 100 } else { 0 }, "{refusal}");
    }
}

#[test]
fn what_is_refused_permanently_is_counted_by_its_class() {
    let cases = [
        ("400 Bad Request", RejectClass::Invalid),
        ("413 Payload Too Large", RejectClass::TooLarge),
        ("422 Unprocessable Content", RejectClass::Schema),
    ];
    for (status, class) in cases {
        let fake = Fake::start(&[&answer(status, "", "no"), OK]);
        let mut options = sink(sink::http(to(&fake), lines()), 100);
        options.delivery.in_flight_max = 1;
        let hop = sent(options, 300);
        assert_eq!((hop.rejected_with(class).count, hop.delivered.count), (100, 200), "{hop:?}");
    }
}

#[test]
fn every_status_of_success_is_an_acknowledgement() {
    for status in ["200 OK", "201 Created", "202 Accepted", "204 No Content"] {
        let fake = Fake::start(&[&answer(status, "", "")]);
        let hop = sent(sink(sink::http(to(&fake), lines()), 100), 100);
        let retries = hop.event(Event::Retries);
        assert_eq!((hop.delivered.count, retries, fake.requests().len()), (100, 0, 1), "{status}");
    }
}

#[test]
fn secrets_come_from_files_and_are_read_again() {
    let folder = TempDir::new();
    let (token, key) = (folder.path().join("token"), folder.path().join("key"));
    std::fs::write(&key, "geheim-1\n").unwrap();
    let fake = Fake::start(&[OK]);
    let login = Login { token: Some(SecretSource::File(token.clone())), ..Login::default() };
    let secret_headers = vec![("X-Api-Key".to_owned(), SecretSource::File(key))];
    let options = HttpOptions { login, secret_headers, ..to(&fake) };
    let mut source = Source::to_one(sink(sink::http(options, lines()), 100));
    source.send(0..100);
    let trouble = wait_for("the missing file to be told", || source.hop().trouble);
    assert!(trouble.what.contains(token.to_str().unwrap()), "{trouble:?}");
    std::fs::write(&token, "geheim-2\n").unwrap();
    wait_for("everything to leave", || source.is_empty());

    let request = fake.requests().pop().unwrap();
    assert_eq!(request.header("authorization"), Some("Bearer geheim-2"));
    assert_eq!(request.header("x-api-key"), Some("geheim-1"));
}

#[test]
fn an_answer_that_does_not_come_holds_nobody_else() {
    // It accepts connections, and never answers.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let fake = Fake::start(&[OK]);
    let silent =
        HttpOptions { url: format!("http://{}/", deaf.local_addr().unwrap()), ..to(&fake) };
    let sinks = [sink::http(silent, lines()), sink::http(to(&fake), lines())];
    let sinks = sinks.map(|one| sink::Sink::open(sink(one, 100)).unwrap());
    let meters = sinks.each_ref().map(sink::Sink::meter);
    let mut source = Source::to(sinks.into());
    source.send(0..1_000);
    wait_for("the sound one", || {
        (crate::support::hop(&meters[1]).delivered.count == 1_000).then_some(())
    });
    let trouble = wait_for("the silence to be told", || crate::support::hop(&meters[0]).trouble);
    assert!(trouble.what.contains("has not answered in time"), "{trouble:?}");
    source.stop(Instant::now());
    let hop = crate::support::hop(&meters[0]);
    check_law(&hop);
    assert_eq!(hop.delivered.count, 0);
    assert_eq!(hop.uncertain.count + hop.dropped_total().count, 1_000, "{hop:?}");
}

#[test]
fn a_user_is_sent_with_the_password_of_the_file() {
    let folder = TempDir::new();
    let file = folder.path().join("password");
    std::fs::write(&file, "right\n").unwrap();
    let fake = Fake::start(&[OK]);
    let login = Login {
        user: Some("weir".to_owned()),
        password: Some(SecretSource::File(file)),
        token: None,
    };
    sent(sink(sink::http(HttpOptions { login, ..to(&fake) }, lines()), 100), 1);
    // base64 of weir:right
    let expected = Some("Basic d2VpcjpyaWdodA==");
    assert_eq!(fake.requests()[0].header("authorization"), expected);
}

fn clickhouse(fake: &Fake) -> ClickHouseOptions {
    ClickHouseOptions {
        url: format!("http://{}", fake.addr),
        database: "weir".to_owned(),
        table_prefix: String::new(),
        login: Login::default(),
        tls: TlsOptions::default(),
        request_timeout: Duration::from_secs(2),
        compression: Compression::None,
        fields: FieldSet::ALL,
        missing_tables: MissingTables::Awaited,
        duplicates: Duplicates::Kept,
        insertion: Insertion::AtOnce,
    }
}

fn exception(status: &str, code: u32, words: &str) -> String {
    let header = format!("X-ClickHouse-Exception-Code: {code}\r\n");
    answer(status, &header, &format!("Code: {code}. DB::Exception: {words}"))
}

#[test]
fn errors_of_clickhouse_mean_what_they_say() {
    // Each with the number of rows that a retry may duplicate.
    let passing = [
        (exception("500 Internal Server Error", 252, "Too many parts (TOO_MANY_PARTS)"), 0),
        (exception("500 Internal Server Error", 241, "Memory limit exceeded"), 100),
        (exception("404 Not Found", 60, "Table weir.sockets does not exist"), 0),
        (exception("403 Forbidden", 516, "Authentication failed"), 0),
        (exception("500 Internal Server Error", 242, "Table is in readonly mode"), 0),
        (exception("400 Bad Request", 53, "while converting column rtt_us"), 0),
        // An error that occurred after the status was sent.
        (answer("200 OK", "", "Code: 241. DB::Exception: Memory limit exceeded"), 100),
    ];
    for (refusal, copies) in passing {
        let fake = Fake::start(&[&refusal, OK]);
        let hop = sent(sink(sink::clickhouse(clickhouse(&fake)), 100), 100);
        assert_eq!((hop.delivered.count, hop.events[&Event::Retries]), (100, 1), "{refusal}");
        assert_eq!(hop.event(Event::PossibleDuplicates), copies, "{refusal}");
        let [first, second] = &fake.requests()[..] else { panic!("{refusal}") };
        assert_eq!(
            (&first.line, &first.body),
            (&second.line, &second.body),
            "the token is the same"
        );
    }

    let permanent = [
        (exception("400 Bad Request", 117, "Incorrect data"), RejectClass::Schema),
        (exception("500 Internal Server Error", 33, "Cannot read all data"), RejectClass::Schema),
        (
            exception("500 Internal Server Error", 469, "Constraint is violated"),
            RejectClass::Denied,
        ),
    ];
    for (refusal, class) in permanent {
        let fake = Fake::start(&[&refusal, OK]);
        let mut options = sink(sink::clickhouse(clickhouse(&fake)), 100);
        options.delivery.in_flight_max = 1;
        let hop = sent(options, 200);
        assert_eq!((hop.rejected_with(class).count, hop.delivered.count), (100, 100), "{refusal}");
    }
}

/// Each batch has its own token, and the answer comes once its rows are written.
#[test]
fn an_insert_of_clickhouse_says_when_it_is_to_be_answered() {
    let gathered = [
        (Duplicates::Kept, Insertion::Gathered, &["async_insert=1", "wait_for_async_insert=1"][..]),
        (Duplicates::Removed, Insertion::Gathered, &["async_insert_deduplicate=1"]),
        (Duplicates::Removed, Insertion::AtOnce, &[]),
    ];
    for (duplicates, insertion, wanted) in gathered {
        let fake = Fake::start(&[OK]);
        let options = ClickHouseOptions { duplicates, insertion, ..clickhouse(&fake) };
        sent(sink(sink::clickhouse(options), 100), 300);

        let lines: Vec<_> = fake.requests().into_iter().map(|request| request.line).collect();
        let token = |line: &String| {
            let (_, rest) = line.split_once("insert_deduplication_token=").unwrap();
            rest.split(['&', ' ']).next().unwrap().to_owned()
        };
        let tokens: BTreeSet<String> = lines.iter().map(token).collect();
        assert_eq!((lines.len(), tokens.len()), (3, 3), "{lines:?}");
        assert!(tokens.iter().all(|token| token.len() == 32), "{tokens:?}");
        for line in &lines {
            assert!(line.contains("wait_end_of_query=1"), "{line}");
            // Explicit in both cases: a profile may have another default.
            assert_eq!(
                line.contains("&async_insert=1"),
                insertion == Insertion::Gathered,
                "{line}"
            );
            assert_eq!(line.contains("&async_insert=0"), insertion == Insertion::AtOnce, "{line}");
            assert!(line.contains("send_progress_in_http_headers=0"), "{line}");
            assert!(wanted.iter().all(|setting| line.contains(setting)), "{line}");
        }
    }
}

/// Its rows are inserted all the same.
#[test]
fn a_server_of_clickhouse_that_shows_no_columns_is_named() {
    let fake = Fake::start(&[OK]);
    let mut source = Source::to_one(sink(sink::clickhouse(clickhouse(&fake)), 100));
    source.send(0..100);
    wait_for("everything to leave", || source.is_empty());
    let trouble = wait_for("what is not known to be told", || source.hop().trouble);
    assert!(trouble.what.contains("weir.sockets") && trouble.fix.contains("GRANT"), "{trouble:?}");
    source.send(100..200);
    wait_for("everything to leave", || source.is_empty());
    assert_eq!(source.hop().delivered.count, 200);
    source.stop(Instant::now() + Duration::from_secs(5));
}

#[test]
fn lines_are_those_of_a_file() {
    let fake = Fake::start(&[OK]);
    sent(sink(sink::http(to(&fake), lines()), 100), 3);
    let body: Vec<u8> = fake.requests().into_iter().flat_map(|request| request.body).collect();
    let expected: String = (0..3).map(line_of).collect();
    assert_eq!(String::from_utf8(body).unwrap(), expected);
    assert_eq!(numbered(1).sequence, Some(1));
}
