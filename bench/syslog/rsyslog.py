"""rsyslog.py ROOT LINES NAME COUNT: instructions a message of rsyslogd's parser.

Starts the rsyslogd unpacked at ROOT under callgrind, sends it the line NAME of the file LINES COUNT times over TCP, and divides what was spent
in ParseMsg (parser.c), from the priority to the last of the parsers rfc5424 and rfc3164. The program has no names of its functions: this one
is known by its address in Debian's 8.2302.0-1+deb12u2 for amd64.
"""
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

PARSE_MSG = "0x000000000003ed80"
root, lines, name, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
line = dict(row.rstrip("\n").split("\t", 1) for row in open(lines))[name].encode()
lib = root + "/usr/lib/x86_64-linux-gnu"
folder = tempfile.mkdtemp()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
with open(folder + "/conf", "w") as conf:
    conf.write(
        f'global(workDirectory="{folder}" net.enableDNS="off" processInternalMessages="off")\n'
        'module(load="imptcp" threads="1")\nruleset(name="r") { stop }\n'
        'action(type="omfile" file="/dev/null")\n'
        f'input(type="imptcp" address="127.0.0.1" port="{port}" ruleset="r")\n'
    )
daemon = subprocess.Popen(
    ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", root + "/usr/sbin/rsyslogd",
     "-n", "-f", folder + "/conf", "-i", folder + "/pid", "-M", lib + "/rsyslog"],
    env=dict(os.environ, LD_LIBRARY_PATH=lib), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
for _ in range(600):
    try:
        peer = socket.create_connection(("127.0.0.1", port))
        break
    except OSError:
        time.sleep(0.1)
peer.sendall((line + b"\n") * count)
peer.shutdown(socket.SHUT_WR)
peer.settimeout(60)
peer.recv(1)
time.sleep(1.5)  # Its queue.
daemon.terminate()
daemon.wait()
report = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", folder + "/out"],
                        capture_output=True, text=True).stdout
spent = next(row for row in report.splitlines() if PARSE_MSG in row)
print(round(int(re.sub(r"[ ,]", "", spent.split("(")[0])) / count))
