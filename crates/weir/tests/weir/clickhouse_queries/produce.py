"""Sends the records of files to one topic, the totals between them to another, and the datagrams of `datagrams.pb` to a third, each in
a message of its own, as Weir's sink does; and a message that is not Weir's to the topics of the same names with `-broken` behind them.

usage: produce.py BROKER TABLE=TOPIC,... FILE... The rows of `flows.pb` go to the topic of `flows`, whatever their kind.
"""
import pathlib, sys

from confluent_kafka import Producer

broker, topics, *files = sys.argv[1:]
topics = dict(pair.split("=") for pair in topics.split(","))
TOTALS = 400


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def totals_of(message):
    """What stands in the field of totals, if the message has one."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        if tag & 7 == 2:
            length, at = varint(message, at)
            if tag >> 3 == TOTALS:
                return message[at : at + length]
            at += length
        else:
            at = varint(message, at)[1] if tag & 7 == 0 else at + {1: 8, 5: 4}[tag & 7]


producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "compression.type": "zstd"})
for file in files:
    data, at = pathlib.Path(file).read_bytes(), 0
    while at < len(data):
        length, at = varint(data, at)
        message, at = data[at : at + length], at + length
        totals = totals_of(message)
        table, value = ("sockets", message) if totals is None else ("polls", totals)
        if (stem := pathlib.Path(file).stem) in ("datagrams", "flows"):
            table, value = stem, message
        producer.produce(topics[table], value)
for topic in topics.values():
    producer.produce(f"{topic}-broken", b"no message of Weir's")
assert producer.flush(60) == 0
