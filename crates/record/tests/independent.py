"""Reads what the encoders wrote with implementations that are not ours, and compares everything with everything.

usage: independent.py FOLDER REPOSITORY. The folder holds one file per encoding, all of the same records. In the end it holds
again.pb too: the records as Python's protobuf writes them, for our decoder to read.
"""
import base64, csv, io, ipaddress, json, pathlib, struct, sys

import grpc_tools.protoc, jsonschema, msgpack
from google.protobuf import json_format, text_format
from google.protobuf.internal.decoder import _DecodeVarint
from google.protobuf.internal.encoder import _VarintBytes
from google.protobuf.unknown_fields import UnknownFieldSet

folder, repository = map(pathlib.Path, sys.argv[1:])
status = grpc_tools.protoc.main(["protoc", f"-I{repository}/proto", f"--python_out={folder}", "weir.proto"])
assert status == 0, status
sys.path.insert(0, str(folder))
import weir_pb2


def delimited(data, message):
    at = 0
    while at < len(data):
        length, at = _DecodeVarint(data, at)
        yield message.FromString(data[at : at + length])
        at += length


def is_address(name):
    return name.endswith("_address") or name in ("agent", "next_hop")


def address(value):
    parsed = ipaddress.IPv6Address(value)
    return parsed.ipv4_mapped or parsed


def not_text(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return data
    assert False, data


def canonical_address(text):
    """An address from text, which has IPv4 ones as such whatever socket has them."""
    parsed = ipaddress.ip_address(text)
    assert not getattr(parsed, "ipv4_mapped", None), text
    return parsed


def plain(message):
    """The message as the plain encodings should have it: words, addresses, bytes."""
    out = {}
    for field, value in message.ListFields():
        if field.message_type and field.message_type.GetOptions().map_entry:
            out[field.name] = dict(value)
        elif field.message_type:
            out[field.name] = plain(value)
        elif field.enum_type:
            known = field.enum_type.values_by_number.get(value)
            out[field.name] = known.name if known else value
        elif is_address(field.name):
            out[field.name] = address(value)
        else:
            out[field.name] = value
    return out


# Fields that are text if they can be, and else base64 under another name.
DATA = ("payload", "structured_data", "message")


def from_json(row, descriptor=weir_pb2.SocketRecord.DESCRIPTOR.fields_by_name):
    """A row of JSON with addresses and bytes as what they stand for."""
    out = {}
    for name, value in row.items():
        if name.removesuffix("_base64") in DATA:
            value = value.encode() if name in DATA else not_text(base64.b64decode(value, validate=True))
            name = name.removesuffix("_base64")
            assert name not in out, name
        elif is_address(name):
            value = canonical_address(value)
        elif name == "totals":
            pass
        elif descriptor[name].type == descriptor[name].TYPE_BYTES:
            value = base64.b64decode(value, validate=True)
        out[name] = value
    return out


def cell(value):
    """What a table has for a value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def same(name, found, wanted):
    assert len(found) == len(wanted) > 0, (name, len(found), len(wanted))
    for number, (a, b) in enumerate(zip(found, wanted)):
        assert a == b, f"{name}, record {number}:\n{a}\n{b}"
    print(f"{name}: {len(found)} records are the same")


def table(name, rows, wanted):
    header, rows = rows[0], rows[1:]
    fields = [field.name for field in weir_pb2.SocketRecord.DESCRIPTOR.fields if field.name != "totals"]
    assert sorted(header) == sorted(fields), set(header) ^ set(fields)
    found = []
    for row in rows:
        assert len(row) == len(header), (name, len(row), len(header))
        cells = {key: value for key, value in zip(header, row) if value}
        if "tags" in cells:
            cells["tags"] = json.dumps(json.loads(cells["tags"]), sort_keys=True)
        for key in ("src_address", "dst_address"):
            if key in cells:
                cells[key] = str(canonical_address(cells[key]))
        found.append(cells)
    cells = [{key: cell(value) for key, value in row.items() if cell(value)} for row in wanted]
    same(name, found, cells)


def unescaped(text):
    marks = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
    parts = iter(text)
    return "".join(marks[next(parts)] if part == "\\" else part for part in parts)


def read(encoding, rows="records"):
    return (folder / f"{rows}.{encoding}").read_bytes()


def text(encoding, rows="records"):
    return read(encoding, rows).decode("utf-8")


messages = list(delimited(read("protobuf"), weir_pb2.SocketRecord))
assert not any(len(UnknownFieldSet(message)) for message in messages), "the schema lacks a field"
rows = [plain(message) for message in messages]
sockets = [row for row in rows if row.get("record_kind") != "totals" or "totals" not in row]
assert len(sockets) < len(rows)

lines = [json.loads(line) for line in text("jsonl").removesuffix("\n").split("\n")]
same("jsonl", [from_json(line) for line in lines], rows)
same("json", json.loads(text("json")), lines)
assert text("json").startswith("[\n") and text("json").endswith("\n]\n")

schema = json.loads((repository / "docs/record.schema.json").read_text())
schema["additionalProperties"] = schema["$defs"]["PollTotals"]["additionalProperties"] = False
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker(["ipv4", "ipv6"]))
for line in lines:
    validator.validate(line)
for wrong in ({"rtt_us": -1}, {"rtt": 1}, {"src_address": "x"}, {"state": "open"}):
    assert not validator.is_valid(wrong), wrong

packed = list(msgpack.Unpacker(io.BytesIO(read("msgpack")), raw=False))
for row in packed:
    for name in ("src_address", "dst_address"):
        if name in row:
            row[name] = canonical_address(row[name])
same("msgpack", packed, rows)

same("prototext", list(text_format.Parse(text("prototext"), weir_pb2.SocketRecords()).record), messages)
protojson = text("protojson").removesuffix("\n").split("\n")
same("protojson", [json_format.Parse(line, weir_pb2.SocketRecord()) for line in protojson], messages)
by_python = [json_format.MessageToDict(message) for message in messages]
same("protojson as Python writes it", [json.loads(line) for line in protojson], by_python)

csv.field_size_limit(1 << 20)
table("csv", list(csv.reader(io.StringIO(text("csv"), newline=""), strict=True)), sockets)
tsv = [[unescaped(part) for part in line.split("\t")] for line in text("tsv").removesuffix("\n").split("\n")]
table("tsv", tsv, sockets)

datagrams, data = [], read("datagrams")
while data:
    (length,) = struct.unpack_from("<I", data)
    datagrams.append(weir_pb2.Datagram.FromString(data[4 : 4 + length]))
    data = data[4 + length :]
counts = [len(datagram.record) for datagram in datagrams]
assert [datagram.sequence for datagram in datagrams] == list(range(len(datagrams)))
assert [datagram.first_record for datagram in datagrams] == [sum(counts[:at]) for at in range(len(counts))]
assert {datagram.stream_id for datagram in datagrams} == {0xFFFF_FFFF_0000_0001}
assert datagrams[-1].totals.records_sent == sum(counts) and datagrams[-1].HasField("totals")
known = {message.SerializeToString(deterministic=True) for message in messages}
for record in (record for datagram in datagrams for record in datagram.record):
    assert record.SerializeToString(deterministic=True) in known, record
# The schema for stores is the same on the wire, and keeps numbers without a word.
status = grpc_tools.protoc.main(["protoc", f"-I{repository}/proto", f"--python_out={folder}", "weir_store.proto"])
assert status == 0, status
import weir_store_pb2

assert weir_pb2.SocketRecord.DESCRIPTOR.full_name == "weir.v1.SocketRecord"
stored = list(delimited(read("protobuf"), weir_store_pb2.SocketRecord))
assert not any(len(UnknownFieldSet(message)) for message in stored), "the schema for stores lacks a field"
same("store", [m.SerializeToString(deterministic=True) for m in stored], [m.SerializeToString(deterministic=True) for m in messages])
assert not any(field.enum_type for field in weir_store_pb2.SocketRecord.DESCRIPTOR.fields)
print(f"datagrams: {len(datagrams)} with {sum(counts)} records")

# Rows of other kinds: their files, the message, the field of protobuf text, the schema of JSON.
KINDS = (
    ("received", "DatagramRecord", "datagram", "datagram"),
    ("flows", "FlowRecord", "flow", "flow"),
    ("counters", "CounterRecord", "counters", "counters"),
    ("flow_totals", "FlowTotals", "flow_totals", "flow_totals"),
)
for stem, message, field, schema_name in KINDS:
    of_programs, of_stores = getattr(weir_pb2, message), getattr(weir_store_pb2, message)
    descriptor = of_programs.DESCRIPTOR.fields_by_name
    received = list(delimited(read("protobuf", stem), of_programs))
    assert not any(len(UnknownFieldSet(message)) for message in received), "the schema lacks a field"
    rows = [plain(message) for message in received]
    lines = [json.loads(line) for line in text("jsonl", stem).removesuffix("\n").split("\n")]
    same(f"{stem}, jsonl", [from_json(line, descriptor) for line in lines], rows)
    same(f"{stem}, json", json.loads(text("json", stem)), lines)
    schema = json.loads((repository / f"docs/{schema_name}.schema.json").read_text())
    schema["additionalProperties"] = False
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker(["ipv4", "ipv6"]))
    for line in lines:
        validator.validate(line)
    assert not validator.is_valid({"host": 1})
    packed = list(msgpack.Unpacker(io.BytesIO(read("msgpack", stem)), raw=False))
    for row in packed:
        for name in DATA:
            if name in row:
                row[name] = row[name].encode() if isinstance(row[name], str) else not_text(row[name])
        for name in filter(is_address, row):
            row[name] = canonical_address(row[name])
    same(f"{stem}, msgpack", packed, rows)
    same(f"{stem}, prototext", list(getattr(text_format.Parse(text("prototext", stem), weir_pb2.SocketRecords()), field)), received)
    protojson = text("protojson", stem).removesuffix("\n").split("\n")
    same(f"{stem}, protojson", [json_format.Parse(line, of_programs()) for line in protojson], received)
    tsv = [[unescaped(part) for part in line.split("\t")] for line in text("tsv", stem).removesuffix("\n").split("\n")]
    for name, (header, *cells) in ("csv", csv.reader(io.StringIO(text("csv", stem), newline=""), strict=True)), ("tsv", tsv):
        assert sorted(header) == sorted([*descriptor, *(f"{name}_base64" for name in DATA if name in descriptor)]), header
        # An empty place is an absent field or an empty text.
        wanted = [{key: cell(value) for key, value in line.items() if value != "" and value != {}} for line in lines]
        found = [{key: value for key, value in zip(header, row, strict=True) if value} for row in cells]
        for row in found:
            for pairs in {"tags", "key"} & row.keys():
                row[pairs] = json.dumps(json.loads(row[pairs]), sort_keys=True)
        same(f"{stem}, {name}", found, wanted)
    stored = list(delimited(read("protobuf", stem), of_stores))
    assert not any(len(UnknownFieldSet(message)) for message in stored), "the schema for stores lacks a field"

with open(folder / "again.pb", "wb") as again:
    for message in messages:
        data = message.SerializeToString()
        again.write(_VarintBytes(len(data)) + data)
