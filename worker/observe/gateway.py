"""Prometheus metrics of the gateway."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, disable_created_metrics


class GatewayMetrics:
    """All metrics of one gateway, in a separate registry.

    Example:
        >>> metrics = GatewayMetrics(lambda: 65_536)
        >>> metrics.uploads.labels("emoji", "accepted").inc()
        >>> metrics.registry.get_sample_value("ldp_gateway_inflight_bytes")
        65536.0
    """

    def __init__(self, inflight: Callable[[], int]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.uploads = Counter(
            "ldp_gateway_uploads_total",
            "Uploads, by outcome: accepted, rejected, refused (503), timeout or disconnected.",
            ("stream", "outcome"),
            registry=self.registry,
        )
        held = Gauge(
            "ldp_gateway_inflight_bytes",
            "Bytes reserved for uploads that are read or not acknowledged.",
            registry=self.registry,
        )
        held.set_function(inflight)
        ProcessCollector(registry=self.registry)
