"""What the schema cannot know: that the parts of each manifest fit each other and the config inside."""

import os
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
    held += sum(int(re.match(r"\d+", sink["queue_size"]).group()) for sink in config.get("sink", []))
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    check_disk(config, volumes, {mount["mountPath"]: mount for mount in container["volumeMounts"]})
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

    check_disk(config, volumes, mounts["collector"])


def check_disk(config: dict, volumes: dict, mounts: dict) -> None:
    """What sinks keep on disk fits its volume."""
    for sink in config.get("sink", []):
        if "spool" in sink:
            path, held = sink["spool"], mebibytes(sink["spool_size"].removesuffix("B"))
        else:
            path, held = sink["to"].removeprefix("file:"), mebibytes(sink["rotate_size"].removesuffix("B")) * (sink["rotate_keep"] + 1)
        limit = volumes[mounts[path.rpartition("/")[0]]["name"]]["emptyDir"]["sizeLimit"]
        assert limit == "1Gi" and held <= 1024, sink["name"]


def check_topics(config: dict) -> None:
    """Sinks write to topics that deploy/kafka makes."""
    script = open("deploy/kafka/topics.sh", encoding="utf-8").read()
    made = re.findall(r"^topic (\S+) \d+", script, re.M)
    sinks = config["sink"]
    assert sinks and len(made) == 4
    for sink in sinks:
        assert sink["to"].rpartition("/")[2] in made, sink["to"]
        assert "sockets" not in sink["from"] or sink["totals_topic"] in made, sink["name"]


def check_compose(services: dict) -> None:
    folder = "deploy/compose"
    config = tomllib.load(open(f"{folder}/weir.toml", "rb"))
    check_topics(config)

    for name, service in services.items():
        # One version, and only what is there.
        assert re.search(r":\d+(\.\d+)+$", service["image"]), service["image"]
        assert set(service.get("depends_on", {})) <= set(services), name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert os.path.exists(f"{folder}/{source}"), source
        # Nothing is open to others.
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name

    # Weir, the topics' maker and ClickHouse find the broker where it says it is.
    kafka = services["kafka"]
    outside = re.search(r"OUTSIDE://([^,]+)", kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"]).group(1)
    assert all(sink["to"].startswith(f"kafka://{outside}/") for sink in config["sink"])
    assert f"{outside}:{outside.rpartition(':')[2]}" in kafka["ports"]
    inside = re.search(r"INSIDE://([^,]+)", kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"]).group(1)
    assert inside in services["topics"]["command"]
    tables = open("deploy/clickhouse/kafka.sql", encoding="utf-8").read()
    assert set(re.findall(r"kafka_broker_list = '([^']+)'", tables)) == {inside}
    assert seconds(services["weir"]["stop_grace_period"]) > seconds(config["daemon"]["drain_grace"])


CHECKS = {
    "weir.yaml": check_relay,
    "weir-sockets.yaml": check_collector,
    "weir-kafka.yaml": check_relay,
    "weir-sockets-kafka.yaml": check_collector,
}
for path in sys.argv[1:]:
    folder, _, name = path.rpartition("/")
    if name == "compose.yaml":
        check_compose(yaml.safe_load(open(path, encoding="utf-8"))["services"])
        continue
    kinds = read(path)
    if name.endswith("-kafka.yaml"):
        # It replaces a part of another.
        (config_map,) = kinds.values()
        check_topics(tomllib.loads(config_map["data"]["weir.toml"]))
        base = read(f"{folder}/{name.replace('-kafka', '')}")
        assert kinds.keys() <= base.keys()
        kinds = base | kinds
    CHECKS[name](kinds)
