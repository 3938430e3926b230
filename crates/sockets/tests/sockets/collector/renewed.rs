//! Filters as time passes: their names change meaning, and sockets grow old.

use super::law::check_all;
use super::people::{Crowd, Ends};
use super::watch::{Cookies, Watch};
use crate::support::options;
use socket2::SockRef;
use sockets::attribution::CgroupMount;
use sockets::filter::Filter;
use sockets::{Options, Scope};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::{Netns, need_root_netns, skip, within};

const OFTEN: Duration = Duration::from_millis(50);

/// A cgroup that is removed when dropped.
struct Group(PathBuf);

impl Group {
    fn new(path: &Path) -> Option<Group> {
        match fs::create_dir(path) {
            Ok(()) => Some(Group(path.to_owned())),
            Err(error) => {
                skip(&format!("no cgroup at {}: {error}", path.display()), &["REQUIRE_ALL"]);
                None
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Busy for a moment after the last process has left.
        within(Duration::from_secs(5), || fs::remove_dir(&self.0).is_ok());
    }
}

/// A process in a cgroup and a namespace, with a connection to a port there.
struct Client(Child);

impl Client {
    fn new(netns: &Netns, group: &Group, port: u16) -> Client {
        let script = format!(
            "echo $$ > {}/cgroup.procs && exec 3<>/dev/tcp/127.0.0.1/{port} && read end",
            group.0.display()
        );
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", netns.path().display())).args(["bash", "-c", &script]);
        Client(command.stdin(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_cgroup_that_is_made_anew_under_its_path_still_passes() {
    if !need_root_netns() {
        return;
    }
    let Some(mount) = CgroupMount::find().unwrap() else {
        skip("no cgroup v2 hierarchy is mounted", &["REQUIRE_ALL"]);
        return;
    };
    let path = mount.point.join(format!("weir-renewed-{}", std::process::id()));
    let Some(group) = Group::new(&path) else { return };
    let netns = Netns::new();
    let listener = netns.inside(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    let filter = Some(Filter::parse(&format!("cgroup = {}", path.display())).unwrap());
    let watch = Watch::start(&netns, Options { filter, ..options(OFTEN, Scope::Own) });
    let polled =
        || -> Cookies { watch.told.lock().unwrap().polled().map(|seen| seen.cookie).collect() };

    let client = Client::new(&netns, &group, port);
    watch.wait("connection of the first", |told| told.polled().count() > 0);
    let first = polled();
    drop(client);
    drop(group);
    let group = Group::new(&path).unwrap();
    let _client = Client::new(&netns, &group, port);
    let came = within(Duration::from_secs(20), || !polled().is_subset(&first));
    let (told, hops) = watch.stop();
    check_all(&told, &hops);
    assert!(came, "the cgroup has another id, and the same path");
}

#[test]
fn an_interface_that_is_made_anew_under_its_name_still_passes() {
    if !need_root_netns() {
        return;
    }
    let (netns, peer) = (Netns::new(), Netns::new());
    netns.connect("renewed", &peer, "other");
    let bound = || {
        netns.inside(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            SockRef::from(&listener).bind_device(Some(b"renewed")).unwrap();
            let cookie = SockRef::from(&listener).cookie().unwrap();
            (listener, cookie)
        })
    };
    let filter = Some(Filter::parse("state listening and dev = renewed").unwrap());
    let watch = Watch::start(&netns, Options { filter, ..options(OFTEN, Scope::Own) });
    let sees = |wanted: u64| {
        watch.wait("listener", |told| told.polled().any(|seen| seen.cookie == wanted));
    };
    let (_first, cookie) = bound();
    sees(cookie);
    netns.ip("link del dev renewed");
    // So that the next one does not get the same index.
    netns.ip("link add name between type veth peer name between2");
    netns.connect("renewed", &peer, "other");
    let (_second, cookie) = bound();
    sees(cookie);
}

#[test]
fn a_filter_by_age_lets_a_connection_through_once_it_is_old_enough() {
    if !need_root_netns() {
        return;
    }
    let netns = Netns::new();
    let crowd = Crowd::new(&netns, Ends::V4, 3);
    let old: Cookies = (0..3).flat_map(|at| crowd.cookies(at)).collect();
    let filter = Some(Filter::parse("age >= 300ms and state established").unwrap());
    let watch = Watch::start(&netns, Options { filter, ..options(OFTEN, Scope::Own) });
    watch.wait("records", |told| told.polled().count() >= 6);
    drop(crowd);
    watch.wait("closes", |told| told.closed().count() >= 6);
    let (told, hops) = watch.stop();
    check_all(&told, &hops);
    let first = told.polled().map(|seen| seen.poll).min().unwrap();
    assert!(first > 1, "none is old in the first poll");
    assert_eq!(told.cookies_of(first), old, "all were met first by the same poll");
    assert_eq!(told.totals[0]["sockets_filtered"], 6);
    let closed: Cookies = told.closed().map(|seen| seen.cookie).collect();
    assert_eq!((closed, told.closed().count()), (old, 6));
    for seen in told.closed() {
        let fields = seen.fields();
        assert!(fields["seen_ns"].as_u64() >= Some(300_000_000), "{fields}");
        // It was met before it passed.
        assert!(fields["polls_seen"].as_u64() >= Some(2), "{fields}");
    }
}
