//! Rows into ClickHouse's own engine, read back by an independent client.

mod check;
mod faults;

use crate::support::{Source, batch_rows, check_law, fields, numbered, options};
use ledger::{Event, HopSnapshot};
use record::{FieldSet, PollTotals, SocketRecord, SocketState};
use serde_json::{Value, json};
use sink::{
    ClickHouseOptions, Compression, DeliveryOptions, Duplicates, Insertion, Login, MissingTables,
    SecretSource, SinkOptions, TlsOptions,
};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant};
use testkit::servers::{Certificate, Server, unique};
use testkit::{TempDir, proxy, readback, wait_for};

/// A separate database for a test, which the sink creates.
pub(crate) fn to(server: SocketAddr, database: &str) -> ClickHouseOptions {
    ClickHouseOptions {
        url: format!("http://{server}"),
        database: database.to_owned(),
        table_prefix: String::new(),
        login: Login::default(),
        tls: TlsOptions::default(),
        request_timeout: Duration::from_secs(30),
        compression: Compression::Zstd,
        fields: FieldSet::ALL,
        missing_tables: MissingTables::Created,
        duplicates: Duplicates::Removed,
        insertion: Insertion::AtOnce,
    }
}

pub(crate) fn sink(to: ClickHouseOptions, rows: usize) -> SinkOptions {
    let delivery = DeliveryOptions {
        in_flight_max: 2,
        retry_max: Duration::from_millis(500),
        ..DeliveryOptions::default()
    };
    let mut batch = batch_rows(rows);
    batch.bytes = 32 << 20;
    batch.age = Duration::from_millis(200);
    let mut options = options("store", sink::clickhouse(to));
    options.queue.bytes_max = 256 << 20;
    SinkOptions { batch, delivery, ..options }
}

/// A record with fields of every type, derived from its number.
fn record(number: u64) -> SocketRecord<'static> {
    let small = number as u32;
    SocketRecord {
        time_unix_ns: Some(1_795_190_400_000_000_000 + number),
        run_id: Some(7),
        state: Some(SocketState((number % 15) as u8)),
        boot_id: Some("c5b1f1e0-2d7a-4d27-9c1b-0f6d6f3c5a11"),
        src_address: Some(IpAddr::from((small | 0x0a00_0000).to_be_bytes())),
        dst_address: Some(IpAddr::from(
            (0x2001_0db8_u128 << 96 | u128::from(number)).to_be_bytes(),
        )),
        src_port: (!number.is_multiple_of(3)).then_some(number as u16),
        rtt_us: Some(small),
        bytes_acked: Some(u64::MAX - number),
        has_md5: number.is_multiple_of(2).then_some(true),
        tcp_info_tail: number.is_multiple_of(5).then_some(b"\0\xff'\\\n"),
        ..numbered(number)
    }
}

/// The same record as ClickHouse's client returns it.
fn row(number: u64) -> Value {
    let made = record(number);
    json!({
        "time_unix_ns": made.time_unix_ns, "run_id": 7, "sequence": number, "cookie": number, "host": made.host,
        "state": number % 15, "boot_id": made.boot_id, "src_address": format!("::ffff:{}", made.src_address.unwrap()),
        "dst_address": made.dst_address.unwrap().to_string(), "src_port": made.src_port, "rtt_us": made.rtt_us,
        "bytes_acked": made.bytes_acked, "has_md5": made.has_md5, "min_rtt_us": null,
        "tail": made.tcp_info_tail.map(|_| "00FF275C0A"),
    })
}

const COLUMNS: &str = "time_unix_ns, run_id, sequence, cookie, host, state, boot_id, src_address, dst_address, src_port, rtt_us, \
                       bytes_acked, has_md5, min_rtt_us, hex(tcp_info_tail) AS tail";

fn rows_of(server: SocketAddr, database: &str) -> Vec<Value> {
    let query = format!("SELECT {COLUMNS} FROM `{database}`.sockets ORDER BY sequence");
    readback::clickhouse(server, &query)
}

fn count(server: SocketAddr, database: &str, table: &str) -> u64 {
    let query = format!("SELECT count() AS c, uniqExact(sequence) AS u FROM `{database}`.{table}");
    let row = &readback::clickhouse(server, &query)[0];
    assert_eq!(row["c"], row["u"], "there are copies");
    row["c"].as_u64().unwrap()
}

fn ended(source: Source) -> HopSnapshot {
    wait_for("everything to leave", || source.is_empty());
    let hop = source.hop();
    check_law(&hop);
    assert_eq!(source.stop(Instant::now() + Duration::from_secs(5)), []);
    hop
}

#[test]
fn every_row_comes_back_as_it_was() {
    let count = testkit::rows();
    let Some(server) = Server::ClickHouse.shared() else { return };
    let database = unique("weir");
    let mut source = Source::to_one(sink(to(server, &database), 25_000));
    source.send_all((0..count).map(record));
    source.writer.end_of_poll(&PollTotals {
        poll: Some(3),
        run_id: Some(7),
        next_sequence: Some(count),
        ..PollTotals::default()
    });
    let hop = ended(source);
    assert_eq!(hop.delivered.count, count + 1, "{hop:?}");

    let rows = rows_of(server, &database);
    assert_eq!(rows.len() as u64, count);
    for (row_there, number) in rows.iter().zip(0..) {
        assert_eq!(*row_there, row(number));
    }
    let polls = format!("SELECT poll, next_sequence FROM `{database}`.polls");
    assert_eq!(
        readback::clickhouse(server, &polls),
        [json!({ "poll": 3, "next_sequence": count })]
    );
}

#[test]
fn rows_have_the_chosen_fields_alone() {
    let Some(server) = Server::ClickHouse.shared() else { return };
    let database = unique("weir");
    let chosen = ClickHouseOptions {
        fields: fields(&["time_unix_ns", "sequence", "rtt_us"]),
        compression: Compression::Gzip,
        table_prefix: "net_".to_owned(),
        ..to(server, &database)
    };
    let mut source = Source::to_one(sink(chosen, 1_000));
    (0..1_000).for_each(|number| source.writer.record(&record(number)));
    source.writer.flush();
    assert_eq!(ended(source).delivered.count, 1_000);

    let query = format!(
        "SELECT count() AS all, sum(rtt_us) AS rtt, countIf(cookie != 0 OR host != '' OR run_id IS NOT NULL) AS others FROM \
         `{database}`.net_sockets"
    );
    let expected = json!({ "all": 1_000, "rtt": 499_500, "others": 0 });
    assert_eq!(readback::clickhouse(server, &query), [expected]);
}

/// A batch that reached the server, but whose answer was lost, is sent again and stored once.
#[test]
fn a_batch_whose_answer_is_lost_is_there_once() {
    let Some((server, proxy)) = Server::ClickHouse.start_with_proxy() else { return };
    let mut source = Source::to_one(sink(to(proxy.addr(), "weir"), 500));
    source.send(0..500);
    wait_for("the first batch", || source.is_empty());

    proxy.set(proxy::Fault::CloseAfter { answered_bytes: 1 });
    source.send(500..1_000);
    wait_for("a lost answer", || (proxy.fired() > 0).then_some(()));
    proxy.set(proxy::Fault::None);
    let hop = ended(source);

    assert_eq!((hop.delivered.count, hop.uncertain.count), (1_000, 0), "{hop:?}");
    assert!(hop.events[&Event::Retries] > 0, "{hop:?}");
    assert_eq!(hop.events.get(&Event::PossibleDuplicates).copied().unwrap_or(0), 0);
    assert_eq!(count(server.addr(), "weir", "sockets"), 1_000);
}

/// Without deduplication, both copies are stored, and counted as possible duplicates.
#[test]
fn without_deduplication_copies_are_counted() {
    let Some((server, proxy)) = Server::ClickHouse.start_with_proxy() else { return };
    let kept = ClickHouseOptions { duplicates: Duplicates::Kept, ..to(proxy.addr(), "weir") };
    let mut source = Source::to_one(sink(kept, 500));
    source.send(0..500);
    wait_for("the first batch", || source.is_empty());
    let plain = "ALTER TABLE weir.sockets MODIFY SETTING non_replicated_deduplication_window = 0";
    readback::clickhouse(server.addr(), plain);

    proxy.set(proxy::Fault::CloseAfter { answered_bytes: 1 });
    source.send(500..1_000);
    wait_for("a lost answer", || (proxy.fired() > 0).then_some(()));
    proxy.set(proxy::Fault::None);
    let hop = ended(source);

    assert_eq!(hop.delivered.count, 1_000, "{hop:?}");
    assert_eq!(hop.events[&Event::PossibleDuplicates], 500, "{hop:?}");
    let query = "SELECT count() > 1000 AS more, uniqExact(sequence) AS u FROM weir.sockets";
    assert_eq!(readback::clickhouse(server.addr(), query), [json!({ "more": 1, "u": 1_000 })]);
}

/// Checks the trouble that the sink reports while it cannot deliver, and that its rows arrive after
/// `cure`.
fn cured(options: ClickHouseOptions, words: &[&str], cure: impl FnOnce()) {
    let mut source = Source::to_one(sink(options, 100));
    source.send(0..100);
    let trouble = wait_for("the trouble to be told", || source.hop().trouble);
    let said = format!("{} — {}", trouble.what, trouble.fix);
    for word in words {
        assert!(said.contains(word), "{word} is not in: {said}");
    }
    assert!(!said.contains("geheim"), "{said}");

    cure();
    let hop = ended(source);
    assert_eq!(hop.delivered.count, 100, "{hop:?}");
}

#[test]
fn a_missing_database_and_table_are_awaited() {
    let Some(server) = Server::ClickHouse.shared() else { return };
    let database = unique("weir");
    let awaited =
        ClickHouseOptions { missing_tables: MissingTables::Awaited, ..to(server, &database) };
    let address = server.to_string();
    cured(awaited.clone(), &[&address, &database, "CREATE DATABASE", "create_tables"], || {
        readback::clickhouse(server, &format!("CREATE DATABASE `{database}`"));
        let mut made = Source::to_one(sink(to(server, &database), 1));
        made.send(1_000..1_001);
        ended(made);
    });
    readback::clickhouse(server, &format!("DROP TABLE `{database}`.sockets"));
    cured(awaited, &[&address, "sockets.sql", "create_tables"], || {
        let mut made = Source::to_one(sink(to(server, &database), 1));
        made.send(1_000..1_001);
        ended(made);
    });
}

#[test]
fn another_table_is_named_with_its_column() {
    let Some(server) = Server::ClickHouse.shared() else { return };
    let database = unique("weir");
    let mut first = Source::to_one(sink(to(server, &database), 1));
    first.send(1_000..1_001);
    ended(first);

    let alter = |what: &str| {
        readback::clickhouse(server, &format!("ALTER TABLE `{database}`.sockets {what}"));
    };
    alter("DROP COLUMN rtt_us");
    let address = server.to_string();
    cured(to(server, &database), &[&address, "rtt_us", "ALTER TABLE", "sockets.sql"], || {
        alter("ADD COLUMN rtt_us Nullable(UInt32)");
    });
    alter("DROP COLUMN sequence");
    alter("ADD COLUMN sequence Nullable(UUID)");
    cured(to(server, &database), &["sequence", "Nullable(UUID)", "ALTER TABLE"], || {
        alter("DROP COLUMN sequence");
        alter("ADD COLUMN sequence Nullable(String)");
    });

    // A value that can be cast is stored.
    let query = format!("SELECT count() AS all FROM `{database}`.sockets WHERE sequence = '99'");
    assert_eq!(readback::clickhouse(server, &query), [json!({ "all": 1 })]);
}

/// Columns in which the engine would silently truncate values.
#[test]
fn a_column_that_keeps_less_is_refused_and_one_that_keeps_more_is_not() {
    let Some(server) = Server::ClickHouse.shared() else { return };
    let database = unique("weir");
    let send = |numbers: Range<u64>| {
        let mut source = Source::to_one(sink(to(server, &database), 100));
        numbers.clone().for_each(|number| source.writer.record(&record(number)));
        source.writer.flush();
        source
    };
    ended(send(0..1));
    let alter = |what: &str| {
        readback::clickhouse(server, &format!("ALTER TABLE `{database}`.sockets {what}"));
    };

    let (address, table) = (server.to_string(), format!("{database}.sockets"));
    for narrow in ["Nullable(UInt16)", "Nullable(Int32)", "Nullable(DateTime)"] {
        alter(&format!("MODIFY COLUMN rtt_us {narrow}"));
        let cure = "MODIFY COLUMN rtt_us Nullable(UInt32)";
        cured(to(server, &database), &[&address, &table, narrow, cure], || alter(cure));
    }
    readback::clickhouse(server, &format!("TRUNCATE TABLE `{database}`.sockets"));
    alter("MODIFY COLUMN rtt_us Nullable(Int64)");
    alter("MODIFY COLUMN bytes_acked Nullable(String)");
    assert_eq!(ended(send(70_000..70_100)).delivered.count, 100);

    let wanted = (70_000..70_100).map(|number| {
        let mut row = row(number);
        row["bytes_acked"] = row["bytes_acked"].to_string().into();
        row
    });
    assert!(rows_of(server, &database).into_iter().eq(wanted));
}

#[test]
fn a_wrong_password_is_told_and_a_right_one_taken_from_the_file() {
    let Some(server) = Server::ClickHouse.shared() else { return };
    let folder = TempDir::new();
    let file = folder.path().join("password");
    std::fs::write(&file, "geheim\n").unwrap();
    let login = Login {
        user: Some("weir".to_owned()),
        password: Some(SecretSource::File(file.clone())),
        token: None,
    };
    let options = ClickHouseOptions { login, ..to(server, &unique("weir")) };
    let address = server.to_string();
    cured(options, &[&address, "AUTHENTICATION_FAILED", "password_file"], || {
        std::fs::write(&file, "right\n").unwrap();
    });
}

#[test]
fn nobody_listens_there() {
    let Some(mut server) = Server::ClickHouse.start() else { return };
    server.kill();
    let address = server.addr().to_string();
    let options = to(server.addr(), "weir");
    cured(options, &[&address, "refused", "curl"], || server.restart());
}

#[test]
fn tls_takes_a_sound_certificate_only() {
    for (shown, is_sound) in [(Certificate::Valid, true), (Certificate::Expired, false)] {
        let Some(server) = Server::ClickHouse.start_secured(shown) else { return };
        let ca = server.ca().unwrap();
        let secured = ClickHouseOptions {
            url: format!("https://{}", server.addr()),
            tls: TlsOptions { ca: Some(ca.into()), ..TlsOptions::default() },
            ..to(server.addr(), "weir")
        };
        let mut source = Source::to_one(sink(secured.clone(), 100));
        source.send(0..100);
        if is_sound {
            assert_eq!(ended(source).delivered.count, 100);
            continue;
        }

        let trouble = wait_for("the trouble to be told", || source.hop().trouble);
        assert!(trouble.what.contains(&server.addr().to_string()), "{trouble:?}");
        assert!(trouble.what.contains("xpired") && trouble.fix.contains("renew"), "{trouble:?}");
        source.stop(Instant::now());

        // Without the file, the certificate authority is unknown.
        let unknown = ClickHouseOptions { tls: TlsOptions::default(), ..secured };
        let mut source = Source::to_one(sink(unknown, 100));
        source.send(0..100);
        let trouble = wait_for("the trouble to be told", || source.hop().trouble);
        assert!(trouble.fix.contains("tls_ca") || trouble.fix.contains("renew"), "{trouble:?}");
        source.stop(Instant::now());
    }
}
