//! The Python of the test tools (`make tools`), or why a test that needs it does not run.

#![allow(dead_code, reason = "each test binary compiles this file and uses a part of it")]

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether the Python of the test tools has `module`. If not, one line says so, or the test fails with `REQUIRE_ALL=1`.
pub(crate) fn need_module(module: &str) -> bool {
    need_module_of("weir-python", module)
}

/// The same of the Python with the ClickHouse engine, which has a folder of its own.
pub(crate) fn need_clickhouse() -> bool {
    need_module_of("weir-clickhouse", "chdb")
}

fn need_module_of(program: &str, module: &str) -> bool {
    let has_it = path_of(program).is_some_and(|python| {
        let mut import = Command::new(python);
        import.args(["-c", &format!("import {module}")]);
        import.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        import.status().is_ok_and(|status| status.success())
    });
    let reason = format!("the Python package {module} is not installed; `make tools` installs it");
    let is_required = env::var_os("REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(has_it || !is_required, "{reason} (REQUIRE_ALL=1 turns a skip into a failure)");
    if !has_it {
        // Straight to the descriptor: the test harness captures `eprintln!` of tests that pass.
        writeln!(std::io::stderr(), "skipped: {reason}").expect("standard error is open");
    }
    has_it
}

/// The Python of the test tools.
pub(crate) fn path() -> Option<PathBuf> {
    path_of("weir-python")
}

/// Where a program is: `$WEIR_TOOLS/bin`, else `tools/bin` in the target folder, else `PATH`.
pub(crate) fn path_of(program: &str) -> Option<PathBuf> {
    let named = env::var_os("WEIR_TOOLS").map(|tools| PathBuf::from(tools).join("bin"));
    let own =
        Path::new(env!("CARGO_TARGET_TMPDIR")).parent().map(|target| target.join("tools/bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = named.into_iter().chain(own).chain(env::split_paths(&path));
    folders.map(|folder| folder.join(program)).find(|python| python.is_file())
}
