"""Holds a connection with TCP MD5 signatures until standard input ends. Prints its port, or `no MD5` on a kernel without."""
import socket, struct, sys

KEY = b"a key that nobody may see"
TCP_MD5SIG = 14


def sign(end, port):
    peer = struct.pack("=HH4s", socket.AF_INET, socket.htons(port), socket.inet_aton("127.0.0.1")).ljust(128, b"\0")
    end.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, peer + struct.pack("=BBHi", 0, 0, len(KEY), 0) + KEY.ljust(80, b"\0"))


listener, near = socket.socket(), socket.socket()
listener.bind(("127.0.0.1", 0))
port = listener.getsockname()[1]
try:
    sign(listener, 0)
    sign(near, port)
except OSError:
    print("no MD5", flush=True)
    sys.exit()
listener.listen()
near.connect(("127.0.0.1", port))
far, _ = listener.accept()
print(port, flush=True)
sys.stdin.read()
