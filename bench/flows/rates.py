#!/usr/bin/env python3
"""Highest rate of `weir flows` on one processor: rates.py WEIR RATE,RATE,... RUNS SECONDS [OPTION OF weir flows ...]

Prints a JSON line for each run. The generator has processor 0, `weir flows` processor 1, both before all other processes (SCHED_FIFO, which takes
root), so that what else the machine does is not measured.
"""
import json, os, re, signal, subprocess, sys, tempfile, time

weir, rates, runs, seconds = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3]), sys.argv[4]
options = sys.argv[5:]


def one(rate):
    # A pipe that nobody reads holds one table: at the second, `weir flows` would wait.
    output = tempfile.TemporaryFile("w+")
    flows = subprocess.Popen(
        ["chrt", "-f", "10", "taskset", "-c", "1", weir, "flows", "--listen", "127.0.0.1:0", "--json", *options],
        stdout=output, stderr=subprocess.PIPE, text=True)
    start = flows.stderr.readline()
    to = re.search(r"udp://([^,]+)", start).group(1)
    load = subprocess.run(
        ["chrt", "-f", "10", "taskset", "-c", "0", weir, "gen", "sflow", "--to", to, "--rate", rate, "--agents", "100", "--flows", "100", "--duration", f"{seconds}s"],
        capture_output=True, text=True, check=True).stdout
    ticks = open(f"/proc/{flows.pid}/stat").read().rsplit(") ", 1)[1].split()
    peak = re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{flows.pid}/status").read()).group(1)
    flows.send_signal(signal.SIGTERM)
    flows.wait()
    output.seek(0)
    last = json.loads(output.read().strip().rsplit("\n", 1)[-1])
    sent, per_s = (int(n.replace(",", "")) for n in re.findall(r"(?:sent |^)([\d,]+)", load, re.M)[:2])
    counts = last["datagrams"]
    hertz = os.sysconf("SC_CLK_TCK")
    user, system = (int(n) / hertz for n in ticks[11:13])
    return {
        "asked_per_s": int(rate.replace("k", "000")), "sent_per_s": per_s, "sent": sent, "read": counts["read"],
        "dropped_by_kernel": counts["dropped_by_kernel"], "unaccounted": sent - counts["received"] - counts["dropped_by_kernel"],
        "user_us": round(user / max(counts["read"], 1) * 1e6, 3), "system_us": round(system / max(counts["read"], 1) * 1e6, 3),
        "peak_kib": int(peak), "flows_kept": last["flows_kept"], "load_average": os.getloadavg()[0],
    }


for _ in range(runs):
    for rate in rates:
        print(json.dumps(one(rate)), flush=True)
        time.sleep(0.2)
