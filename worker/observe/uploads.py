"""Prometheus metrics of the gateway and of the shuffler."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, disable_created_metrics


class GatewayMetrics:
    """All metrics of one gateway, in a separate registry.

    `keys`: ids of the keys of oblivious HTTP.

    Example:
        >>> metrics = GatewayMetrics(["emoji"], lambda: 65_536)
        >>> metrics.uploads.labels("emoji", "accepted").inc()
        >>> metrics.registry.get_sample_value("ldp_gateway_inflight_bytes")
        65536.0
    """

    def __init__(self, streams: Iterable[str], inflight: Callable[[], int], keys: Iterable[int] = ()) -> None:
        self.registry = _registry()
        self.uploads = Counter(
            "ldp_gateway_uploads_total",
            "Uploads, by outcome: accepted, rejected, refused (503), timeout or disconnected.",
            ("stream", "outcome"),
            registry=self.registry,
        )
        _begin(self.uploads, streams, "accepted", "rejected", "refused", "timeout", "disconnected")
        self.sealed = Counter(
            "ldp_gateway_ohttp_requests_total",
            "Requests in oblivious HTTP, by id of the key (or unknown) and outcome: answered, key (no key opens it),"
            " date, malformed, rejected, refused (503), timeout or disconnected.",
            ("key", "outcome"),
            registry=self.registry,
        )
        for key in keys:
            self.sealed.labels(str(key), "answered")
            self.sealed.labels("unknown", "key")
        self.inflight = Gauge(
            "ldp_gateway_inflight_bytes",
            "Bytes reserved for uploads that are read or not acknowledged.",
            registry=self.registry,
        )
        self.inflight.set_function(inflight)


class ShuffleMetrics:
    """All metrics of one shuffler, in a separate registry.

    Example:
        >>> metrics = ShuffleMetrics(["emoji"])
        >>> metrics.held.labels("emoji", "0").set(3)
        >>> metrics.registry.get_sample_value("ldp_shuffle_held_uploads", {"stream": "emoji", "partition": "0"})
        3.0
    """

    def __init__(self, streams: Iterable[str]) -> None:
        self.registry = _registry()
        self.uploads = Counter(
            "ldp_shuffle_uploads_total",
            "Uploads, by outcome: shuffled, duplicate, rejected or expired (offsets that retention deleted).",
            ("stream", "outcome"),
            registry=self.registry,
        )
        _begin(self.uploads, streams, "shuffled", "duplicate", "rejected", "expired")
        self.held = Gauge(
            "ldp_shuffle_held_uploads",
            "Accepted uploads of an intake partition that wait for a batch.",
            ("stream", "partition"),
            registry=self.registry,
        )
        self.oldest = Gauge(
            "ldp_shuffle_oldest_upload_timestamp_seconds",
            "Broker's timestamp of the first upload of an intake partition that waits for a batch; 0 if none waits.",
            ("stream", "partition"),
            registry=self.registry,
        )
        self.errors = Counter(
            "ldp_shuffle_errors_total",
            "Failed steps: claim and batch are retried, and delete is tried again after a minute.",
            ("stream", "step"),
            registry=self.registry,
        )
        _begin(self.errors, streams, "claim", "batch", "delete")


def _registry() -> CollectorRegistry:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def _begin(counter: Counter, streams: Iterable[str], *values: str) -> None:
    """Exports zeros, so that Prometheus sees the first increase."""
    for stream in streams:
        for value in values:
            counter.labels(stream, value)
