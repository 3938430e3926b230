"""Reading a topic of Kafka from its beginning to its end."""
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition


def messages(broker, topic):
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "readback", "enable.partition.eof": True, "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    unread = set(partitions)
    while unread:
        for message in consumer.consume(10_000, 0.2):
            if not message.error():
                yield message
            elif message.error().code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise KafkaException(message.error())
    consumer.close()
