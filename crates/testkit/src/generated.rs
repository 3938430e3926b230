//! Files of the repository that code writes.

use std::fs;
use std::path::PathBuf;

/// Fails the test unless the file at `path`, which is relative to the repository's root, has exactly this text. With
/// `UPDATE_GENERATED=1` the file is written instead.
#[track_caller]
pub fn generated(path: &str, text: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_GENERATED").is_some_and(|value| value == "1") {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
    }

    let found = fs::read_to_string(&file).unwrap_or_default();
    if found != text {
        panic!("{path} is stale, `make generated` writes it. {}", first_difference(&found, text));
    }
}

/// As [`generated`] for the part of a file that stands between two marks.
#[track_caller]
pub fn generated_part(path: &str, [begin, end]: [&str; 2], text: &str) {
    let file = fs::read_to_string(root().join(path)).unwrap();
    let (before, rest) = file.split_once(begin).expect("the mark where the part begins");
    let (_, after) = rest.split_once(end).expect("the mark where the part ends");
    generated(path, &format!("{before}{begin}{text}{end}{after}"));
}

/// The root of the repository.
///
/// Cargo says where it runs the tests. What was compiled in may be another clone's that shares the target folder: that does not make
/// cargo build anew.
pub fn root() -> PathBuf {
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(package).join("../..")
}

fn first_difference(found: &str, wanted: &str) -> String {
    let same = found.lines().zip(wanted.lines()).take_while(|(found, wanted)| found == wanted);
    let at = same.count();
    let line = |text: &str| text.lines().nth(at).unwrap_or("(the end)").to_owned();
    format!("Line {}: {:?} instead of {:?}", at + 1, line(found), line(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_a_line_and_may_be_the_end() {
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), "Line 2: \"b\" instead of \"c\"");
        assert_eq!(first_difference("a\n", "a\nc\n"), "Line 2: \"(the end)\" instead of \"c\"");
    }
}
