#!/usr/bin/env python3
"""What `weir top` costs: run.py WEIR [SOCKETS]. Prints JSON.

A daemon collects SOCKETS TCP sockets, both ends on loopback, and relays 1,000 datagrams a second. `weir top` runs on a terminal of 200 columns
and 60 rows. Its share is the processor time of its process over SECONDS at one look a second, from /proc. A frame is what it takes beyond that to
draw one more: keys that scroll ask for KEYS frames a second, and every frame ends by hiding the cursor.
"""

import fcntl
import json
import os
import pty
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request

SECONDS = 8
KEYS = 40
ADMIN = "127.0.0.1:29465"
LISTEN = "127.0.0.1:29515"
PAGES = {"overview": b"1", "tcp": b"2", "closes": b"3", "flows": b"4", "sinks": b"5"}
FRAME_END = b"\x1b[?25l"


def cpu_seconds(pid):
    """Of all threads, in nanoseconds and not in ticks: they live as long as the process."""
    threads = os.listdir(f"/proc/{pid}/task")
    return sum(int(open(f"/proc/{pid}/task/{thread}/schedstat").read().split()[0]) for thread in threads) / 1e9


class Top:
    """`weir top` on a terminal of its own."""

    def __init__(self, weir):
        self.terminal, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
        command = [weir, "top", "--admin", ADMIN]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"})
        os.close(slave)
        self.frames = 0
        self.shown = b""
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while True:
            try:
                piece = os.read(self.terminal, 65536)
            except OSError:
                return
            self.frames += piece.count(FRAME_END)
            self.shown = (self.shown + piece)[-200_000:]

    def press(self, keys):
        os.write(self.terminal, keys)

    def measure(self, seconds, keys=b""):
        """Share of a processor in %, and frames, over this time."""
        before, frames, began = cpu_seconds(self.process.pid), self.frames, time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds:
            if keys:
                self.press(keys)
                keys = b"\x1b[A" if keys == b"\x1b[B" else b"\x1b[B"
            time.sleep(1 / KEYS if keys else min(1, seconds - elapsed))
        elapsed = time.monotonic() - began
        cpu = cpu_seconds(self.process.pid) - before
        return {"cpu_percent": 100 * cpu / elapsed, "cpu_s": cpu, "frames": self.frames - frames, "seconds": elapsed}

    def resident_mib(self):
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


def connections(count):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = socket.create_server(("127.0.0.1", 0), backlog=4096)
    to = server.getsockname()
    pairs = []
    for at in range(count // 2):
        one = socket.socket()
        one.bind((f"127.0.{1 + at % 200}.1", 0))
        one.connect(to)
        pairs.append((one, server.accept()[0]))
    for one, other in pairs:
        one.send(b"x" * 200)
        other.recv(200)
    return server, pairs


def get(path):
    with urllib.request.urlopen(f"http://{ADMIN}{path}", timeout=10) as answer:
        return json.load(answer)


def configuration(folder):
    path = os.path.join(folder, "weir.toml")
    with open(path, "w") as file:
        file.write(f'[admin]\nlisten = "{ADMIN}"\n[[listener]]\nname = "in"\nlisten = "{LISTEN}"\n'
                   f'[[listener.target]]\nname = "one"\nto = "null:"\n[[listener.target]]\nname = "two"\nto = "file:{folder}/two.log"\n'
                   '[sockets]\ninterval = "10s"\nnamespaces = "own"\n[[sink]]\nname = "none"\nfrom = ["sockets"]\nto = "null:"\n')
    return path


def main():
    weir, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    held = connections(count)
    report = {"seconds": SECONDS, "pages": {}}
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        children = [subprocess.Popen([weir, "run", "-c", configuration(folder)], **quiet)]
        try:
            time.sleep(3)
            children.append(subprocess.Popen([weir, "gen", "--to", LISTEN, "--rate", "1000", "--duration", "0s"], **quiet))
            report["sockets"] = get("/sockets?sort=-rtt_us&limit=1")["matched"]
            top = Top(weir)
            children.append(top.process)
            for name, key in PAGES.items():
                top.press(key)
                time.sleep(3)
                report["load_average"] = os.getloadavg()
                quiet_run, keyed = top.measure(SECONDS), top.measure(SECONDS, b"\x1b[B")
                base = quiet_run["cpu_s"] * keyed["seconds"] / quiet_run["seconds"]
                frames = keyed["frames"] - quiet_run["frames"]
                frame_ms = 1000 * (keyed["cpu_s"] - base) / max(1, frames)
                report["pages"][name] = {"at_rest": quiet_run, "with_keys": keyed, "frame_ms": frame_ms}
            report["resident_mib"] = top.resident_mib()
            top.press(b"q")
            report["exit_code"] = top.process.wait(10)
        finally:
            for child in children:
                if child.poll() is None:
                    child.terminate()
            for child in children:
                child.wait()
    del held
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
