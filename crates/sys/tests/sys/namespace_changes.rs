//! The kernel's notifications about namespaces.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::Duration;
use sys::namespace::{Discovery, IdChange, IdChanges, MountChanges, Nsids, OpenNamespace, Target};
use sys::poll::{Interest, PollSet};
use testkit::{Netns, need_root_netns, within};

const PATIENCE: Duration = Duration::from_secs(20);

/// Whether the mounts have changed since the last call.
fn have_changed(changes: &MountChanges, timeout: Duration) -> bool {
    let mut set = PollSet::default();
    set.add(changes.as_fd(), Interest::Priority);
    set.wait(timeout).is_ok_and(|ready| ready > 0)
}

#[test]
fn a_namespace_that_is_mounted_is_there_when_the_change_is_told() {
    if !need_root_netns() {
        return;
    }
    let changes = MountChanges::open().unwrap();
    let mut discovery = Discovery::default();
    discovery.scan().unwrap();
    let netns = Netns::new();
    // Other tests mount too, so any of the changes may be this one.
    let found = within(PATIENCE, || {
        have_changed(&changes, Duration::from_secs(1)) && {
            discovery.scan().unwrap();
            let is_it = |name: Option<&[u8]>| name == Some(netns.name.as_bytes());
            discovery.namespaces().any(|found| is_it(found.name()))
        }
    });
    assert!(found, "no change showed it");
}

#[test]
fn ids_are_told_when_they_are_given_and_when_their_namespace_ends() {
    if !need_root_netns() {
        return;
    }
    // In a separate namespace, where nobody else assigns ids.
    let home = OpenNamespace::create().unwrap();
    let told = home.run(|| {
        let mut changes = IdChanges::open().unwrap();
        let mut nsids = Nsids::open().unwrap();
        let mut told = Vec::new();
        let given: Vec<i32> = (0..3)
            .map(|_| {
                let other = OpenNamespace::create().unwrap();
                nsids.assign(Target::Open(other.as_fd())).unwrap()
            })
            .collect();
        let came = within(PATIENCE, || {
            changes.drain(|change| told.push(change));
            told.len() >= 6
        });
        assert!(came, "{told:?}");
        (given, told)
    });
    let (given, told) = told.unwrap();
    let mut states = HashMap::new();
    for change in told {
        match change {
            IdChange::Given(id) => assert_eq!(states.insert(id, "given"), None),
            IdChange::Ended(id) => assert_eq!(states.insert(id, "ended"), Some("given")),
            IdChange::Lost => panic!("six messages fit"),
        }
    }
    assert_eq!(states, given.into_iter().map(|id| (id, "ended")).collect());
}

#[test]
fn an_inode_is_given_anew_only_after_the_end_was_told() {
    if !need_root_netns() {
        return;
    }
    let home = OpenNamespace::create().unwrap();
    let reused = home.run(|| {
        let mut changes = IdChanges::open().unwrap();
        let mut nsids = Nsids::open().unwrap();
        let (mut live, mut reused) = (HashMap::new(), 0);
        within(PATIENCE, || {
            let other = OpenNamespace::create().unwrap();
            changes.drain(|change| {
                assert_ne!(change, IdChange::Lost);
                if let IdChange::Ended(id) = change {
                    live.retain(|_, of| *of != id);
                }
            });
            let inode = other.id().inode;
            let id = nsids.assign(Target::Open(other.as_fd())).unwrap();
            // Checked at once: a live namespace's inode cannot have been reused.
            assert_eq!(live.insert(inode, id), None, "the end of its predecessor was not told");
            reused += 1;
            reused >= 200
        });
        reused
    });
    assert!(reused.unwrap() >= 200);
}
