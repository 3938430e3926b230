"""The header, with an extension behind the addresses, that the package proxy-protocol writes, in hexadecimal."""
import socket
from ipaddress import IPv4Address

from proxyprotocol.result import ProxyResultIPv4
from proxyprotocol.tlv import ProxyProtocolTLV
from proxyprotocol.v2 import ProxyProtocolV2

source, dest = (IPv4Address("10.1.2.3"), 40000), (IPv4Address("10.77.0.1"), 514)
extension = ProxyProtocolTLV(authority="name")
result = ProxyResultIPv4(source, dest, protocol=socket.SOCK_DGRAM, tlv=extension)
print(ProxyProtocolV2().pack(result).hex())
