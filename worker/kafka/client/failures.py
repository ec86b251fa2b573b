"""Failures: an error of the client library becomes one that is retried, with its source and its remedy."""

from worker.counting.ports import Unavailable
from worker.kafka.client.errors import CHECK, SILENT, START, remedy


def unavailable(error: Exception, operation: str, topic: str = "") -> Unavailable:
    """Returns an error of the client library as one that is retried, with its source and its remedy.

    Args:
        error: what the library raised.
        operation: what failed, such as "publishing to".
        topic: the topic that the operation was about.

    Example:
        >>> from kafka.errors import KafkaTimeoutError
        >>> found = unavailable(KafkaTimeoutError("no answer"), "publishing to", "snapshots")
        >>> str(found)
        "Kafka: publishing to topic 'snapshots': KafkaTimeoutError: no answer"
        >>> found.remedy
        'start the brokers, or correct kafka.bootstrap_servers and the security settings beside it'
    """
    name = type(error).__name__
    text = str(error).partition("] ")[2] if str(error).startswith("[Error ") else str(error)
    happened = text if text.startswith(name) else f"{name}: {text}"
    where = f"{operation} topic {topic!r}" if topic else operation
    silent = any(sign in happened for sign in SILENT)
    return Unavailable(f"Kafka: {where}: {happened}", remedy(happened, topic, START if silent else CHECK))
