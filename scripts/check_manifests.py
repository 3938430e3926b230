"""What the schema cannot know: that the parts of each manifest fit each other and the config inside."""

import re
import sys
import tomllib

import yaml


def mebibytes(quantity: str) -> int:
    return int(re.fullmatch(r"(\d+)Mi", quantity).group(1))


def read(path: str) -> dict:
    with open(path, encoding="utf-8") as file:
        objects = [document for document in yaml.safe_load_all(file) if document]
    return {(o["kind"], o["metadata"]["name"]): o for o in objects}


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


def check_relay(kinds: dict) -> None:
    config = tomllib.loads(kinds["ConfigMap", "weir"]["data"]["weir.toml"])
    pod = kinds["Deployment", "weir"]["spec"]["template"]
    spec = pod["spec"]
    (container,) = spec["containers"]
    ports = {port["name"]: port for port in container["ports"]}

    # Everything received is sent before the kubelet kills.
    assert spec["terminationGracePeriodSeconds"] > seconds(config["daemon"]["drain_grace"])
    assert "preStop" not in container.get("lifecycle", {})

    # Probes reach the admin port, which is open to the pod's network.
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "admin"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin"}
    assert config["admin"]["listen"] == f"0.0.0.0:{ports['admin']['containerPort']}"

    # The Service and the listener meet at the container's port.
    for listener in config["listener"]:
        port = ports[listener["name"]]
        assert port["protocol"] == "UDP"
        assert listener["listen"].endswith(f":{port['containerPort']}")
    service = kinds["Service", "weir"]["spec"]
    assert {p["targetPort"] for p in service["ports"]} <= set(ports)
    assert all(p["protocol"] == "UDP" for p in service["ports"])

    # Every selector finds the pods.
    labels = pod["metadata"]["labels"].items()
    budget = kinds["PodDisruptionBudget", "weir"]["spec"]
    policy = kinds["NetworkPolicy", "weir"]["spec"]
    for selector in (service["selector"], budget["selector"]["matchLabels"], policy["podSelector"]["matchLabels"]):
        assert selector.items() <= labels

    # Memory: one figure, and room for the rings and the kernel's buffers.
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    assert limits["memory"] == requests["memory"]
    held = sum(int(re.match(r"\d+", l[key]).group()) for l in config["listener"] for key in ("ring_size", "receive_buffer"))
    # The kernel charges up to twice what was asked for a receive buffer.
    assert mebibytes(limits["memory"]) >= 2 * held

    # No privilege.
    assert spec["securityContext"]["runAsNonRoot"] and spec["automountServiceAccountToken"] is False
    security = container["securityContext"]
    assert security["capabilities"]["drop"] == ["ALL"] and "add" not in security["capabilities"]
    assert security["readOnlyRootFilesystem"] and security["allowPrivilegeEscalation"] is False


# The capabilities that `weir namespace-helper` keeps; anything beyond them it would throw away.
HELPER_CAPABILITIES = {"SYS_ADMIN", "SYS_PTRACE", "NET_ADMIN", "NET_BROADCAST"}


def check_collector(kinds: dict) -> None:
    config = tomllib.loads(kinds["ConfigMap", "weir-sockets"]["data"]["weir.toml"])
    daemon_set = kinds["DaemonSet", "weir-sockets"]["spec"]
    pod = daemon_set["template"]
    spec = pod["spec"]
    containers = {container["name"]: container for container in spec["containers"]}
    helper, collector = containers.pop("namespace-helper"), containers.pop("collector")
    assert not containers
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {
        name: {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        for name, container in (("helper", helper), ("collector", collector))
    }

    assert daemon_set["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert spec["terminationGracePeriodSeconds"] > seconds(config["daemon"]["drain_grace"])
    assert spec["automountServiceAccountToken"] is False

    # The helper sees the node's processes; both are in the node's network namespace; probes ask where the config listens.
    assert spec["hostPID"] and spec["hostNetwork"] and spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    for probe, page in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"), ("startupProbe", "/readyz")):
        get = collector[probe]["httpGet"]
        assert get["path"] == page
        assert config["admin"]["listen"] == f"{get['host']}:{get['port']}"

    # They meet at one socket, and the helper knows the collector's user.
    args = helper["args"]
    socket = args[args.index("--listen") + 1]
    assert config["sockets"]["helper"] == socket and config["sockets"]["namespaces"] == "all"
    folder = socket.rpartition("/")[0]
    assert mounts["helper"][folder]["name"] == mounts["collector"][folder]["name"]
    assert "emptyDir" in volumes[mounts["helper"][folder]["name"]]
    assert args[args.index("--allow-user") + 1] == str(collector["securityContext"]["runAsUser"])

    # Only the helper has privilege, and no more than it uses.
    for container in (helper, collector):
        security = container["securityContext"]
        assert "privileged" not in security and security["readOnlyRootFilesystem"]
        assert security["capabilities"]["drop"] == ["ALL"]
        limits, requests = container["resources"]["limits"], container["resources"]["requests"]
        assert limits["memory"] == requests["memory"]
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    # It becomes another user than root and the collector's, and gives up what that takes.
    user = int(args[args.index("--user") + 1])
    assert user not in (0, collector["securityContext"]["runAsUser"])
    assert set(helper["securityContext"]["capabilities"]["add"]) == HELPER_CAPABILITIES | {"SETUID", "SETGID"}
    assert "add" not in collector["securityContext"]["capabilities"]
    assert collector["securityContext"]["runAsNonRoot"]
    assert collector["securityContext"]["allowPrivilegeEscalation"] is False

    # Nothing of the node can be written, and namespaces that are mounted later are seen.
    for name, paths in mounts.items():
        for path, mount in paths.items():
            if "hostPath" in volumes[mount["name"]]:
                assert mount["readOnly"], f"{name}: {path}"
    for container in ("helper", "collector"):
        netns = mounts[container]["/run/netns"]
        assert netns["mountPropagation"] == "HostToContainer"
        assert volumes[netns["name"]]["hostPath"]["path"] == "/run/netns"
    cgroup = mounts["collector"]["/sys/fs/cgroup"]
    assert volumes[cgroup["name"]]["hostPath"]["path"] == "/sys/fs/cgroup"

    # The files of a sink fit their volume.
    for sink in config["sink"]:
        held = int(re.match(r"\d+", sink["rotate_size"]).group()) * (sink["rotate_keep"] + 1)
        folder = sink["to"].removeprefix("file:").rpartition("/")[0]
        assert volumes[mounts["collector"][folder]["name"]]["emptyDir"]["sizeLimit"] == "1Gi" and held <= 1024


CHECKS = {"weir.yaml": check_relay, "weir-sockets.yaml": check_collector}
for path in sys.argv[1:]:
    CHECKS[path.rpartition("/")[2]](read(path))
