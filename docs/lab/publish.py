#!/usr/bin/env python3
"""Publishes a run of `weir lab relay`: its charts and figures go here, its tables into docs/lab.md.

    publish.py FOLDER     the command's --out
"""

import csv
import json
import shutil
import sys
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "lab.md"
HEADING = "## What came out here"

CHARTS = {
    "loss": "Loss against rate",
    "latency": "Latency through the relay against rate",
    "places": "Where datagrams were lost",
}


def rows(path: Path) -> list:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(head: list, body: list) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def knees(folder: Path) -> str:
    body = [[k["size_bytes"], k["targets"], k["flows"], k["knee"]] for k in rows(folder / "knees.csv")]
    return table(["bytes", "targets", "flows", "loss begins"], body)


def provenance(about: dict) -> str:
    machine = about["machine"]
    began = datetime.fromtimestamp(about["began_unix_ns"] / 1e9, timezone.utc)
    commit = f"commit {about['commit']}" if about["commit"] else "commit unknown"
    load = machine["load_before"]
    text = (
        f"{began:%Y-%m-%d %H:%M} UTC, {machine['kernel']}, {machine['processor']}, {machine['processors']} processors, load average "
        f"{'unknown' if load is None else load} before it began; {commit}, `{about['command']}`, "
        f"{about['took_ns'] / 60e9:.1f} minutes."
    )
    return "\n\n".join([text, *about["notes"]])


def section(folder: Path) -> str:
    """The section of the page; copies what it shows."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    parts = [HEADING, provenance(report["about"]), knees(folder).rstrip()]
    for chart, title in CHARTS.items():
        drawn = folder / "charts" / f"{chart}.svg"
        if drawn.exists():
            shutil.copy(drawn, HERE / f"relay-{chart}.svg")
            parts.append(f"![{title}](lab/relay-{chart}.svg)")
    shutil.copy(folder / "samples.csv", HERE / "relay-samples.csv")
    parts.append("All figures: [relay-samples.csv](lab/relay-samples.csv).")
    return "\n\n".join(parts) + "\n"


def main(folder: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page.split(HEADING)[0].rstrip() + "\n\n" + section(folder), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1])) if len(sys.argv) == 2 else sys.exit(__doc__)
