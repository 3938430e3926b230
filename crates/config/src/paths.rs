//! Whether two paths name the same file, which need not exist yet.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Whether both name the same file: by the same path, through links or `..`, or as two hard links to one inode.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    let inode = |path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    real_path(a) == real_path(b) || inode(a).is_some_and(|a| inode(b) == Some(a))
}

/// The path without links, `.` and `..`, if it or its folder exists. Otherwise as written, without `.` and doubled slashes.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    let in_folder = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
        Some(folder.join(path.file_name()?))
    };
    let plain = || path.components().filter(|part| *part != Component::CurDir).collect();
    fs::canonicalize(path).ok().or_else(in_folder).unwrap_or_else(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use std::os::unix::fs::symlink;

    #[test]
    fn one_file_by_many_names() {
        let dir = std::env::temp_dir().join(format!("weir-paths-{}", std::process::id()));
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::write(dir.join("a"), "").unwrap();
        fs::write(dir.join("b"), "").unwrap();
        fs::hard_link(dir.join("a"), dir.join("hard")).unwrap();
        symlink(dir.join("a"), dir.join("soft")).unwrap();
        symlink(&dir, dir.join("sub/up")).unwrap();
        let check = |a: &str, b: &str, expected: bool| {
            assert_eq!(is_same_file(&dir.join(a), &dir.join(b)), expected, "{a} {b}");
        };
        check("a", "./a", true);
        check("a", "sub/../a", true);
        check("a", "sub/up/a", true);
        check("a", "hard", true);
        check("a", "soft", true);
        check("a", "b", false);
        // Files that are yet to be made.
        check("new", "sub/../new", true);
        check("new", "sub/up/new", true);
        check("none/new", "none/./new", true);
        check("new", "sub/new", false);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn loops_and_clashes_are_found_by_any_name() {
        let folder = std::env::temp_dir().join(format!("weir-clash-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let dir = folder.to_str().unwrap();
        let check = |listen: String, to: &[String], message: &str| {
            let errors = Config::from_addresses(&[listen], to).unwrap_err();
            assert!(errors[0].message.contains(message), "{errors:?}");
        };
        let around = |kind: &str| format!("{kind}:{dir}/../{name}/x");
        check(format!("unix:{dir}/x"), &[around("unix")], "is where listener");
        check(":514".to_owned(), &[format!("file:{dir}/x"), around("file")], "is written by");
        fs::remove_dir_all(&folder).unwrap();
    }
}
