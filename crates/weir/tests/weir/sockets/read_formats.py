"""Reads one file per format, each of the same two sockets, and compares what does not move between two looks.

usage: read_formats.py FOLDER PROTO-FOLDER NEAR-PORT FAR-PORT
"""
import base64, csv, ipaddress, json, pathlib, sys

import grpc_tools.protoc, msgpack
from google.protobuf import json_format, text_format
from google.protobuf.internal.decoder import _DecodeVarint

folder, proto = map(pathlib.Path, sys.argv[1:3])
near, far = map(int, sys.argv[3:])
status = grpc_tools.protoc.main(["protoc", f"-I{proto}", f"--python_out={folder}", "weir.proto"])
assert status == 0, status
sys.path.insert(0, str(folder))
import weir_pb2


def address(value):
    parsed = ipaddress.IPv6Address(value)
    return str(parsed.ipv4_mapped or parsed)


def of_message(message):
    return {
        "cookie": message.cookie,
        "src_address": address(message.src_address),
        "dst_address": address(message.dst_address),
        "src_port": message.src_port,
        "dst_port": message.dst_port,
        "rcvbuf_bytes": message.rcvbuf_bytes,
        "snd_mss_bytes": message.snd_mss_bytes,
        "inode": message.inode,
        "boot_id": message.boot_id,
        "congestion_algorithm": message.congestion_algorithm,
        "state": weir_pb2.SocketState.Value.Name(message.state),
    }


NAMES = "cookie src_address dst_address src_port dst_port rcvbuf_bytes snd_mss_bytes inode boot_id congestion_algorithm state".split()


def chosen(mapping):
    return {name: int(mapping[name]) if str(mapping[name]).isdigit() else mapping[name] for name in NAMES}


def delimited(data):
    at = 0
    while at < len(data):
        length, at = _DecodeVarint(data, at)
        yield weir_pb2.SocketRecord.FromString(data[at : at + length])
        at += length


def lines(name):
    return (folder / name).read_text().splitlines()


unpacker = msgpack.Unpacker()
unpacker.feed((folder / "msgpack").read_bytes())
formats = {
    "json": [chosen(record) for record in json.loads((folder / "json").read_text())],
    "jsonl": [chosen(json.loads(line)) for line in lines("jsonl")],
    "csv": [chosen(record) for record in csv.DictReader(lines("csv"))],
    "tsv": [chosen(record) for record in csv.DictReader(lines("tsv"), delimiter="\t", quoting=csv.QUOTE_NONE)],
    "protobuf": [of_message(message) for message in delimited((folder / "protobuf").read_bytes())],
    "prototext": [of_message(m) for m in text_format.Parse((folder / "prototext").read_text(), weir_pb2.SocketRecords()).record],
    "protojson": [of_message(json_format.Parse(line, weir_pb2.SocketRecord())) for line in lines("protojson")],
    "msgpack": [chosen(record) for record in unpacker],
}
expected = sorted(formats["json"], key=lambda record: record["src_port"])
assert sorted((near, far)) == [record["src_port"] for record in expected], expected
assert all(record["src_address"] == "::1" and record["rcvbuf_bytes"] > 0 for record in expected), expected
for name, records in formats.items():
    records.sort(key=lambda record: record["src_port"])
    assert records == expected, (name, records, expected)
print(len(formats), "formats agree")
