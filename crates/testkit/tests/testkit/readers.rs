//! Two independent readers of Parquet agree on a file.

use std::path::PathBuf;
use std::process::Command;
use testkit::{TempDir, find_tool, need_python_module, readback, run};

#[test]
fn arrow_and_duckdb_read_equal_rows() {
    if !need_python_module("pyarrow") || !need_python_module("duckdb") {
        return;
    }
    let folder = TempDir::new();
    let file = folder.text("rows.parquet");
    let write = "
import sys, pyarrow, pyarrow.parquet
fields = [('a', pyarrow.int64()), ('b', pyarrow.binary()), ('c', pyarrow.string()), ('d', pyarrow.timestamp('us', 'UTC'))]
rows = [{'a': 2**63 - 1, 'b': bytes([0, 255]), 'c': 'x', 'd': 1}, {'a': None, 'b': None, 'c': None, 'd': None}]
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, pyarrow.schema(fields)), sys.argv[1])";
    run(Command::new(find_tool("weir-python").unwrap()).args(["-c", write, &file]));

    let files = [PathBuf::from(file)];
    let rows = readback::parquet_by_arrow(&files);
    assert_eq!(rows, readback::parquet_by_duckdb(&files));
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["a"], i64::MAX);
    assert_eq!(rows[0]["b"], "AP8=");
    assert_eq!(rows[0]["d"], "1970-01-01T00:00:00.000001+00:00");
    assert!(rows[1].as_object().unwrap().values().all(serde_json::Value::is_null));
}
