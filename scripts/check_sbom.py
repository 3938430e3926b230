"""check_sbom.py BILL TARGET: valid by the schema of CycloneDX, and of the crates that cargo selects for the build, as Cargo.lock has them."""

import importlib.resources
import json
import subprocess
import sys
import tomllib

import jsonschema
import referencing
from license_expression import get_spdx_licensing

path, target = sys.argv[1:3]
with open(path, encoding="utf-8") as file:
    bill = json.load(file)
crates = [component for component in bill["components"] + [bill["metadata"]["component"]] if component["purl"].startswith("pkg:cargo/")]
named = {(crate["name"], crate["version"]) for crate in crates}
assert len(named) == len(crates)

# By the schema, which the package brings along.
schemas = importlib.resources.files("cyclonedx.schema") / "_res"
contents = [json.loads((schemas / f"{name}.SNAPSHOT.schema.json").read_text()) for name in ("bom-1.6", "spdx", "jsf-0.82")]
registry = referencing.Registry().with_resources((c["$id"], referencing.Resource.from_contents(c)) for c in contents)
jsonschema.Draft7Validator(contents[0], registry=registry).validate(bill)
licensing = get_spdx_licensing()
for component in bill["components"]:
    for license in component["licenses"]:
        assert not licensing.validate(license["expression"]).errors, component

# The same crates as cargo's own list for these features.
tree = ["cargo", "tree", "--locked", "--package=weir", "--no-default-features", "--features=all-sinks", f"--target={target}"]
lines = subprocess.run(tree + ["--edges=normal,build", "--prefix=none"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
selected = {(name, version.removeprefix("v")) for name, version, *_ in (line.split() for line in lines if line)}
assert named == selected, f"too many: {named - selected}, missing: {selected - named}"

# Each as it is locked, with the checksum of what was downloaded; the workspace's own have none.
with open("Cargo.lock", "rb") as file:
    locked = {(package["name"], package["version"]): package.get("checksum") for package in tomllib.load(file)["package"]}
for crate in crates:
    checksums = [hash["content"] for hash in crate.get("hashes", [])]
    assert checksums == [c for c in [locked[crate["name"], crate["version"]]] if c], crate
assert sum("hashes" in crate for crate in crates) > 100

# What depends on what is told of crates that are there.
references = {component["bom-ref"] for component in crates}
assert {dependency["ref"] for dependency in bill["dependencies"]} == references
assert all(set(dependency["dependsOn"]) <= references for dependency in bill["dependencies"])
print(f"{len(crates)} crates")
