#!/usr/bin/env python3
"""Publishes a run of `weir lab relay` or `weir lab telemetry`: its charts and figures go here, its tables into docs/lab.md.

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
HEADING = "### What came out here"

RELAY_CHARTS = {
    "loss": "Loss against rate",
    "latency": "Latency through the relay against rate",
    "places": "Where datagrams were lost",
}
TELEMETRY_CHARTS = {
    "events-on-screen": "Events on screen against packet loss",
    "counter-on-screen": "The counter's value on screen against packet loss",
    "age": "Age of what is on screen against packet loss",
}


def rows(path: Path) -> list:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(head: list, body: list) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def relay_table(folder: Path) -> str:
    body = [[k["size_bytes"], k["targets"], k["flows"], k["knee"]] for k in rows(folder / "knees.csv")]
    return table(["bytes", "targets", "flows", "loss begins"], body)


def telemetry_table(folder: Path) -> str:
    def share(point: dict, name: str) -> str:
        values = [point[name + suffix] for suffix in ("", "_low", "_high")]
        if not values[0]:
            return ""
        value, low, high = (f"{float(v) * 100:.1f}" if v else "" for v in values)
        return f"{value} %" + (f" ({low} to {high})" if low else "")

    def ms(point: dict, name: str) -> str:
        return f"{float(point[name]) / 1e6:.1f} ms" if point[name] else ""

    shares, ages = ("events_on_screen", "events_seen", "steps_on_screen"), ("age_p50_ns", "age_p99_ns")
    body = [
        [f"`{p['transport']}`", f"{float(p['configured_loss']) * 100:g} %"]
        + [share(p, name) for name in shares]
        + [ms(p, name) for name in ages]
        for p in rows(folder / "points.csv")
    ]
    return table(["transport", "loss", "events ≤ 1 s", "ever", "counter ≤ 1 s", "age p50", "age p99"], body)


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


def section(name: str, folder: Path) -> str:
    """The section of the page; copies what it shows."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    is_relay = name == "relay"
    charts, figures = (RELAY_CHARTS, "samples.csv") if is_relay else (TELEMETRY_CHARTS, "points.csv")
    parts = [HEADING, provenance(report["about"])]
    parts.append((relay_table if is_relay else telemetry_table)(folder).rstrip())
    for chart, title in charts.items():
        drawn = folder / "charts" / f"{chart}.svg"
        if drawn.exists():
            shutil.copy(drawn, HERE / f"{name}-{chart}.svg")
            parts.append(f"![{title}](lab/{name}-{chart}.svg)")
    shutil.copy(folder / figures, HERE / f"{name}-{figures}")
    parts.append(f"All figures: [{name}-{figures}](lab/{name}-{figures}).")
    return "\n\n".join(parts) + "\n"


def main(folder: Path) -> None:
    name = "relay" if (folder / "knees.csv").exists() else "telemetry"
    page = PAGE.read_text(encoding="utf-8")
    begin = page.index(f"## `weir lab {name}`")
    end = page.find("\n## ", begin)
    end = len(page) if end < 0 else end
    text = page[begin:end].split(HEADING)[0].rstrip() + "\n\n" + section(name, folder)
    PAGE.write_text(page[:begin] + text + page[end:], encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1])) if len(sys.argv) == 2 else sys.exit(__doc__)
