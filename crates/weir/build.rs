//! Tells the program which commit it is built from, and for which target.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=WEIR_COMMIT");
    println!("cargo:rustc-env=WEIR_COMMIT={}", commit().unwrap_or_else(|| "unknown".to_owned()));
    println!("cargo:rustc-env=WEIR_TARGET={}", env::var("TARGET").unwrap_or_default());
}

/// The commit: `WEIR_COMMIT` where it is set, as for a build without a repository, else what git says.
fn commit() -> Option<String> {
    if let Ok(commit) = env::var("WEIR_COMMIT") {
        return Some(commit).filter(|commit| !commit.is_empty());
    }
    // A program for tests is not built again for each commit, and all the tests with it.
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return None;
    }

    // Both are written by a commit and a checkout. A path that does not exist would run this script at each build.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
