"""What the package proxy-protocol makes of the header in front of a datagram, which the argument is in hexadecimal."""
import sys

from proxyprotocol.v2 import ProxyProtocolV2

datagram = bytes.fromhex(sys.argv[1])
header_bytes = 16 + int.from_bytes(datagram[14:16], "big")
result = ProxyProtocolV2().unpack(datagram[:header_bytes])
protocol = result.protocol.name if result.protocol else "none"
print(protocol, *result.source, *result.dest, datagram[header_bytes:].decode())
