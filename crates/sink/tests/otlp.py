"""Reads bodies of OTLP/HTTP with OpenTelemetry's own package and compares every field with JSON lines of the same rows.

The folder has bodies (*.body) and rows (records.jsonl, totals.jsonl, datagrams.jsonl), in any order.

usage: otlp.py FOLDER
"""
import base64, collections, gzip, json, pathlib, sys

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1 import logs_pb2

# Fields that JSON has in base64 whether they are text or not.
BYTES = {"bbr_tail", "tcp_info_tail", "unknown_attributes"}
# Names of OpenTelemetry for what tells hosts apart.
RESOURCE = {"host": "host.name", "host_id": "host.id"}
EVENTS = {"records": "socket.poll", "totals": "socket.totals", "datagrams": "datagram"}
# The specification's table for syslog: emerg is FATAL, alert ERROR3, …
SEVERITIES = {
    "emerg": logs_pb2.SEVERITY_NUMBER_FATAL, "alert": logs_pb2.SEVERITY_NUMBER_ERROR3, "crit": logs_pb2.SEVERITY_NUMBER_ERROR2,
    "err": logs_pb2.SEVERITY_NUMBER_ERROR, "warning": logs_pb2.SEVERITY_NUMBER_WARN, "notice": logs_pb2.SEVERITY_NUMBER_INFO2,
    "info": logs_pb2.SEVERITY_NUMBER_INFO, "debug": logs_pb2.SEVERITY_NUMBER_DEBUG,
}


def attribute(name, value):
    """A field of a row as an attribute has it: bytes that are text as text, numbers that no signed 64 bits hold as text."""
    if name.endswith("_base64") or name in BYTES:
        name, value = name.removesuffix("_base64"), base64.b64decode(value)
        try:
            return name, value.decode()
        except UnicodeDecodeError:
            return name, value
    if isinstance(value, int) and value >= 1 << 63:
        return name, str(value)
    return name, value


def wanted(kind, row):
    """What a log record of a row has to be."""
    observed, is_close = row.pop("time_unix_ns", 0), row.pop("record_kind", None) == "close"
    sent, tags = row.get("syslog_time_unix_ns", observed), row.pop("tags", {})
    row = dict(attribute(name, value) for name, value in row.items())
    resource = {"service.name": "weir", **tags}
    resource |= {theirs: row.pop(name) for name, theirs in RESOURCE.items() if name in row}
    log = {"resource": resource, "time": sent, "observed": observed, "severity": (0, ""), "attributes": row}

    log["event"] = log["body"] = "socket.close" if kind == "records" and is_close else EVENTS[kind]
    if kind == "datagrams":
        log["body"] = row.get("message", row.get("payload", ""))
        severity = row.get("severity")
        log["severity"] = (SEVERITIES.get(severity, 0), severity if isinstance(severity, str) else "")
    return log


def value_of(any_value):
    kind = any_value.WhichOneof("value")
    assert kind in ("string_value", "bool_value", "int_value", "bytes_value"), any_value
    return getattr(any_value, kind)


def fields_of(attributes):
    found = {pair.key: value_of(pair.value) for pair in attributes}
    assert len(found) == len(attributes), f"a name is there twice: {attributes}"
    return found


def found(body):
    """The log records of a body."""
    request = ExportLogsServiceRequest.FromString(body)
    for of_host in request.resource_logs:
        resource = fields_of(of_host.resource.attributes)
        for of_scope in of_host.scope_logs:
            assert of_scope.scope.name == "weir" and of_scope.scope.version, of_scope.scope
            for log in of_scope.log_records:
                yield {
                    "resource": resource, "time": log.time_unix_nano, "observed": log.observed_time_unix_nano,
                    "severity": (log.severity_number, log.severity_text), "event": log.event_name,
                    "body": value_of(log.body), "attributes": fields_of(log.attributes),
                }


def key(log):
    """Equal for equal ones; True is not 1."""
    return repr(sorted((name, sorted(part.items()) if isinstance(part, dict) else part) for name, part in log.items()))


folder = pathlib.Path(sys.argv[1])
bodies = [gzip.decompress(path.read_bytes()) for path in folder.glob("*.body")]
logs = [log for body in bodies for log in found(body)]
rows = [
    wanted(kind, json.loads(line))
    for kind in EVENTS
    for line in (folder / f"{kind}.jsonl").read_text().split("\n")[:-1]
]
have, want = (collections.Counter(map(key, some)) for some in (logs, rows))
missing, extra = sorted((want - have).elements()), sorted((have - want).elements())
assert not missing and not extra, f"{len(missing)} missing, {len(extra)} others:\n" + "\n".join(missing[:1] + extra[:1])
assert rows and bodies, "nothing to compare"
print(f"{len(logs)} log records of {len(bodies)} bodies are those of {len(rows)} rows")
