#!/usr/bin/env python3
"""Holds a run of `weir lab udp-vs-tcp` against the claims of an article (claims.json), as tables in Markdown.

    verdicts.py FOLDER     of a report: its points.csv and runs.csv
    verdicts.py --write    of the published run beside this file, into udp-vs-tcp.md
    verdicts.py --check    fails where udp-vs-tcp.md has other tables than --write would give it

The published run has no runs.csv; results.json has what follows from its single runs alone.
"""

import csv
import json
import math
import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "udp-vs-tcp.md"
SECTIONS = {"claims": "| | the article | here | |", "checks": "| | check | here | |"}
RESAMPLES = 2_000


class Results:
    """The closed loop of UDP and of cubic, which is the article's pair, and all points for the checks."""

    def __init__(self, folder: Path):
        self.points = rows(folder / "points.csv")
        self.udp, self.tcp = (
            [p for p in self.points if p["transport"] == name and p["schedule"] == "closed_loop"]
            for name in ("udp", "tcp-cubic")
        )
        runs = folder / "runs.csv"
        if runs.exists():
            self.of_runs = self.from_runs(rows(runs))
        else:
            self.of_runs = json.loads((folder / "results.json").read_text(encoding="utf-8"))

    def from_runs(self, runs: list) -> dict:
        """Where curves cross, with an interval over runs, and what the receive buffers dropped."""

        def curve(transport: str, part, whole) -> dict:
            chosen = [r for r in runs if r["transport"] == transport and r["schedule"] == "closed_loop"]
            return {
                loss: [(part(r), whole(r)) for r in chosen if r["configured_loss"] == loss]
                for loss in sorted({r["configured_loss"] for r in chosen})
            }

        # A message under way at the end counts with the time that it has taken so far.
        counted = lambda r: r["delivered"] + r["under_way_at_end"]
        delays = curve("tcp-cubic", lambda r: r["mean_ns"] / 1e9 * counted(r) if counted(r) else 0.0, counted)
        rates = {
            name: curve(name, lambda r: r["delivered"], lambda r: r["duration_ns"] / 1e9)
            for name in ("udp", "tcp-cubic")
        }
        both = [loss for loss in rates["tcp-cubic"] if loss in rates["udp"]]

        # The flows of one loss share their hosts, and so their counters.
        drops = {}
        for run in runs:
            loss = run["configured_loss"]
            drops[loss] = max(drops.get(loss, 0), run["kernel_udp_receive_buffer_errors"])

        return {
            "passes_one_second": crossing([(x, [(1.0, 1.0)] * 2, ratio) for x, ratio in delays.items()]),
            "rates_cross": crossing([(x, rates["tcp-cubic"][x], rates["udp"][x]) for x in both]),
            "receive_buffer_drops": int(sum(drops.values())),
        }


def rows(path: Path) -> list:
    """Rows of a CSV file with numbers as numbers, and nothing as None."""

    def value(text: str):
        if text in ("", "true", "false"):
            return {"": None, "true": True, "false": False}[text]
        try:
            return float(text)
        except ValueError:
            return text

    with path.open(encoding="utf-8", newline="") as file:
        return [{name: value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def crossing(points: list):
    """Where one curve falls below another and stays there: points are (x, upper, lower), curves quotients over runs."""
    if len(points) < 2:
        return None
    quotient = lambda runs: sum(r[0] for r in runs) / whole if (whole := sum(r[1] for r in runs)) else math.nan
    at = last_fall([(x, quotient(a) - quotient(b)) for x, a, b in points])
    if at is None or min(len(runs) for _, *curves in points for runs in curves) < 2:
        return at and {"at": at}

    # Messages of one run depend on each other, so runs are drawn whole.
    chance = random.Random(1)
    drawn = lambda runs: quotient(chance.choices(runs, k=len(runs)))
    falls = (last_fall([(x, drawn(a) - drawn(b)) for x, a, b in points]) for _ in range(RESAMPLES))
    falls = sorted(fall for fall in falls if fall is not None)
    return {"at": at, "low": falls[int(len(falls) * 0.025)], "high": falls[int(len(falls) * 0.975)]}


def last_fall(gaps: list):
    if any(math.isnan(gap) for _, gap in gaps):
        return None
    last = max((n for n, (_, gap) in enumerate(gaps) if gap >= 0), default=None)
    if last is None:
        return -math.inf
    if last + 1 == len(gaps):
        return math.inf
    (x, gap), (next_x, next_gap) = gaps[last], gaps[last + 1]
    return x + (next_x - x) * gap / (gap - next_gap)


# Numbers as the report has them.


def significant(value: float) -> tuple:
    """Three significant digits, and how many of them are decimals."""
    if value <= 0:
        return value, 0
    exponent = math.floor(math.log10(value))
    rounded = round(value / 10 ** (exponent - 2)) * 10 ** (exponent - 2)
    return rounded, max(2 - math.floor(math.log10(rounded) + 1e-12), 0)


def time(ns: float) -> str:
    units = [(1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (600e9, 1e9, "s"), (math.inf, 60e9, "min")]
    _, scale, unit = next(unit for unit in units if significant(ns)[0] < unit[0])
    value, decimals = significant(ns / scale)
    return f"{value:.{decimals}f} {unit}"


def percent(share: float) -> str:
    return f"{share * 100:.2f}".rstrip("0").rstrip(".") + " %"


def estimate(point: dict, column: str, number, after: str = "") -> str:
    low, high = point[f"{column}_low"], point[f"{column}_high"]
    interval = "" if low is None else f" ({number(low)} to {number(high)})"
    return f"{'≥' * bool(point[f'{column}_is_lower_bound'])}{number(point[column])}{after}{interval}"


def rate_text(point: dict) -> str:
    return estimate(point, "rate_per_sec", "{:.1f}".format, "/s")


def crossing_text(found: dict, series: list) -> str:
    def loss(at: float) -> str:
        if math.isinf(at):
            return f"above {percent(series[-1]['configured_loss'])}" if at > 0 else f"below {percent(series[0]['configured_loss'])}"
        return f"{at * 100:.1f} %"

    interval = f" ({loss(found['low'])} to {loss(found['high'])})" if "low" in found else ""
    return loss(found["at"]) + interval


# What a claim is about: what came out here as a sentence, and the outcome.


def near(series: list, loss: float) -> dict:
    """The point at a loss, if it is no further than a percentage point: whole percents for each link give 19 % on a path."""
    return min((p for p in series if abs(p["configured_loss"] - loss) < 0.0101), key=lambda p: abs(p["configured_loss"] - loss))


def at(point: dict, text: str) -> str:
    loss = point["configured_loss"]
    return text if min(abs(loss - 0.10), abs(loss - 0.20)) < 1e-6 else f"{text} (at {percent(loss)})"


def judge(claim: dict, value: float, low=None, high=None, is_lower_bound=False, direction=False) -> str:
    """`unclear` where the interval reaches into the band, or where a lower bound lies below it."""
    least, most = claim["reproduced"]
    if least <= value <= most:
        return "reproduced"
    reaches = low is not None and low <= most and high >= least
    is_unclear = reaches or (is_lower_bound and value < least)
    first, last = claim.get("in_direction", (math.inf, -math.inf))
    is_in_direction = direction or first < value <= last
    if is_in_direction and (claim.get("direction_settles_it") or not is_unclear):
        return "in direction"
    return "unclear" if is_unclear else "differs"


def judge_estimate(claim: dict, point: dict, column: str, direction=False) -> str:
    suffixes = ("", "_low", "_high", "_is_lower_bound")
    return judge(claim, *(point[column + suffix] for suffix in suffixes), direction=direction)


def means_apart(results: Results, claim: dict) -> tuple:
    means = [p["mean_ns"] for p in results.udp]
    low, high = min(means), max(means)
    is_small = high <= claim["below_ns"]
    outcome = judge(claim, high / low, direction=is_small) if is_small else "differs"
    return f"{time(low)} to {time(high)} over {len(means)} loss rates", outcome


def longest(results: Results, claim: dict) -> tuple:
    worst = max(results.udp, key=lambda p: p["max_ns"])
    return f"{time(worst['max_ns'])}, at {percent(worst['configured_loss'])} loss", judge(claim, worst["max_ns"])


def passes_one_second(results: Results, claim: dict) -> tuple:
    found = results.of_runs["passes_one_second"]
    here = f"passes 1 s at {crossing_text(found, results.tcp)}"
    return here, judge(claim, found["at"], found.get("low"), found.get("high"))


def delay(results: Results, claim: dict) -> tuple:
    point = near(results.tcp, 0.20)
    is_long_enough = point["longest_run_s"] >= claim.get("run_at_least_s", 0)
    outcome = judge_estimate(claim, point, claim["column"]) if is_long_enough else "not tested"
    return at(point, estimate(point, claim["column"], time)), outcome


def rates_without_loss(results: Results, claim: dict) -> tuple:
    points = [near(results.udp, 0), near(results.tcp, 0)]
    outcomes = [judge_estimate(claim, point, "rate_per_sec") for point in points]
    worst = max(outcomes, key=["reproduced", "in direction", "unclear", "differs"].index)
    return "UDP {}, TCP {}".format(*map(rate_text, points)), worst


def rate_in_proportion(results: Results, claim: dict) -> tuple:
    point = near(results.udp, 0.20)
    furthest = max(abs(p["arrived_share"] - (1 - p["configured_loss"])) for p in results.udp)
    outcome = judge_estimate(claim, point, "rate_per_sec")
    if outcome == "reproduced" and furthest > claim["off_the_line_at_most"]:
        outcome = "in direction"
    return f"{at(point, rate_text(point))}; share arrived at most {furthest * 100:.1f} points from 1 - loss", outcome


def flat_until(results: Results, claim: dict) -> tuple:
    point, without = near(results.tcp, 0.10), near(results.tcp, 0)["rate_per_sec"]
    flat = max(p["configured_loss"] for p in results.tcp if p["rate_per_sec"] >= 0.95 * without)
    is_high = point["rate_per_sec"] >= claim["in_direction_above_share"] * without
    here = f"{at(point, rate_text(point))}; within 5 % of the rate without loss up to {percent(flat)}"
    return here, judge_estimate(claim, point, "rate_per_sec", is_high)


def rates_cross(results: Results, claim: dict) -> tuple:
    found = results.of_runs["rates_cross"]
    near_it = [p for p in results.udp if abs(p["configured_loss"] - found["at"]) < 0.0101]
    rate = f", near {near(near_it, found['at'])['rate_per_sec']:.0f} messages/s" if near_it else ""
    here = f"falls below at {crossing_text(found, results.tcp)}{rate}"
    return here, judge(claim, found["at"], found.get("low"), found.get("high"))


def rate(results: Results, claim: dict) -> tuple:
    point = near(results.tcp, 0.20)
    return at(point, rate_text(point)), judge_estimate(claim, point, "rate_per_sec")


# What must hold for the figures to be worth believing.


def measured_loss(results: Results, _check: dict) -> tuple:
    measured = [p for p in results.points if p["measured_loss"] is not None]
    inside = [
        p for p in measured if p["measured_loss_low"] - 1e-9 <= p["configured_loss"] <= p["measured_loss_high"] + 1e-9
    ]
    packets = int(sum(p["measured_loss_packets"] for p in measured))
    return f"{len(inside)} of {len(measured)} points, {packets:,} packets", len(inside) == len(measured)


def local_drops(results: Results, _check: dict) -> tuple:
    by_loss = {}
    for point in results.points:
        loss = point["configured_loss"]
        by_loss[loss] = max(by_loss.get(loss, 0), point["retransmit_failures"] or 0)
    failures, drops = int(sum(by_loss.values())), results.of_runs["receive_buffer_drops"]
    return f"{failures:,} failed retransmissions, {drops:,} dropped in the buffer", failures + drops == 0


def whole_runs(results: Results, _check: dict) -> tuple:
    runs, failed = (int(sum(p[column] for p in results.points)) for column in ("runs", "failed_runs"))
    return f"{runs - failed} of {runs} runs", failed == 0


def highest_mean(results: Results, check: dict) -> tuple:
    highest = max(p["mean_ns"] for p in results.udp)
    return f"at most {time(highest)}", highest < check["below_ns"]


def arrived(results: Results, check: dict) -> tuple:
    furthest = max(abs(p["arrived_share"] / (1 - p["configured_loss"]) - 1) for p in results.udp)
    return f"at most {furthest * 100:.2f} % off", furthest <= check["off_at_most"]


def tcp_means(results: Results, check: dict) -> tuple:
    points = [near(results.tcp, loss) for loss in (0.14, 0.20)]
    here = " and ".join(estimate(point, "mean_ns", time) for point in points)
    return here, all(point["mean_ns"] > above for point, above in zip(points, check["above_ns"]))


def order(results: Results, _check: dict) -> tuple:
    found = results.of_runs["rates_cross"]
    return f"the rates cross at {crossing_text(found, results.tcp)}", math.isfinite(found["at"])


def table(results: Results, entries: list, head: str) -> str:
    lines = [head, "|---|---|---|---|"]
    for entry in entries:
        try:
            here, outcome = globals()[entry["measure"]](results, entry)
        except (KeyError, TypeError, ValueError, IndexError):
            # Nothing was run at the losses that it is about.
            here, outcome = "", "not tested"
        if isinstance(outcome, bool):
            outcome = "holds" if outcome else "does not hold"
        lines.append(f"| {entry['id']} | {entry['claim']} | {here} | {outcome} |")
    return "\n".join(lines) + "\n"


def replaced(page: str, head: str, text: str) -> str:
    """The page with another table below this head."""
    begin = page.index(head)
    return page[:begin] + text + page[page.index("\n\n", begin) + 1 :]


def main(argument: str) -> None:
    claims = json.loads((HERE / "claims.json").read_text(encoding="utf-8"))
    is_published = argument in ("--write", "--check")
    results = Results(HERE if is_published else Path(argument))
    tables = {head: table(results, claims[section], head) for section, head in SECTIONS.items()}
    if not is_published:
        print("\n".join(tables.values()), end="")
        return

    before = page = PAGE.read_text(encoding="utf-8")
    for head, text in tables.items():
        page = replaced(page, head, text)
    if argument == "--write":
        PAGE.write_text(page, encoding="utf-8")
    elif page != before:
        sys.exit(f"{PAGE.name} has other verdicts than its data: docs/udp-vs-tcp/verdicts.py --write")


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
