"""Holds TCP connections on loopback until standard input ends.

usage: make_sockets.py CONNECTIONS. A third each of IPv4, of IPv6, and of IPv4 to a listener for both; both ends are here. Some of
the first ones are in other states than the rest. Prints `ready` when all are there.
"""
import os, socket, sys

CONNECTIONS = int(sys.argv[1])
# Both ends of a connection take a descriptor, and a process may have 20,000 of them, or 1,024.
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
PER_PROCESS = min(9_000, (hard - 100) // 2)


def listeners():
    v4 = socket.create_server(("127.0.0.1", 0), backlog=1024)
    v6 = socket.create_server(("::1", 0), family=socket.AF_INET6, backlog=1024)
    both = socket.create_server(("::", 0), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
    return v4, v6, both


def connect(kind, made):
    listener = made[kind]
    port = listener.getsockname()[1]
    near = socket.socket(socket.AF_INET6 if kind == 1 else socket.AF_INET)
    near.connect(("::1" if kind == 1 else "127.0.0.1", port))
    far, _ = listener.accept()
    return near, far


def vary(number, near, far):
    """Data under way, read and unread; one side closed; both closed; options."""
    what = number % 12
    if what == 1:
        near.sendall(b"x" * 10_000)
    elif what == 2:
        near.sendall(b"x" * 5_000)
        far.recv(2_000)
        far.sendall(b"y" * 100)
    elif what == 3:
        near.shutdown(socket.SHUT_WR)
    elif what == 4:
        near.close()
        far.close()
    elif what == 5:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
    elif what == 6:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        far.settimeout(10)
        # Until the buffers are full: the window closes.
        near.setblocking(False)
        try:
            while True:
                near.send(b"z" * 65_536)
        except BlockingIOError:
            pass
    elif what == 7:
        near.setsockopt(socket.SOL_SOCKET, 47, 1_000_000)  # SO_MAX_PACING_RATE


def hold(count, varied):
    made, held = listeners(), []
    for number in range(count):
        near, far = connect(number % 3, made)
        if number < varied:
            vary(number // 3, near, far)
        held.append((near, far))
    if varied:
        # One that waits to be accepted, and a listener for IPv6 alone.
        waiting = socket.create_connection(made[0].getsockname())
        only = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=False)
        held += [waiting, only]
    return made, held


children = []
left, varied = CONNECTIONS, min(CONNECTIONS, 240)
while left > 0:
    count = min(left, PER_PROCESS)
    done_read, done_write = os.pipe()
    end_read, end_write = os.pipe()
    if os.fork() == 0:
        os.close(end_write)
        for _, other_end in children:
            os.close(other_end)
        held = hold(count, varied)
        os.write(done_write, b"1")
        os.read(end_read, 1)
        os._exit(0)
    os.close(end_read)
    children.append((done_read, end_write))
    left, varied = left - count, 0
for done, _ in children:
    assert os.read(done, 1) == b"1"
print("ready", flush=True)
sys.stdin.read()
