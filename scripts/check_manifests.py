"""What the schema cannot know: that the parts of the manifest fit each other and the config inside."""

import re
import sys
import tomllib

import yaml


def mebibytes(quantity: str) -> int:
    return int(re.fullmatch(r"(\d+)Mi", quantity).group(1))


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        objects = [document for document in yaml.safe_load_all(file) if document]
    kinds = {(o["kind"], o["metadata"]["name"]): o for o in objects}
    config = tomllib.loads(kinds["ConfigMap", "weir"]["data"]["weir.toml"])
    pod = kinds["Deployment", "weir"]["spec"]["template"]
    spec = pod["spec"]
    (container,) = spec["containers"]
    ports = {port["name"]: port for port in container["ports"]}

    # Everything received is sent before the kubelet kills.
    assert spec["terminationGracePeriodSeconds"] > int(config["daemon"]["drain_grace"].removesuffix("s"))
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


main(sys.argv[1])
