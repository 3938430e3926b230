//! The contents of the files: every value of every row, and the schema.

use super::{START_UNIX_NS, end, folder_options, open};
use crate::support::Source;
use crate::{rows, sflow};
use columns::{Table, TableWriter};
use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::file::reader::{FileReader, SerializedFileReader};
use record::{Encoder, Field, FieldSet, Frame, PollTotals, RowKind, SocketRecord, decode_protobuf};
use sink::{BatchLimits, NumberEncoding};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testkit::{Random, TempDir, find_tool, generated, need_python_module, root};

/// Runs the script with pyarrow and DuckDB; `false` where they are not installed.
pub(crate) fn compare(folder: &Path) -> bool {
    if !["pyarrow", "duckdb"].into_iter().all(need_python_module) {
        return false;
    }
    let script = root().join("crates/sink/tests/parquet.py");
    let mut python = Command::new(find_tool("weir-python").unwrap());
    let status = python.arg(script).arg(folder).status().unwrap();
    assert!(status.success());
    true
}

/// Writes the rows as `NAME.parquet`, and with the encoder of crate `record` as `NAME.jsonl`.
fn write(folder: &TempDir, kind: RowKind, table: Table, messages: &[Vec<u8>]) {
    write_with(folder, kind, TableWriter::new(table).unwrap(), messages);
}

fn write_with(folder: &TempDir, kind: RowKind, mut writer: TableWriter, messages: &[Vec<u8>]) {
    let name = Table::name_of(kind);
    let mut encoder = lines();
    let mut lines = Vec::new();
    for message in messages {
        writer.push(message).unwrap();
        writer.end_full_group().unwrap();
        encoder.row(kind, message, &mut lines).unwrap();
    }
    fs::write(folder.file(&format!("{name}.parquet")), writer.finish().unwrap()).unwrap();
    fs::write(folder.file(&format!("{name}.jsonl")), lines).unwrap();
}

/// An encoder of rows of one kind as JSON lines.
fn lines() -> Encoder {
    Encoder::new(record::Encoding::Jsonl, &FieldSet::ALL).framed(Frame::OneKind)
}

fn encoded(record: &SocketRecord<'_>) -> Vec<u8> {
    let mut builder = record::ChunkBuilder::new(1, [0; 16]);
    builder.record(record);
    builder.cut(None).unwrap().rows().next().unwrap().bytes.to_vec()
}

/// Writes any rows of all tables, and the values at the ends of each field's range.
fn write_any(folder: &TempDir, writer: impl Fn(Table) -> TableWriter) {
    let mut random = Random(11);
    let messages = |random: &mut Random, fields: &'static [Field]| -> Vec<Vec<u8>> {
        let any = (0..3_000).map(|_| rows::any_message(random, fields));
        any.chain(fields.iter().flat_map(rows::edges)).collect()
    };
    for kind in RowKind::ALL {
        let table = match kind {
            RowKind::Record => Table::sockets(&FieldSet::ALL),
            kind => Table::of(kind),
        };
        write_with(folder, kind, writer(table), &messages(&mut random, kind.fields()));
    }
}

#[test]
fn others_read_every_value_at_its_ends() {
    let folder = TempDir::new();
    write_any(&folder, |table| TableWriter::new(table).unwrap());
    compare(folder.path());
}

/// Of the encodings there are, those that every reader knows, in pages of version 1.
#[test]
fn plain_numbers_are_read_too_and_nothing_else_is_in_their_files() {
    let folder = TempDir::new();
    write_any(&folder, |table| TableWriter::new(table).unwrap().with_plain_numbers());
    compare(folder.path());

    for kind in RowKind::ALL {
        let path = folder.file(&format!("{}.parquet", Table::name_of(kind)));
        let file = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let mut pages = 0;
        for group in (0..file.num_row_groups()).map(|at| file.get_row_group(at).unwrap()) {
            for column in group.metadata().columns() {
                let known = [Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY];
                assert!(column.encodings().all(|one| known.contains(&one)), "{column:?}");
            }
            for at in 0..group.num_columns() {
                let read = group.get_column_page_reader(at).unwrap();
                for page in read.map(Result::unwrap) {
                    pages += 1;
                    match page {
                        Page::DictionaryPage { encoding, .. } => {
                            assert_eq!(encoding, Encoding::PLAIN);
                        }
                        Page::DataPage { encoding, def_level_encoding, .. } => {
                            let is_known =
                                encoding == Encoding::PLAIN || encoding == Encoding::RLE_DICTIONARY;
                            assert!(is_known && def_level_encoding == Encoding::RLE, "{encoding}");
                        }
                        Page::DataPageV2 { .. } => panic!("a page of version 2"),
                    }
                }
            }
        }
        assert!(pages > 0, "{kind:?}");
    }
}

/// What the sink is told reaches its files.
#[test]
fn a_sink_with_plain_numbers_writes_them() {
    let folder = TempDir::new();
    for (numbers, has_differences) in
        [(NumberEncoding::Plain, false), (NumberEncoding::Delta, true)]
    {
        let mut form =
            (sink::parquet::folder(folder_options(Path::new("/nowhere")), FieldSet::ALL, numbers)
                .form)();
        let sink::Form::ByKind(kinds) = &mut form else { panic!("a file has one table") };
        let mut builder = record::ChunkBuilder::new(1, [0; 16]);
        builder.record(&rows::realistic(&mut Random(3)));
        let chunk = builder.cut(None).unwrap();
        for row in chunk.rows() {
            kinds[0].1.push(&row, sink::batch::PartKey::NONE);
        }
        let path = folder.file("sockets.parquet");
        fs::write(&path, kinds[0].1.finish().bytes).unwrap();
        let file = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let columns = file.get_row_group(0).unwrap().metadata().columns().to_vec();
        let has = columns
            .iter()
            .any(|column| column.encodings().any(|one| one == Encoding::DELTA_BINARY_PACKED));
        assert_eq!(has, has_differences, "{numbers:?}");
    }
}

#[test]
fn all_of_a_sink_s_records_are_in_its_files() {
    let count = testkit::rows();
    let folder = TempDir::new();
    let options = folder_options(&folder.file("records"));
    // Two and a half row groups in the first file.
    let limits = BatchLimits { rows: 80_000, bytes: 64 << 20, age: Duration::from_secs(60) };
    let mut source = Source::to(vec![open(options, limits)]);

    let (mut random, mut encoder) = (Random(14), lines());
    let (mut records, mut polls) = (Vec::new(), Vec::new());
    let mut file = File::create(folder.file("sockets.jsonl")).unwrap();
    for sequence in 0..count {
        let record = SocketRecord {
            sequence: Some(sequence),
            time_unix_ns: Some(START_UNIX_NS + sequence * 1_000),
            ..rows::realistic(&mut random)
        };
        source.writer.record(&record);
        encoder.encode(&record, &mut records);
        if sequence % 10_000 == 9_999 {
            file.write_all(&records).unwrap();
            records.clear();
            let totals = PollTotals {
                time_unix_ns: record.time_unix_ns,
                poll: Some(sequence / 10_000),
                ..rows::realistic_totals()
            };
            source.writer.end_of_poll(&totals);
            source.wait_for_room();
            encoder.totals(&totals, &mut polls);
        }
    }
    let sink = source.sinks.remove(0);
    drop(source);
    let hop = end(sink);
    assert_eq!(hop.delivered.count, count + count / 10_000, "{hop:?}");

    file.write_all(&records).unwrap();
    fs::write(folder.file("polls.jsonl"), polls).unwrap();
    compare(folder.path());
}

#[test]
fn all_rows_of_sflow_are_in_the_files_of_their_tables() {
    let folder = TempDir::new();
    let options = folder_options(&folder.file("records"));
    let limits = BatchLimits { rows: 80_000, bytes: 64 << 20, age: Duration::from_secs(60) };
    let mut source = Source::to(vec![open(options, limits)]);
    let rows = sflow::rows(testkit::rows());
    sflow::write(&mut source, &rows);
    let sink = source.sinks.remove(0);
    drop(source);
    assert_eq!(end(sink).delivered.count, rows.len() as u64);

    for kind in [RowKind::Flow, RowKind::Counters, RowKind::FlowTotals] {
        let lines = sflow::lines_of(&rows, kind);
        fs::write(folder.file(&format!("{}.jsonl", kind.table())), lines).unwrap();
    }
    compare(folder.path());
}

#[test]
fn only_chosen_fields_have_columns() {
    let folder = TempDir::new();
    let fields = "cookie,time_unix_ns,rtt_us".parse().unwrap();
    let mut random = Random(12);
    // With so few fields, a row group ends by its row count rather than its memory.
    let messages: Vec<_> = (0..70_000).map(|_| encoded(&rows::realistic(&mut random))).collect();
    let mut writer = TableWriter::new(Table::sockets(&fields)).unwrap();
    for message in &messages {
        writer.push(message).unwrap();
        writer.end_full_group().unwrap();
    }
    fs::write(folder.file("sockets.parquet"), writer.finish().unwrap()).unwrap();

    let mut encoder = Encoder::new(record::Encoding::Jsonl, &fields);
    let mut lines = Vec::new();
    for message in &messages {
        encoder.encode(&decode_protobuf(message).unwrap(), &mut lines);
    }
    fs::write(folder.file("sockets.jsonl"), lines).unwrap();
    compare(folder.path());
}

#[test]
fn a_message_that_is_refused_leaves_nothing_behind() {
    let folder = TempDir::new();
    let mut random = Random(13);
    let good: Vec<_> = (0..300).map(|_| encoded(&rows::realistic(&mut random))).collect();
    let mut with_bad = TableWriter::new(Table::sockets(&FieldSet::ALL)).unwrap();
    for message in &good {
        // Truncated inside the last field, and with text that is not UTF-8.
        assert!(with_bad.push(&message[..message.len() - 1]).is_err());
        with_bad.push(message).unwrap();
        let not_text = [message.as_slice(), b"\x92\x01\x01\xff"].concat();
        assert!(with_bad.push(&not_text).is_err());
    }
    fs::write(folder.file("bad"), with_bad.finish().unwrap()).unwrap();
    write(&folder, RowKind::Record, Table::sockets(&FieldSet::ALL), &good);
    assert_eq!(
        fs::read(folder.file("bad")).unwrap(),
        fs::read(folder.file("sockets.parquet")).unwrap()
    );
}

#[test]
fn the_schema_follows_the_table() {
    let mut text = Vec::new();
    let of_flows = [RowKind::Flow, RowKind::Counters, RowKind::FlowTotals].map(Table::of);
    let others = [Table::sockets(&FieldSet::ALL), Table::polls(), Table::datagrams()];
    for table in others.into_iter().chain(of_flows) {
        parquet::schema::printer::print_schema(&mut text, &table.schema().unwrap());
    }
    generated("docs/parquet.schema", &String::from_utf8(text).unwrap());
}
