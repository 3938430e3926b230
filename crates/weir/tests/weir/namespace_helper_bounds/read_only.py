"""What a socket of another namespace can do in the hands of a user without privilege.

usage: passed HELPER-PATH NAMESPACE UID   as that user, with a socket that the helper has opened in the namespace
       events HELPER-PATH NAMESPACE UID   the same with the socket for close events
       opened                             as this user, with a socket of its own in this namespace

Prints a line for each thing that is tried: its name, and `ok` or the name of the error. Reads `SPORT DPORT COOKIE` of
an established connection on loopback from standard input, which `destroy` is tried on last.
"""
import errno, os, socket, struct, sys

NETLINK_SOCK_DIAG, SOCK_DESTROY = 4, 21
SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, SO_RCVBUFFORCE, SO_MARK = 270, 8, 33, 36
NLM_F_REQUEST, NLM_F_ACK, NLMSG_ERROR = 1, 4, 2
RTM = {"newlink": 16, "dellink": 17, "newaddr": 20, "newroute": 24, "newnsid": 88}


def ask(helper, request):
    helper.send(request)
    answer, passed, _, _ = socket.recv_fds(helper, 32768, 1)
    return answer, passed


def place_of(helper, name):
    """The namespace's place in the helper's list: device, inode, process, length of the name, name."""
    answer, _ = ask(helper, b"\x01")
    count, place = struct.unpack_from("=I", answer, 13)[0], 0
    while place < count:
        answer, _ = ask(helper, struct.pack("=BI", 2, place))
        at = 1
        while at < len(answer):
            size = answer[at + 20]
            if answer[at + 21:at + 21 + size].decode() == name:
                return place
            at, place = at + 21 + size, place + 1
    sys.exit(f"no {name}")


def passed_socket(what, path, name, uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    helper = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    helper.connect(path)
    request = struct.pack("=BI", 3, place_of(helper, name)) if what == "passed" else struct.pack("=BI", 5, 65536)
    answer, fds = ask(helper, request)
    if not fds:
        sys.exit(f"the helper gave none: {answer}")
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG, fileno=fds[0])


def attempt(name, f):
    try:
        code = f() or 0
    except OSError as error:
        code = error.errno
    print(name, "ok" if code == 0 else errno.errorcode[code], flush=True)


def request(sock, kind, body, to=(0, 0)):
    """Sends one message and returns the kernel's error number; without an answer to wait for, 0."""
    header = struct.pack("=IHHII", 16 + len(body), kind, NLM_F_REQUEST | NLM_F_ACK, 7, 0)
    sock.sendto(header + body, to)
    if to != (0, 0):
        return 0
    while True:
        answer = sock.recv(32768)
        length, kind, _, sequence, _ = struct.unpack_from("=IHHII", answer)
        if kind == NLMSG_ERROR and sequence == 7:
            return -struct.unpack_from("=i", answer, 16)[0]


def connection():
    """`struct inet_diag_req_v2` of the connection: loopback, both ports, the cookie."""
    sport, dport, cookie = map(int, sys.stdin.read().split())
    loopback = socket.inet_aton("127.0.0.1") + bytes(12)
    ports = struct.pack(">HH", sport, dport)
    ident = ports + loopback + loopback + struct.pack("=III", 0, cookie & 0xFFFFFFFF, cookie >> 32)
    return struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ident


destroyed = connection()
sock = passed_socket(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])) if sys.argv[1] != "opened" \
    else socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
sock.settimeout(20)
link = struct.pack("=BxHiII", 0, 0, 1, 0, 1)
for name, kind in RTM.items():
    attempt(name, lambda: request(sock, kind, link))
attempt("multicast", lambda: request(sock, 0, b"", (0, 1)))
attempt("unicast", lambda: request(sock, 0, b"", (os.getppid(), 0)))
attempt("all_namespaces", lambda: sock.setsockopt(SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, 1))
attempt("buffer_force", lambda: sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 20))
attempt("mark", lambda: sock.setsockopt(socket.SOL_SOCKET, SO_MARK, 7))
attempt("destroy", lambda: request(sock, SOCK_DESTROY, destroyed))
