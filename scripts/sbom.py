"""sbom.py ARTIFACTS: the bill of materials of a build, as CycloneDX JSON.

ARTIFACTS is what cargo printed with --message-format json: the crates that it compiled, those of build scripts and procedural
macros included, since build scripts compile C code into the program. Reads the clone in the working folder.
"""

import json
import os
import subprocess
import sys
import time
import tomllib


def output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def built(path: str) -> set[str]:
    """The ids of the packages that were compiled."""
    with open(path, encoding="utf-8") as file:
        messages = [json.loads(line) for line in file]
    return {message["package_id"] for message in messages if message["reason"] == "compiler-artifact"}


def reference(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version'].replace('+', '%2B')}"


def component(package: dict, checksums: dict) -> dict:
    made = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        # Older crates write a slash for OR, which SPDX does not know.
        "licenses": [{"expression": package["license"].replace("/", " OR ")}],
        "purl": reference(package),
    }
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return made


def toolchain() -> dict:
    """The standard library is linked in, with the C library that comes with it."""
    version = output("rustc", "--version").split()[1]
    made = {"name": "rust", "version": version, "licenses": [{"expression": "MIT OR Apache-2.0"}]}
    return {"type": "library", "bom-ref": f"pkg:generic/rust@{version}", "purl": f"pkg:generic/rust@{version}"} | made


def bill(ids: set[str]) -> dict:
    metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version=1", "--features=weir/all-sinks"))
    packages = {package["id"]: package for package in metadata["packages"] if package["id"] in ids}
    assert packages.keys() == ids, ids - packages.keys()
    with open("Cargo.lock", "rb") as file:
        locked = tomllib.load(file)["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"] if node["id"] in ids}

    (program,) = (package for package in packages.values() if package["name"] == "weir")
    others = [package for package in packages.values() if package is not program]
    components = [component(package, checksums) for package in others] + [toolchain()]
    dependencies = [
        {"ref": reference(packages[id]), "dependsOn": sorted({reference(packages[on]) for on in node["dependencies"] if on in ids})}
        for id, node in nodes.items()
    ]
    # The commit's time, which the packages have too.
    moment = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", moment),
            "component": component(program, checksums) | {"type": "application"},
        },
        "components": sorted(components, key=lambda c: c["bom-ref"]),
        "dependencies": sorted(dependencies, key=lambda d: d["ref"]),
    }


json.dump(bill(built(sys.argv[1])), sys.stdout, indent=1)
print()
