"""Makes the capture protocols-6.18.pcap in this folder. Run as root, in a network namespace of its own:

    unshare --net python3 protocols.py .

A socket of each kind, and every request that `ss --all` has, sent as it sends them: one sequence number, and no port. As pcap
of a netlink monitor, which the kernel that it was made on does not have: each datagram is wrapped as a monitor would.
"""
import os
import socket
import struct
import subprocess
import sys
import time

V4, V6, IPPROTO_MPTCP, SEQUENCE = socket.AF_INET, socket.AF_INET6, 262, 123456
out = open(f"{sys.argv[1]}/protocols-6.18.pcap", "wb")
out.write(struct.pack("=IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 253))


def packet(datagram):
    """LINKTYPE_NETLINK: PACKET_OUTGOING, ARPHRD_NETLINK, NETLINK_SOCK_DIAG."""
    cooked = struct.pack("!HH10xH", 4, 824, 4) + datagram
    now = time.time_ns()
    out.write(struct.pack("=IIII", now // 10**9, now % 10**9, len(cooked), len(cooked)) + cooked)


def ask(body):
    diag = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
    request = struct.pack("=IHHII", 16 + len(body), 20, 0x301, SEQUENCE, 0) + body
    packet(request)
    diag.send(request)
    while True:
        datagram = diag.recv(1 << 16)
        packet(datagram)
        at = 0
        while at < len(datagram):
            length, kind = struct.unpack_from("=IH", datagram, at)
            if kind in (2, 3):
                return
            at += (length + 3) & ~3


def inet(family, protocol, attribute=b""):
    # All attributes, all states.
    ask(struct.pack("=BBBBI48x", family, protocol & 0xFF, 0x7E, 0, 0x3FFF) + attribute)


subprocess.check_call(["ip", "link", "set", "lo", "up"])
kept = []
for family, host in (V4, "127.0.0.1"), (V6, "::1"):
    for kind, protocol in (socket.SOCK_STREAM, 0), (socket.SOCK_STREAM, IPPROTO_MPTCP):
        listener = socket.socket(family, kind, protocol)
        listener.bind((host, 0))
        listener.listen(5)
        client = socket.socket(family, kind, protocol)
        client.connect(listener.getsockname())
        kept += [listener, client, listener.accept()[0]]
    receiver = socket.socket(family, socket.SOCK_DGRAM)
    receiver.bind((host, 0))
    sender = socket.socket(family, socket.SOCK_DGRAM)
    sender.connect(receiver.getsockname())
    kept += [receiver, sender, socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP)]
kept += socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
kept.append(socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM))

ask(struct.pack("=BBHII8x", 16, 255, 0, 0, 0))  # netlink
ask(struct.pack("=BBHIII8x", 1, 0, 0, 0xFFFFFFFF, 0, 0))  # unix
ask(struct.pack("=BBHII8x", 17, 0, 0, 0, 0))  # packet
for family in V4, V6:
    inet(family, socket.IPPROTO_RAW)
    inet(family, socket.IPPROTO_UDP)
    inet(family, socket.IPPROTO_TCP)
    inet(family, IPPROTO_MPTCP, struct.pack("=HHI", 8, 3, IPPROTO_MPTCP))
    inet(family, socket.IPPROTO_SCTP)
ask(struct.pack("=BBHIII8x", 40, 0, 0, 0xFFFFFFFF, 0, 0))  # vsock
