"""check_chart.py RENDERED MANIFEST: what the Helm chart makes of its defaults is what the manifest has."""

import difflib
import sys
import tomllib

import yaml

# What Helm's conventions add.
CONVENTIONS = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
    "checksum/config",
}


def essence(node: object) -> object:
    """The same without what Helm's conventions add, and without the comments of configurations."""
    if isinstance(node, list):
        return [essence(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: essence(value) for key, value in node.items() if key not in CONVENTIONS}
    if "weir.toml" in kept:
        kept["weir.toml"] = tomllib.loads(kept["weir.toml"])
    return {key: value for key, value in kept.items() if (key, value) != ("annotations", {})}


def read(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        objects = [document for document in yaml.safe_load_all(file) if document]
    objects.sort(key=lambda o: (o["kind"], o["metadata"]["name"]))
    return yaml.safe_dump_all(map(essence, objects)).splitlines()


rendered, manifest = map(read, sys.argv[1:3])
assert manifest
difference = list(difflib.unified_diff(manifest, rendered, sys.argv[2], sys.argv[1], lineterm=""))
print("\n".join(difference))
sys.exit(bool(difference))
