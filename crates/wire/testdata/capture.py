"""Makes the captures in this folder. Run as root, in a network namespace of its own:

    unshare --net python3 capture.py .
"""
import socket
import struct
import subprocess
import sys
import time

SO_MARK, TCP_CONGESTION, TCP_MD5SIG, IPV6_TCLASS, IPPROTO_MPTCP = 36, 13, 14, 67, 262
V4, V6 = socket.AF_INET, socket.AF_INET6
out = sys.argv[1]
kept = []


def ip(*words):
    subprocess.check_call(["ip", *words])


def connected(family, host, congestion=None, dual_stack=False, protocol=0, tos=None):
    """A listener, the end that connects and the end that is accepted."""
    listener = socket.socket(family, socket.SOCK_STREAM, protocol)
    if dual_stack:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind((host, 0))
    listener.listen(5)
    family, host = (V4, "127.0.0.1") if dual_stack else (family, host)
    client = socket.socket(family, socket.SOCK_STREAM, protocol)
    if congestion:
        client.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, congestion)
    if tos is not None and family == V4:
        client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    if tos is not None and family == V6:
        client.setsockopt(socket.IPPROTO_IPV6, IPV6_TCLASS, tos)
    client.setsockopt(socket.SOL_SOCKET, SO_MARK, 0x77)
    client.connect((host, listener.getsockname()[1]))
    accepted, _ = listener.accept()
    kept.extend([listener, client, accepted])
    return client, accepted


def close(*sockets):
    for each in sockets:
        kept.remove(each)
        each.close()


def netlink(name, request):
    """What the kernel answers, datagram after datagram."""
    diag = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
    diag.send(request)
    answer = b""
    while struct.unpack_from("=H", datagram := diag.recv(1 << 16), 4)[0] != 3:
        answer += datagram
    with open(f"{out}/{name}", "wb") as file:
        file.write(answer + datagram)


def sockets():
    ip("link", "set", "lo", "up")
    ip("link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    ip("addr", "add", "192.0.2.1/24", "dev", "veth0")
    ip("link", "set", "veth0", "up")
    ip("link", "set", "veth1", "up")
    client, _ = connected(V4, "127.0.0.1", b"cubic", tos=0x10)
    client.sendall(b"x" * 100000)
    client, accepted = connected(V6, "::1", b"bbr", tos=0x20)
    client.sendall(b"y" * 3000)
    accepted.recv(3000)
    client, _ = connected(V6, "::", b"reno", dual_stack=True)
    client.sendall(b"z" * 10)
    client, _ = connected(V4, "127.0.0.1", b"reno")
    client.shutdown(socket.SHUT_WR)
    close(*connected(V4, "127.0.0.1"))
    close(*connected(V6, "::1"))
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    unanswered = socket.socket()
    unanswered.setblocking(False)
    unanswered.connect_ex(("192.0.2.99", 80))
    connected(V4, "127.0.0.1", protocol=IPPROTO_MPTCP)
    keyed = socket.socket()
    peer = struct.pack("=HH4s8x", 2, 0, socket.inet_aton("127.0.0.9")).ljust(128, b"\0")
    key = struct.pack("=BBHI", 0, 0, 8, 0) + b"SECRETK!".ljust(80, b"\0")
    keyed.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, peer + key)
    keyed.bind(("127.0.0.1", 0))
    keyed.listen(3)
    kept.extend([bound, unanswered, keyed])
    time.sleep(0.3)


def closes():
    events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
    events.bind((0, 0b101))
    for family, host, count in [(V4, "127.0.0.1", 77), (V6, "::1", 55)]:
        client, accepted = connected(family, host)
        client.sendall(b"q" * count)
        accepted.recv(count)
        close(client, accepted)
    events.settimeout(0.3)
    heard = b""
    try:
        while True:
            heard += events.recv(1 << 16)
    except TimeoutError:
        pass
    with open(f"{out}/destroy-6.18.bin", "wb") as file:
        file.write(heard)


sockets()
subprocess.check_call(["ss", "--tcp", "--all", "--info", "--memory", "-D", f"{out}/ss-6.18.bin"])
# struct inet_diag_req: all attributes but MEMINFO, all states.
body = struct.pack("=BBBB48xII", 2, 0, 0, 0x7E, 0x3FFF, 0)
netlink("both-6.18.bin", struct.pack("=IHHII", 16 + len(body), 18, 0x301, 7, 0) + body)
closes()
