//! Tests of attribution: the owners of sockets.

use super::watch::Watch;
use crate::support::{OWN_CGROUP, RARELY, options};
use serde_json::Value;
use sockets::attribution::CgroupMount;
use sockets::filter::Filter;
use sockets::{Options, Scope};
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Duration;
use testkit::{Netns, need_root_netns, skip};

const POD: &str = "0a1b2c3d-1111-2222-3333-0123456789ab";
const CONTAINER: &str = "3f0e1d2c3b4a5968778695a4b3c2d1e0f00f1e2d3c4b5a69788796a5b4c3d2e1";

/// A cgroup below those of the test, removed when dropped.
struct Group {
    mount: PathBuf,
    root: String,
    parts: Vec<PathBuf>,
}

impl Group {
    fn new(below: &str) -> Option<Group> {
        let Some(mount) = CgroupMount::find().unwrap() else {
            skip("no cgroup v2 hierarchy is mounted", &["REQUIRE_ALL"]);
            return None;
        };
        let mut path = mount.point.join(format!("weir-collector-{}", std::process::id()));
        let mut group = Group { mount: mount.point.clone(), root: mount.root, parts: Vec::new() };
        for part in [""].into_iter().chain(below.split('/')) {
            path = if part.is_empty() { path } else { path.join(part) };
            if let Err(error) = fs::create_dir(&path) {
                skip(&format!("no cgroup at {}: {error}", path.display()), &["REQUIRE_ALL"]);
                return None;
            }
            group.parts.push(path.clone());
        }
        Some(group)
    }

    fn path(&self) -> String {
        let path = self.parts.last().unwrap().strip_prefix(&self.mount).unwrap();
        format!("{}/{}", self.root.trim_end_matches('/'), path.display())
    }

    /// A listener created in this cgroup: the whole process is in it for a moment.
    fn listener(&self, netns: &Netns) -> TcpListener {
        let _moved = OWN_CGROUP.lock().unwrap_or_else(PoisonError::into_inner);
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
        let back = self.mount.join(own.trim_start_matches('/')).join("cgroup.procs");
        let pid = std::process::id().to_string();
        fs::write(self.parts.last().unwrap().join("cgroup.procs"), &pid).unwrap();
        let listener = netns.inside(|| TcpListener::bind("127.0.0.1:0").unwrap());
        fs::write(back, &pid).unwrap();
        listener
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for part in self.parts.iter().rev() {
            // Busy for a moment after the last process has left.
            testkit::within(Duration::from_secs(2), || fs::remove_dir(part).is_ok());
        }
    }
}

#[test]
fn a_socket_has_its_cgroup_its_pod_and_its_namespace() {
    if !need_root_netns() {
        return;
    }
    let below = format!(
        "kubepods.slice/kubepods-pod{}.slice/cri-containerd-{CONTAINER}.scope",
        POD.replace('-', "_")
    );
    let Some(group) = Group::new(&below) else { return };
    let (home, netns) = (Netns::new(), Netns::new());
    let in_pod = group.listener(&netns);
    let elsewhere = netns.inside(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let scope = Scope::Named(vec![netns.name.clone()]);
    let run = |filter: Option<&str>| {
        let filter = filter.map(|text| Filter::parse(text).unwrap());
        Watch::start(&home, Options { filter, ..options(RARELY, scope.clone()) })
    };
    let watch = run(None);
    watch.wait_polls(1);
    let answer = |filter: &str| {
        let filter = Filter::parse(filter).unwrap();
        let json = watch.query(Some(filter), 10, Duration::from_secs(10)).unwrap();
        serde_json::from_slice::<Value>(&json).unwrap()["sockets"].as_array().unwrap().len()
    };
    let pod = format!("pod = {POD}");
    // The collector's own filter does not need cgroups.
    assert_eq!((answer(&pod), answer("container = nothing")), (1, 0));
    assert_eq!((answer("age >= 0"), answer("age > 1000000s")), (2, 0));
    let (told, _) = watch.stop();
    let port = |listener: &TcpListener| Value::from(listener.local_addr().unwrap().port());
    let of = |listener: &TcpListener| {
        let mut all = told.polled().map(|seen| seen.fields());
        all.find(|fields| fields["src_port"] == port(listener)).unwrap()
    };
    let fields = of(&in_pod);
    assert_eq!(fields["cgroup_path"].as_str(), Some(group.path().as_str()));
    assert_eq!(fields["pod_uid"].as_str(), Some(POD));
    assert_eq!(fields["container_id"].as_str(), Some(CONTAINER));
    assert_eq!(fields["netns_name"].as_str(), Some(netns.name.as_str()));
    assert_eq!(fields["netns_inode"].as_u64(), Some(netns.id().inode));
    assert!(fields["netns_id"].as_u64().is_some(), "{fields}");
    for name in ["host", "boot_id"] {
        assert!(fields[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {fields}");
    }
    assert_eq!(fields["uid"].as_u64(), Some(0));
    let fields = of(&elsewhere);
    assert!(fields["pod_uid"].is_null() && fields["cgroup_path"].is_string(), "{fields}");

    for (filter, count) in [(pod.as_str(), 1), ("unit = no.service", 0)] {
        let watch = run(Some(filter));
        watch.wait_polls(1);
        let (told, hops) = watch.stop();
        super::law::check_all(&told, &hops);
        assert_eq!(told.polled().count(), count, "{filter}");
        assert_eq!(told.totals[0]["sockets_filtered"], 2 - count as u64, "{filter}");
    }
}
