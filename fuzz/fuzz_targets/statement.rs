//! Any text is a statement that is answered, refused or stopped, within its limits. Whatever it is, no file of the store changes,
//! none appears next to it, and the store is not taken for damaged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use record::{ChunkBuilder, RecordKind, RowKind, SocketRecord};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{Error, Limits, Options, Reader, Writer};
use sys::clock::Now;

const ROWS: u64 = 50;

const LIMITS: Limits =
    Limits { time: Duration::from_millis(50), rows_max: 20, bytes_max: 64 << 10 };

thread_local! {
    static STORE: OnceCell<Store> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| {
    let statement = String::from_utf8_lossy(bytes);
    STORE.with(|store| store.get_or_init(Store::new).ask(&statement));
});

struct Store {
    folder: PathBuf,
    reader: Reader,
    before: BTreeMap<PathBuf, u64>,
}

impl Store {
    /// A store with a file and a segment that is not sealed.
    fn new() -> Store {
        let parent =
            std::env::temp_dir().join(format!("weir-fuzz-statement-{}", std::process::id()));
        let folder = parent.join("store");
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let options = Options {
            folder: folder.clone(),
            keep_age: None,
            keep_bytes: None,
            segment_age: Duration::from_secs(3_600),
            keys_max: 100,
        };
        let mut writer = Writer::open(options).expect("the folder is new");
        insert(&mut writer, 0);
        writer.seal_all().expect("there is room");
        insert(&mut writer, 1);
        drop(writer);
        let reader = Reader::open(&folder).expect("it was written");
        let before = files(&parent);
        Store { folder: parent, reader, before }
    }

    fn ask(&self, statement: &str) {
        match self.reader.ask(statement, LIMITS) {
            Ok(answer) => {
                assert!(answer.rows.len() <= LIMITS.rows_max);
                assert!(answer.rows.iter().all(|row| row.len() == answer.columns.len()));
            }
            Err(Error::Refused(_) | Error::Statement(_) | Error::Timeout { .. }) => {}
            Err(error) => panic!("{statement:?}: {error}"),
        }
        let _ = self.reader.explain(statement);
        assert_eq!(files(&self.folder), self.before, "{statement:?}");
    }
}

fn insert(writer: &mut Writer, poll: u64) {
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    for row in 0..ROWS {
        builder.record(&SocketRecord {
            record_kind: Some(if row == 0 { RecordKind::CLOSE } else { RecordKind::POLL }),
            time_unix_ns: Some((poll * ROWS + row) * 1_000_000_000),
            cookie: Some(row),
            rtt_us: Some(row as u32 * 100),
            systemd_unit: Some("web.service"),
            ..SocketRecord::default()
        });
    }
    let chunk = builder.cut(None).expect("it has rows");
    let rows: Vec<(RowKind, &[u8])> = chunk.rows().map(|row| (row.kind, row.bytes)).collect();
    writer.insert(rows.into_iter(), Now::read()).expect("there is room");
}

/// Every file and its length, except the index that readers of a log share.
fn files(folder: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it is there").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if !path.to_string_lossy().ends_with("-shm") {
            let len = fs::metadata(&path).expect("it is there").len();
            found.insert(path, len);
        }
    }
    found
}
