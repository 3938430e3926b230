use super::parse;
use std::fmt::Write;

/// Compares the parse result, written as `word=value` in a fixed order, without absent values.
#[track_caller]
fn check(path: &str, expected: &str) {
    let said = parse(path);
    let mut text = String::new();
    let mut add = |word: &str, value: Option<String>| {
        if let Some(value) = value {
            let space = if text.is_empty() { "" } else { " " };
            write!(text, "{space}{word}={value}").unwrap();
        }
    };
    add("pod", said.pod_uid.map(|uid| uid.to_string()));
    add("id", said.container_id.map(|id| id.to_string().replace(ID, "ID").replace(OUTER, "OUTER")));
    add("by", said.container_runtime.map(|runtime| runtime.as_str().to_owned()));
    add("unit", said.systemd_unit.map(|unit| unit.replace(ID, "ID").replace(OUTER, "OUTER")));
    add("user_unit", said.systemd_user_unit.map(|unit| unit.replace(ID, "ID")));
    add("slice", said.systemd_slice.map(str::to_owned));
    add("session", said.session.map(str::to_owned));
    add("owner", said.owner_uid.map(|uid| uid.to_string()));
    assert_eq!(text, expected, "{path}");
}

/// Replaces the words `ID` and `OUTER` by ids.
#[track_caller]
fn check_ids(path: &str, expected: &str) {
    check(&path.replace("ID", ID).replace("OUTER", OUTER), expected);
}

const ID: &str = "3f4e1b1c9a4d2e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7";
const OUTER: &str = "b7c1d0a1e2f3948576a0b1c2d3e4f5061728394a5b6c7d8e9f0a1b2c3d4e5f60";

#[test]
fn kubelet_with_the_cgroupfs_driver() {
    // Kubernetes without systemd; GKE's Container-Optimized OS; k3s.
    check_ids(
        "/kubepods/burstable/pod31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081/ID",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID",
    );
    check_ids(
        "/kubepods/besteffort/pod5f1c2d3e-aaaa-4bbb-8ccc-1234567890ab/ID",
        "pod=5f1c2d3e-aaaa-4bbb-8ccc-1234567890ab id=ID",
    );
    // A guaranteed pod has no directory for its class.
    check_ids(
        "/kubepods/pod5f1c2d3e-aaaa-4bbb-8ccc-1234567890ab/ID",
        "pod=5f1c2d3e-aaaa-4bbb-8ccc-1234567890ab id=ID",
    );
    check_ids(
        "/kubepods/burstable/pod5f1c2d3e-aaaa-4bbb-8ccc-1234567890ab/crio-ID",
        "pod=5f1c2d3e-aaaa-4bbb-8ccc-1234567890ab id=ID by=crio",
    );
    check(
        "/kubepods/burstable/pod5f1c2d3e-aaaa-4bbb-8ccc-1234567890ab",
        "pod=5f1c2d3e-aaaa-4bbb-8ccc-1234567890ab",
    );
    check("/kubepods/burstable", "");
}

#[test]
fn static_pods() {
    check_ids(
        "/kubepods/burstable/pod0123456789abcdef0123456789abcdef/ID",
        "pod=0123456789abcdef0123456789abcdef id=ID",
    );
    check_ids(
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0123456789abcdef0123456789abcdef.slice/cri-containerd-ID.scope",
        "pod=0123456789abcdef0123456789abcdef id=ID by=containerd unit=cri-containerd-ID.scope \
         slice=kubepods-burstable-pod0123456789abcdef0123456789abcdef.slice",
    );
    // A manifest may choose its uid.
    check_ids("/kubepods/besteffort/podmy-uid/ID", "pod=my-uid id=ID");
}

#[test]
fn kubelet_with_the_systemd_driver() {
    // EKS on Amazon Linux 2023, Bottlerocket, kubeadm, RKE2.
    check_ids(
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice/cri-containerd-ID.scope",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID by=containerd unit=cri-containerd-ID.scope \
         slice=kubepods-burstable-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice",
    );
    check_ids(
        "/kubepods.slice/kubepods-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice/cri-containerd-ID.scope",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID by=containerd unit=cri-containerd-ID.scope \
         slice=kubepods-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice",
    );
    // OpenShift: crun moves the container one level down.
    check_ids(
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice/crio-ID.scope/container",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID by=crio unit=crio-ID.scope \
         slice=kubepods-besteffort-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice",
    );
    check_ids(
        "/kubepods.slice/kubepods-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice/crio-conmon-ID.scope",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID by=crio unit=crio-conmon-ID.scope \
         slice=kubepods-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice",
    );
    // cri-dockerd, and Kubernetes before 1.24.
    check_ids(
        "/kubepods.slice/kubepods-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice/docker-ID.scope",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID by=docker unit=docker-ID.scope \
         slice=kubepods-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice",
    );
}

#[test]
fn kubelet_and_containerd_with_different_drivers() {
    check_ids(
        "/system.slice/containerd.service/kubepods-burstable-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice:cri-containerd:ID",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID by=containerd unit=containerd.service slice=system.slice",
    );
    check_ids(
        "/kubepods-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice:crio:ID",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID by=crio",
    );
}

#[test]
fn docker_and_containerd() {
    check_ids("/docker/ID", "id=ID by=docker");
    check_ids(
        "/system.slice/docker-ID.scope",
        "id=ID by=docker unit=docker-ID.scope slice=system.slice",
    );
    check_ids(
        "/system.slice/docker-ID.scope (deleted)",
        "id=ID by=docker unit=docker-ID.scope slice=system.slice",
    );
    check_ids(
        "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope",
        "id=ID by=docker unit=user@1000.service user_unit=docker-ID.scope slice=user.slice owner=1000",
    );
    check_ids("/default/ID", "id=ID by=containerd");
    check("/default/redis", "id=redis by=containerd");
    check_ids("/k8s.io/ID", "id=ID by=containerd");
    check_ids("/my-namespace/ID", "id=ID");
    check_ids(
        "/system.slice/nerdctl-ID.scope",
        "id=ID by=containerd unit=nerdctl-ID.scope slice=system.slice",
    );
    check_ids("/kata_overhead/ID", "id=ID by=kata");
    check_ids("/docker", "");
    check_ids("/system.slice/docker.service", "unit=docker.service slice=system.slice");
}

#[test]
fn podman() {
    check_ids(
        "/machine.slice/libpod-ID.scope",
        "id=ID by=podman unit=libpod-ID.scope slice=machine.slice",
    );
    check_ids(
        "/machine.slice/libpod-ID.scope/container",
        "id=ID by=podman unit=libpod-ID.scope slice=machine.slice",
    );
    check_ids(
        "/machine.slice/libpod-conmon-ID.scope",
        "id=ID by=podman unit=libpod-conmon-ID.scope slice=machine.slice",
    );
    check_ids("/libpod_parent/libpod-ID", "id=ID by=podman");
    check_ids(
        "/machine.slice/machine-libpod_pod_OUTER.slice/libpod-ID.scope",
        &format!("id=ID by=podman unit=libpod-ID.scope slice=machine-libpod_pod_{OUTER}.slice"),
    );
    check_ids(
        "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
        "id=ID by=podman unit=user@1000.service user_unit=libpod-ID.scope slice=user.slice owner=1000",
    );
    // Quadlet: the container is in its service's own cgroup.
    check_ids(
        "/system.slice/web.service/libpod-payload-ID",
        "id=ID by=podman unit=web.service slice=system.slice",
    );
    // systemd inside.
    check_ids(
        "/machine.slice/libpod-ID.scope/container/system.slice/nginx.service",
        "id=ID by=podman unit=nginx.service slice=system.slice",
    );
}

#[test]
fn lxc_and_nspawn() {
    check("/lxc/web-1", "id=web-1 by=lxc");
    check("/lxc.payload/web-1", "id=web-1 by=lxc");
    check("/lxc.payload.web-1", "id=web-1 by=lxc");
    check("/lxc.monitor.web-1", "id=web-1 by=lxc");
    check(
        "/lxc.payload.web-1/system.slice/ssh.service",
        "id=web-1 by=lxc unit=ssh.service slice=system.slice",
    );
    // Proxmox.
    check(
        "/lxc/101/ns/system.slice/nginx.service",
        "id=101 by=lxc unit=nginx.service slice=system.slice",
    );
    check("/lxc/101/ns/init.scope", "id=101 by=lxc unit=init.scope");
    // LXC in LXC.
    check("/lxc.payload.outer/lxc.payload.inner", "id=inner by=lxc");
    check_ids("/lxc.payload.outer/docker/ID", "id=ID by=docker");
    check(
        "/machine.slice/systemd-nspawn@web.service/payload/system.slice/nginx.service",
        "id=web by=systemd-nspawn unit=nginx.service slice=system.slice",
    );
    check(
        "/machine.slice/systemd-nspawn@web.service/supervisor",
        "id=web by=systemd-nspawn unit=systemd-nspawn@web.service slice=machine.slice",
    );
    check(
        r"/machine.slice/machine-my\x2dbox.scope",
        r"id=my-box by=systemd-nspawn unit=machine-my\x2dbox.scope slice=machine.slice",
    );
    check(
        r"/machine.slice/machine-qemu\x2d3\x2dvm1.scope/libvirt/emulator",
        r"id=qemu-3-vm1 by=qemu unit=machine-qemu\x2d3\x2dvm1.scope slice=machine.slice",
    );
}

#[test]
fn clouds() {
    check_ids("/ecs/0123456789abcdef0123456789abcdef/ID", "id=ID by=ecs");
    check(
        "/ecs/0123456789abcdef0123456789abcdef/0123456789abcdef0123456789abcdef-2531612879",
        "id=0123456789abcdef0123456789abcdef-2531612879 by=ecs",
    );
    check_ids(
        "/ecstasks.slice/ecstasks-0123456789abcdef0123456789abcdef.slice/docker-ID.scope",
        "id=ID by=docker unit=docker-ID.scope slice=ecstasks-0123456789abcdef0123456789abcdef.slice",
    );
    check(
        "/system.slice/garden.service/garden/bd3f2a06-5a1e-4c8e-4e6f-1b2c",
        "id=bd3f2a06-5a1e-4c8e-4e6f-1b2c by=garden unit=garden.service slice=system.slice",
    );
    check("/garden/good/bd3f2a06-5a1e-4c8e-4e6f-1b2c", "id=bd3f2a06-5a1e-4c8e-4e6f-1b2c by=garden");
    check(
        "/mesos/8d2a3b4c-0f1e-4d5c-9b8a-7f6e5d4c3b2a",
        "id=8d2a3b4c-0f1e-4d5c-9b8a-7f6e5d4c3b2a by=mesos",
    );
}

#[test]
fn the_innermost_container_wins() {
    // kind: the kubelet in a Docker container.
    check_ids(
        "/docker/OUTER/kubelet/kubepods/besteffort/pod31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081/ID",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID",
    );
    check_ids(
        "/system.slice/docker-OUTER.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/\
         kubelet-kubepods-besteffort-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice/cri-containerd-ID.scope",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID by=containerd unit=cri-containerd-ID.scope \
         slice=kubelet-kubepods-besteffort-pod31a4b2f6_9c0d_4e1f_8a2b_3c4d5e6f7081.slice",
    );
    check_ids("/docker/OUTER/docker/ID", "id=ID by=docker");
    // Docker in a pod: the pod remains.
    check_ids(
        "/kubepods/burstable/pod31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081/OUTER/docker/ID",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID by=docker",
    );
    check_ids(
        "/system.slice/docker-OUTER.scope/system.slice/nginx.service",
        "id=OUTER by=docker unit=nginx.service slice=system.slice",
    );
    check_ids("/docker/OUTER/init.scope", "id=OUTER by=docker unit=init.scope");
    // k3s without root.
    check_ids(
        "/user.slice/user-1000.slice/user@1000.service/app.slice/k3s-rootless.service/kubepods/besteffort/pod31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081/ID",
        "pod=31a4b2f6-9c0d-4e1f-8a2b-3c4d5e6f7081 id=ID unit=user@1000.service user_unit=k3s-rootless.service slice=app.slice owner=1000",
    );
}

#[test]
fn systemd_units() {
    check("/system.slice/nginx.service", "unit=nginx.service slice=system.slice");
    check("/system.slice/nginx.service/worker.service", "unit=nginx.service slice=system.slice");
    check("/init.scope", "unit=init.scope");
    check(
        "/system.slice/system-getty.slice/getty@tty1.service",
        "unit=getty@tty1.service slice=system-getty.slice",
    );
    check(
        r"/system.slice/system-systemd\x2dfsck.slice/systemd-fsck@dev-disk-by\x2duuid-1A2B.service",
        r"unit=systemd-fsck@dev-disk-by\x2duuid-1A2B.service slice=system-systemd\x2dfsck.slice",
    );
    check(
        r"/system.slice/run-user-1000\x2dx.mount",
        r"unit=run-user-1000\x2dx.mount slice=system.slice",
    );
    check("/system.slice/cups.socket", "unit=cups.socket slice=system.slice");
    // systemd's own escape for names that would clash with kernel files.
    check("/system.slice/_cpu.service", "unit=cpu.service slice=system.slice");
    // A slice alone is not a unit.
    check("/system.slice", "slice=system.slice");
    check("/-.slice", "slice=-.slice");
    check("/user.slice/user-1000.slice", "slice=user-1000.slice owner=1000");
    check("/", "");
    check("", "");
}

#[test]
fn users_and_sessions() {
    check(
        "/user.slice/user-1000.slice/session-3.scope",
        "unit=session-3.scope slice=user-1000.slice session=3 owner=1000",
    );
    check(
        "/user.slice/user-0.slice/session-c1.scope",
        "unit=session-c1.scope slice=user-0.slice session=c1 owner=0",
    );
    check(
        r"/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox\x2desr-2345.scope",
        r"unit=user@1000.service user_unit=app-gnome-firefox\x2desr-2345.scope slice=app.slice owner=1000",
    );
    check(
        "/user.slice/user-1000.slice/user@1000.service/init.scope",
        "unit=user@1000.service user_unit=init.scope slice=user-1000.slice owner=1000",
    );
    check(
        "/user.slice/user-1000.slice/user@1000.service/session.slice/dbus.service",
        "unit=user@1000.service user_unit=dbus.service slice=session.slice owner=1000",
    );
    check("/user.slice/user-4294967296.slice", "slice=user-4294967296.slice");
    check("/user.slice/user-+1.slice", "slice=user.slice");
}

#[test]
fn paths_seen_from_a_cgroup_namespace() {
    check_ids("/../../docker/ID", "id=ID by=docker");
    check("/..", "");
    check("//system.slice//./nginx.service/", "unit=nginx.service slice=system.slice");
}

#[test]
fn names_that_are_made_to_mislead() {
    // 63 and 65 digits, upper case, no digit.
    check(&format!("/docker/{}", &ID[1..]), "");
    check(&format!("/docker/{ID}0"), "");
    check(&format!("/docker/{}", ID.to_uppercase()), "");
    check(&format!("/docker/{}g", &ID[1..]), "");
    // Control characters, white space, quotes, characters special to a shell or HTML, other scripts.
    check("/lxc/a\u{1b}[2Jb", "");
    check("/lxc/a b", "");
    check("/lxc/<script>", "");
    check("/lxc/..", "");
    check("/lxc/.hidden", "");
    check("/lxc/\u{202e}gpj", "");
    check("/lxc/\u{fffd}", "");
    check("/system.slice/evil\n.service", "slice=system.slice");
    check("/system.slice/\u{1b}]0;x\u{7}.scope", "slice=system.slice");
    check("/system.slice/.service", "slice=system.slice");
    check("/system.slice/@.service", "slice=system.slice");
    // An escaped slash, an escaped control character, and half an escape stay escaped.
    check(
        r"/machine.slice/machine-a\x2f..\x2fetc\x0a\x1b\xff\x2.scope",
        r"id=a\x2f..\x2fetc\x0a\x1b\xff\x2 by=systemd-nspawn unit=machine-a\x2f..\x2fetc\x0a\x1b\xff\x2.scope slice=machine.slice",
    );
    // No pods outside the kubelet's directories, unless the uid is a real one.
    check("/kubepods-ish/podcast", "");
    check("/podcast", "");
    check("/system.slice/notkubepods-podx.slice", "slice=notkubepods-podx.slice");
    check("/kubepods/besteffort/pod", "");
    check("/kubepods/besteffort/pod../x", "");
    check("/kubepods/besteffort/pod\u{7}/x", "");
}

#[test]
fn what_is_too_long_is_not_looked_at() {
    let service = |len: usize| format!("{}.service", "s".repeat(len - ".service".len()));
    check(&format!("/{}", service(255)), &format!("unit={}", service(255)));
    check(&format!("/{}", service(256)), "");
    let deep = |len: usize| format!("/x.service{}", "/y".repeat((len - "/x.service".len()) / 2));
    check(&deep(4_096), "unit=x.service");
    check(&deep(4_098), "");
}

#[test]
fn no_text_makes_it_fail_and_slices_lie_in_the_path() {
    let words = [
        "kubepods",
        "kubepods.slice",
        "pod",
        "podabc",
        ".slice",
        "-pod",
        "docker",
        "lxc",
        "lxc.payload.",
        "garden",
        "good",
        "ecs",
        ":",
        "::",
        "machine-.scope",
        "user@.service",
        "user@1.service",
        "session-.scope",
        "_",
        "\\x2",
        "\\x",
        "é.service",
        ID,
        "crio-",
        " (deleted)",
        "..",
    ];
    for first in words {
        for second in words {
            for third in words {
                let path = format!("/{first}/{second}{third}/{third}");
                for cut in (0..path.len()).filter(|cut| path.is_char_boundary(*cut)) {
                    let path = &path[cut..];
                    let said = parse(path);
                    let range = path.as_bytes().as_ptr_range();
                    let names =
                        [said.pod_uid, said.container_id].map(|name| name.map(|name| name.raw()));
                    for slice in names
                        .into_iter()
                        .chain([said.systemd_unit, said.systemd_slice, said.session])
                        .flatten()
                    {
                        assert!(!slice.is_empty() && !slice.contains(['/', '\n', '\u{1b}']));
                        assert!(range.contains(&slice.as_ptr()));
                    }
                }
            }
        }
    }
}
