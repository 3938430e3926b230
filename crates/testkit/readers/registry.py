"""Confluent's client of a schema registry.

usage: registry.py read REGISTRY TOPIC BROKER, or registry.py make REGISTRY SUBJECT SCHEMA. REGISTRY is a URL, what stands before
/subjects. `read` writes one line of JSON for each value of the topic: `message`, the name of the message in the schema that the
registry has under the value's number, and `row`, its fields.
"""
import json, pathlib, struct, sys, tempfile

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.json_format import MessageToDict
from grpc_tools import protoc
from topic import messages


def compiled(text):
    """The module of a schema that a registry has."""
    folder = tempfile.mkdtemp()
    pathlib.Path(folder, "of_registry.proto").write_text(text)
    assert protoc.main(["protoc", f"-I{folder}", f"--python_out={folder}", "of_registry.proto"]) == 0
    sys.path.insert(0, folder)
    import of_registry_pb2

    return of_registry_pb2


def varint(data):
    value = shift = 0
    for at, byte in enumerate(data):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), data[at + 1 :]


def read(registry, topic, broker):
    client = SchemaRegistryClient({"url": registry})
    module, readers = None, {}
    for message in messages(broker, topic):
        value = message.value()
        magic, number = struct.unpack(">bI", value[:5])
        assert magic == 0, value[:5]
        module = module or compiled(client.get_schema(number).schema_str)
        steps, rest = varint(value[5:])
        index = varint(rest)[0] if steps else 0
        assert steps in (0, 1), steps

        name = list(module.DESCRIPTOR.message_types_by_name)[index]
        if name not in readers:
            # Without the client: it wants the schema as a compiled descriptor, which Apicurio does not give.
            readers[name] = ProtobufDeserializer(getattr(module, name), {"use.deprecated.format": False})
        row = readers[name](value, SerializationContext(topic, MessageField.VALUE))
        print(json.dumps({"message": name, "row": MessageToDict(row, preserving_proto_field_name=True)}))


def make(registry, subject, schema):
    client = SchemaRegistryClient({"url": registry})
    client.register_schema(subject, Schema(schema, "PROTOBUF"))
    client.set_compatibility(subject_name=subject, level="BACKWARD")


what, *arguments = sys.argv[1:]
globals()[what](*arguments)
