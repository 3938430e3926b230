#!/usr/bin/env python3
"""What a datagram costs from one Weir to another: by the repaired link and by plain UDP, in turns.

    cargo build --release -p weir && python3 bench/link.py [--rounds 5] [--seconds 5]

Both ends are processes of `weir relay` on this host, whose processor time is read from /proc; the load is `weir gen`, on whatever the
scheduler gives it. Printed are the median and the lowest and highest of the rounds, and the median of the ratios within a round.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

# The link has a thread of its own beside that of the listener, as a target of the threaded schedule has.
KINDS = ["udp", "udp, threaded", "link"]

TICK = os.sysconf("SC_CLK_TCK")


class Relay:
    """A `weir relay` with one listener and one target."""

    def __init__(self, weir, listen, to, *more):
        command = [weir, "relay", "--progress", "off", "--json", "--admin", "127.0.0.1:0", "--listen", listen, "--to", to, *more]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.listen = self.admin = None
        for line in self.process.stderr:
            if found := re.search(r"  listening on (?:udp://|weir://)?([^\s;]+)", line):
                self.listen = found[1]
            if found := re.search(r"ledger and metrics on (http://[^\s;]+)", line):
                self.admin = found[1].rstrip("/.,")
                return
        sys.exit(f"{command} ended")

    def cpu(self):
        """Seconds of processor time so far."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def ledger(self):
        request = urllib.request.Request(self.admin + "/ledger", headers={"Accept": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def delivered(self):
        """What its target has, and what is on the way there."""
        hops = [hop for hop in self.ledger()["hops"] if hop["hop"] == "target"]
        return sum(int(hop["delivered"]["count"]) for hop in hops), sum(int(hop["in_flight"]["count"]) for hop in hops)

    def stop(self):
        self.process.terminate()
        self.process.stderr.read()
        self.process.wait()


def one(weir, key, kind, rate, size, seconds):
    """Microseconds of processor time a datagram, at both ends together, and the share that arrived."""
    buffer = "receive_buffer=64MiB"
    if kind == "link":
        far = Relay(weir, f"weir://127.0.0.1:0?name=in&{buffer}&keys={key}", "null:")
        to = f"weir://{far.listen}?name=far&bandwidth=20Gbit/s&window=1048576&key={key}"
    else:
        far = Relay(weir, f"127.0.0.1:0?name=in&{buffer}", "null:")
        to = f"udp://{far.listen}?name=far"
    near = Relay(weir, f"127.0.0.1:0?name=in&{buffer}&ring_size=256MiB", to,
                 "--schedule", "threaded" if kind == "udp, threaded" else "inline")
    time.sleep(0.5)
    before = near.cpu() + far.cpu()
    gen = subprocess.run(
        [weir, "gen", "--to", near.listen, "--rate", str(rate), "--duration", f"{seconds}s", "--size", str(size), "--json"],
        capture_output=True, text=True)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and near.delivered()[1] > 0:
        time.sleep(0.05)
    sent = near.delivered()[0]
    got = far.delivered()[0]
    cpu = near.cpu() + far.cpu() - before
    near.stop()
    far.stop()
    if gen.returncode != 0 or got == 0:
        sys.exit(f"{kind} at {rate}/s of {size} bytes: {gen.stderr}")
    return cpu / got * 1e6, got / (rate * seconds), sent - got


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rates", default="20000,200000")
    parser.add_argument("--sizes", default="200,1000")
    args = parser.parse_args()
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    weir = os.environ.get("WEIR", f"{target}/release/weir")
    with tempfile.TemporaryDirectory() as folder:
        key = f"{folder}/hop.key"
        with open(key, "w") as file:
            subprocess.run([weir, "hop", "key", "bench"], stdout=file, check=True)
        for rate in map(int, args.rates.split(",")):
            for size in map(int, args.sizes.split(",")):
                costs = {kind: [] for kind in KINDS}
                arrived = {kind: [] for kind in KINDS}
                for turn in range(args.rounds):
                    for kind in KINDS if turn % 2 == 0 else reversed(KINDS):
                        cost, share, _ = one(weir, key, kind, rate, size, args.seconds)
                        costs[kind].append(cost)
                        arrived[kind].append(share)
                words = [f"{kind} {statistics.median(all_):.2f} us ({min(all_):.2f} to {max(all_):.2f}), "
                         f"{100 * statistics.median(arrived[kind]):.2f} % arrived" for kind, all_ in costs.items()]
                for kind in KINDS[:-1]:
                    ratios = [link / udp for udp, link in zip(costs[kind], costs["link"])]
                    words.append(f"link over {kind} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
                print(f"{rate}/s of {size} bytes: {'; '.join(words)}", flush=True)


main()
