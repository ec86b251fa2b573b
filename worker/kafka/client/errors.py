"""Errors of the Kafka client library, and the remedy for each cause."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafka.errors import KafkaError

if TYPE_CHECKING:
    from worker.counting.ports import Unavailable

BrokerError = KafkaError

START = "start the brokers, or correct kafka.bootstrap_servers and the security settings beside it"
CHECK = "run ldp-worker check: it names what is wrong with the brokers and the topics"
WAIT = "none while it passes by itself; if it lasts, "
_CLOCK = (
    "correct the clock of this machine or of the brokers, or set message.timestamp.type=LogAppendTime on topic"
    " {topic}, as ldp-worker create-topics does"
)
_ACLS = "allow this user what it asked for, as docs/operate/secure.md lists it, by the brokers' ACLs"
_TRANSACTIONS = (
    "use brokers that support transactions and topic ids, such as Apache Kafka 2.8 or newer: snapshots are published"
    " in transactions"
)
_FENCED = (
    WAIT
    + "find the second publisher: another worker of this group took over, or another deployment uses the same"
    " group and snapshots.topic. Give each deployment its own"
)
_REPLICAS = "start the brokers that hold replicas of topic {topic}, or lower its min.insync.replicas"
_LEADER = (
    "start the broker that leads the partition: kafka-topics.sh --describe --unavailable-partitions names it"
)
_COORDINATOR = (
    WAIT
    + "see that the brokers support transactions (ldp-worker check says so) and can create their internal topics:"
    " offsets.topic.replication.factor and transaction.state.log.replication.factor must not exceed the number of"
    " brokers"
)
_TOO_LARGE = "raise max.message.bytes of topic {topic}: ldp-worker check says to how many bytes"
OPEN = (
    WAIT
    + "end the transaction: kafka-transactions.sh find-hanging names it, and the brokers abort it after its"
    " transaction.timeout.ms"
)
_PRODUCER = WAIT + "look at the brokers' logs. The worker starts a new producer"
REMEDIES: Mapping[str, str] = {
    "AuthorizationFailed": _ACLS,
    "InvalidTimestamp": _CLOCK,
    "The timestamp should be within": _CLOCK,
    "UnsupportedVersion": _TRANSACTIONS,
    "IncompatibleBrokerVersion": _TRANSACTIONS,
    "UnsupportedForMessageFormat": _TRANSACTIONS,
    "ProducerFenced": _FENCED,
    "InvalidProducerEpoch": _FENCED,
    "CoordinatorFenced": _FENCED,
    "InvalidTransactionTimeout": "raise transaction.max.timeout.ms of the brokers",
    "InvalidSessionTimeout": "set kafka.session_timeout_seconds to what the brokers allow: ldp-worker check says what",
    "ConcurrentTransactions": OPEN,
    "transaction is open": OPEN,
    "Failed to update metadata": "run ldp-worker create-topics if topic {topic} is missing, else start the brokers",
    "initializing transactional state": _COORDINATOR,
    "UnknownTopicOrPartition": "run ldp-worker create-topics: it creates topic {topic} if that is missing",
    "Unrecognized partition": "run ldp-worker create-topics: it creates topic {topic} if that is missing",
    "NotEnoughReplicas": _REPLICAS,
    "MessageSizeTooLarge": _TOO_LARGE,
    "RecordListTooLarge": _TOO_LARGE,
    "no leader": _LEADER,
    "LeaderNotAvailable": _LEADER,
    "NotLeaderForPartition": _LEADER,
    "KafkaStorage": "look at the disks and the logs of the brokers",
    "PolicyViolation": "change the configuration, or the policy of the brokers that the error names",
    "UnsupportedCodec": "let the brokers accept lz4 on topic {topic}: compression.type=producer",
    "UnsupportedCompressionType": "let the brokers accept lz4 on topic {topic}: compression.type=producer",
    "ThrottlingQuota": "raise this user's quota",
    "QuotaViolation": "raise this user's quota",
    "OutOfOrderSequence": _PRODUCER,
    "UnknownProducerId": _PRODUCER,
    "InvalidProducerIdMapping": _PRODUCER,
    "InvalidTxnState": _PRODUCER,
    "TransactionAbort": _PRODUCER,
    "asked for twice": _PRODUCER,
    "(invalid_scope)": "correct kafka.sasl_oauthbearer_scope",
    "(invalid_client)": "correct kafka.sasl_username and kafka.sasl_password",
    "token endpoint": "start it, or correct kafka.sasl_oauthbearer_token_endpoint_url; kafka.ssl_cafile may name the"
    " authority that signed its certificate",
    "invalid_token": "let the brokers know whose tokens these are: their audience, issuer and keys are set there,"
    " or correct kafka.sasl_oauthbearer_scope",
    "AuthenticationFailed": "correct kafka.sasl_username and kafka.sasl_password, or kafka.sasl_mechanism",
    "UnsupportedSaslMechanism": "set kafka.sasl_mechanism to one that the brokers know",
    "IllegalSaslState": "this listener asks for no login: set kafka.security_protocol to PLAINTEXT or SSL, or correct"
    " the port in kafka.bootstrap_servers",
    "mismatch": "let kafka.bootstrap_servers name the brokers as their certificates do",
    "certificate has expired": "renew the brokers' certificates",
    "CERTIFICATE_VERIFY_FAILED": "let kafka.ssl_cafile name the authority that signed the brokers' certificates",
    "ALERT": "the brokers refuse this client's certificate, or want one: correct kafka.ssl_certfile and"
    " kafka.ssl_keyfile",
    "Handshake failed": "this listener seems to speak no TLS: correct kafka.security_protocol, or the port in"
    " kafka.bootstrap_servers",
    "Invalid frame length": "this listener seems to speak TLS, or is no broker's: correct kafka.security_protocol, or"
    " the port in kafka.bootstrap_servers",
    "socket disconnected": "the brokers hang up on this client: correct kafka.security_protocol, they may want TLS or a"
    " login, or the port in kafka.bootstrap_servers",
    "Coordinator": _COORDINATOR,
}  # Text in an error -> remedy; the first text found counts
SILENT = ("Timeout", "TimedOut", "Connection", "NodeNotReady", "NoBrokers", "NetworkException", "BrokerNot")
"""Texts of errors without an answer."""


def remedy(happened: object, topic: str = "", unknown: str = START) -> str:
    """Returns the remedy for an error.

    Example:
        >>> remedy("[Error 58] SaslAuthenticationFailedError: Invalid username or password")
        'correct kafka.sasl_username and kafka.sasl_password, or kafka.sasl_mechanism'
    """
    found = next((hint for sign, hint in REMEDIES.items() if sign in str(happened)), unknown)
    return found.format(topic=topic or "that the error names")


def unavailable(error: Exception, operation: str, topic: str = "") -> "Unavailable":
    """Returns an error of the client library as `Unavailable`, with its remedy.

    Example:
        >>> from kafka.errors import KafkaTimeoutError
        >>> found = unavailable(KafkaTimeoutError("no answer"), "publishing to", "snapshots")
        >>> str(found)
        "Kafka: publishing to topic 'snapshots': KafkaTimeoutError: no answer"
        >>> found.remedy
        'start the brokers, or correct kafka.bootstrap_servers and the security settings beside it'
    """
    from worker.counting.ports import Unavailable  # imports the kernels

    name = type(error).__name__
    text = str(error).partition("] ")[2] if str(error).startswith("[Error ") else str(error)
    happened = text if text.startswith(name) else f"{name}: {text}"
    where = f"{operation} topic {topic!r}" if topic else operation
    silent = any(sign in happened for sign in SILENT)
    return Unavailable(f"Kafka: {where}: {happened}", remedy(happened, topic, START if silent else CHECK))
