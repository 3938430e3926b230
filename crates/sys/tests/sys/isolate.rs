//! Unprivileged programs in namespaces in which they are root.

use std::env;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use sys::Errno;
use sys::link::Links;
use sys::namespace::{self, IsolateError, Obstacle, OpenNamespace, isolate, isolate_child};
use testkit::{OwnProgram, skip};

/// User and group id of nobody.
const NOBODY: u32 = 65_534;

const REQUIRED_BY: [&str; 2] = ["REQUIRE_NETNS", "REQUIRE_ALL"];

/// Runs one of the functions below in a separate process, as nobody if this is root.
fn child(program: &OwnProgram, function: &str) -> Command {
    let mut command = program.command(&[&format!("isolate::{function}")]);
    command.env("OUTSIDE", namespace::own().unwrap().inode.to_string());
    if sys::process::effective_uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Whether this process was started by [`child`].
fn is_child() -> bool {
    env::var_os("OUTSIDE").is_some()
}

fn assert_passed(output: io::Result<Output>) {
    match output {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
        }
        Err(error) => {
            skip(&IsolateError::of_spawn(&error).to_string(), &REQUIRED_BY);
        }
    }
}

#[test]
fn a_child_is_root_of_a_network_of_its_own() {
    let program = OwnProgram::copy("child");
    assert_passed(isolate_child(&mut child(&program, "be_root_of_a_network")).output());
}

#[test]
fn be_root_of_a_network() {
    if !is_child() {
        return;
    }
    assert_eq!(sys::process::effective_uid(), 0);
    assert_ne!(namespace::own().unwrap().inode.to_string(), env::var("OUTSIDE").unwrap());
    let (here, there) = (OpenNamespace::create().unwrap(), OpenNamespace::create().unwrap());
    Links::open(&here).unwrap().add_veth("here", "there", &there).unwrap();
    Links::open(&there).unwrap().set_up("there").unwrap();
    // The rest of the host stays protected.
    assert_eq!(
        fs::write("/proc/sys/kernel/hostname", "x").unwrap_err().kind(),
        io::ErrorKind::PermissionDenied
    );
}

#[test]
fn a_process_with_threads_is_told_so_and_stays() {
    let before = namespace::own().unwrap();
    let error = std::thread::spawn(|| isolate().unwrap_err()).join().unwrap();
    assert_eq!(namespace::own().unwrap(), before);
    if let Obstacle::Setting { .. } = error.obstacle {
        skip(&error.to_string(), &REQUIRED_BY);
        return;
    }
    assert_eq!((error.errno, &error.obstacle), (Errno::INVAL, &Obstacle::HasThreads));
    assert!(error.to_string().ends_with("the process has more than one thread"), "{error}");
}

#[test]
fn a_setting_that_forbids_it_is_named() {
    let program = OwnProgram::copy("setting");
    assert_passed(isolate_child(&mut child(&program, "forbid_it_to_children")).output());
}

/// The limit belongs to the user namespace of this process and applies to those below it.
#[test]
fn forbid_it_to_children() {
    if !is_child() {
        return;
    }
    fs::write("/proc/sys/user/max_user_namespaces", "0").unwrap();
    let error = isolate_child(&mut Command::new("/bin/true")).spawn().unwrap_err();
    let error = IsolateError::of_spawn(&error);
    assert!(error.is_permission());
    assert_eq!(
        error.to_string(),
        "unshare of a user namespace: No space left on device (os error 28): \
         the setting user.max_user_namespaces is 0"
    );
    assert_eq!(error.remedy().as_deref(), Some("sysctl -w user.max_user_namespaces=10000"));
    fs::write("/proc/sys/user/max_net_namespaces", "0").unwrap();
    let error = OpenNamespace::create().unwrap_err();
    assert!(error.to_string().contains("user.max_net_namespaces"), "{error}");
}
