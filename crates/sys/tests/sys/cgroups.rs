//! Control groups of the running kernel, by id.

use std::fs;
use std::path::PathBuf;
use sys::cgroup::{self, Mount};
use sys::process::{self, CAP_DAC_READ_SEARCH};
use testkit::skip;

#[test]
fn a_group_is_found_by_its_number_as_long_as_it_exists() {
    let Some((mount, group)) = need_group("found by number\\040") else { return };
    let id = cgroup::id_of(&group.0).unwrap();
    let inner = group.0.join("inner");
    fs::create_dir(&inner).unwrap();
    assert_eq!(mount.path_of(id).unwrap(), group.0);
    assert_eq!(mount.path_of(cgroup::id_of(&inner).unwrap()).unwrap(), inner);
    assert_eq!(mount.path_of(cgroup::id_of(mount.path()).unwrap()).unwrap(), mount.path());
    fs::remove_dir(&inner).unwrap();
    drop(group);
    for gone in [id, 0, u64::MAX] {
        assert_eq!(mount.path_of(gone).unwrap_err().raw_os_error(), Some(libc::ESTALE), "{gone}");
    }
}

#[test]
fn another_file_system_is_no_cgroup_mount() {
    let error = Mount::open(std::path::Path::new("/proc")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
}

/// A control group that is removed with this value.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn need_group(name: &str) -> Option<(Mount, Group)> {
    let effective = process::effective_capabilities().unwrap_or(0);
    let Some(path) = cgroup::find_mount().unwrap() else {
        skip("no cgroup2 file system is mounted", &["REQUIRE_ALL"]);
        return None;
    };
    let group = Group(path.join(format!("weir-{}-{name}", std::process::id())));
    if effective & 1 << CAP_DAC_READ_SEARCH == 0 || fs::create_dir(&group.0).is_err() {
        skip("control groups need root", &["REQUIRE_ALL"]);
        return None;
    }
    Some((Mount::open(&path).unwrap(), group))
}
