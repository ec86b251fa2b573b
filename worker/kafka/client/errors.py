"""Errors of the Kafka client library, and the remedy for each cause."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafka.errors import KafkaError

if TYPE_CHECKING:
    from worker.counting.ports import Unavailable

BrokerError = KafkaError

START = "start the brokers, or correct kafka.bootstrap_servers and the security settings"
CHECK = "run ldp-worker check: it reports errors of the brokers and topics"
WAIT = "none at first: the worker retries; if the error lasts, "
_COORDINATOR = (
    WAIT
    + "check that the brokers support transactions (run ldp-worker check) and can create their internal topics:"
    " offsets.topic.replication.factor and transaction.state.log.replication.factor must not exceed the number of"
    " brokers"
)
OPEN = (
    WAIT + "end the transaction: kafka-transactions.sh find-hanging lists it. The brokers abort it after its"
    " transaction.timeout.ms"
)
REMEDIES: Mapping[str, str] = {
    "AuthorizationFailed": "grant this user the missing right in the brokers' ACLs: Read on the group and on the"
    " topics of reports and snapshots, Write on the topics of snapshots, rows and dead letters and on the transactional"
    " id, DescribeConfigs for check; for the gateway Write on the intake topic; for the shuffler Read and Delete on the"
    " intake topic and Write on the topic of reports",
    "InvalidTimestamp|The timestamp should be within": "correct the clock of this machine or of the brokers, or set"
    " message.timestamp.type=LogAppendTime on topic {topic}, as ldp-worker create-topics does",
    "UnsupportedVersion|IncompatibleBrokerVersion|UnsupportedForMessageFormat": "use brokers that support"
    " transactions and topic ids, such as Apache Kafka 2.8 or newer: snapshots are published in transactions",
    "ProducerFenced|InvalidProducerEpoch|CoordinatorFenced": WAIT
    + "find the second publisher: another worker of this group took over, or another deployment uses the same"
    " group and snapshots.topic. Give each deployment its own group or topic",
    "InvalidTransactionTimeout": "raise transaction.max.timeout.ms of the brokers",
    "InvalidSessionTimeout": "set kafka.session_timeout_seconds within the limits that ldp-worker check prints",
    "ConcurrentTransactions|transaction is open": OPEN,
    "Failed to update metadata": "run ldp-worker create-topics if topic {topic} is missing, else start the brokers",
    "initializing transactional state": _COORDINATOR,
    "UnknownTopicOrPartition|Unrecognized partition": "run ldp-worker create-topics: it creates topic {topic} if that"
    " is missing",
    "NotEnoughReplicas": "start the brokers that hold replicas of topic {topic}, or lower its min.insync.replicas",
    "MessageSizeTooLarge|RecordListTooLarge": "raise max.message.bytes of topic {topic}; ldp-worker check prints the"
    " required size",
    "no leader|LeaderNotAvailable|NotLeaderForPartition": "start the broker that leads the partition: kafka-topics.sh"
    " --describe --unavailable-partitions names it",
    "KafkaStorage": "check the disks and the logs of the brokers",
    "PolicyViolation": "change the configuration, or the brokers' policy that the error names",
    "UnsupportedCodec|UnsupportedCompressionType": "set snapshots.compression to a codec that the brokers accept on"
    " topic {topic}",
    "ThrottlingQuota|QuotaViolation": "raise this user's quota",
    "OutOfOrderSequence|UnknownProducerId|InvalidProducerIdMapping|InvalidTxnState|TransactionAbort|asked for twice": (
        WAIT + "read the brokers' logs. The worker starts a new producer"
    ),
    "(invalid_scope)": "correct kafka.sasl_oauthbearer_scope",
    "(invalid_client)": "correct kafka.sasl_username and kafka.sasl_password",
    "token endpoint": "start the token endpoint, or correct kafka.sasl_oauthbearer_token_endpoint_url. kafka.ssl_cafile"
    " must name the authority that signed its certificate",
    "invalid_token": "configure the brokers to accept these tokens (audience, issuer and keys), or correct"
    " kafka.sasl_oauthbearer_scope",
    "AuthenticationFailed": "correct kafka.sasl_username and kafka.sasl_password, or kafka.sasl_mechanism",
    "UnsupportedSaslMechanism": "set kafka.sasl_mechanism to a mechanism that the brokers support",
    "IllegalSaslState": "this listener has no login: set kafka.security_protocol to PLAINTEXT or SSL, or correct"
    " the port in kafka.bootstrap_servers",
    "mismatch": "set kafka.bootstrap_servers to the host names in the brokers' certificates",
    "certificate has expired": "renew the brokers' certificates",
    "CERTIFICATE_VERIFY_FAILED": "set kafka.ssl_cafile to the authority that signed the brokers' certificates",
    "ALERT": "the brokers reject this client's certificate, or require one: correct kafka.ssl_certfile and"
    " kafka.ssl_keyfile",
    "Handshake failed": "this listener seems to have no TLS: correct kafka.security_protocol, or the port in"
    " kafka.bootstrap_servers",
    "Invalid frame length": "this listener seems to use TLS, or is not a broker: correct kafka.security_protocol, or"
    " the port in kafka.bootstrap_servers",
    "socket disconnected": "the brokers close the connection, and may require TLS or a login: correct"
    " kafka.security_protocol, or the port in kafka.bootstrap_servers",
    "Coordinator": _COORDINATOR,
}  # Texts in an error -> remedy; the first match applies
SILENT = ("Timeout", "TimedOut", "Connection", "NodeNotReady", "NoBrokers", "NetworkException", "BrokerNot")
"""Substrings of errors which mean that no broker answered."""


def remedy(happened: object, topic: str = "", unknown: str = START) -> str:
    """Returns the remedy for an error; `unknown` if none matches.

    Example:
        >>> remedy("[Error 58] SaslAuthenticationFailedError: Invalid username or password")
        'correct kafka.sasl_username and kafka.sasl_password, or kafka.sasl_mechanism'
    """
    text = str(happened)
    found = next((h for signs, h in REMEDIES.items() if any(s in text for s in signs.split("|"))), unknown)
    return found.format(topic=topic or "that the error names")


def unavailable(error: Exception, operation: str, topic: str = "") -> "Unavailable":
    """Converts an error of the client library to `Unavailable` with a remedy.

    Example:
        >>> from kafka.errors import KafkaTimeoutError
        >>> found = unavailable(KafkaTimeoutError("no answer"), "publishing to", "snapshots")
        >>> str(found)
        "Kafka: publishing to topic 'snapshots': KafkaTimeoutError: no answer"
        >>> found.remedy
        'start the brokers, or correct kafka.bootstrap_servers and the security settings'
    """
    from worker.counting.ports import Unavailable  # this import loads the kernels

    name = type(error).__name__
    text = str(error).partition("] ")[2] if str(error).startswith("[Error ") else str(error)
    happened = text if text.startswith(name) else f"{name}: {text}"
    where = f"{operation} topic {topic!r}" if topic else operation
    silent = any(sign in happened for sign in SILENT)
    return Unavailable(f"Kafka: {where}: {happened}", remedy(happened, topic, START if silent else CHECK))
