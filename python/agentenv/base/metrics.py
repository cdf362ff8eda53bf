"""Metrics: one registry per process, names `aenv_<package>_<noun>_<unit>`, labels from closed sets only."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

REGISTRY = CollectorRegistry(auto_describe=True)


def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
    """Return a new counter in our registry."""
    return Counter(name, text, labels, registry=REGISTRY)


def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
    """Return a new gauge in our registry."""
    return Gauge(name, text, labels, registry=REGISTRY)


def histogram(name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
    """Return a new histogram of seconds in our registry."""
    return Histogram(name, text, labels, registry=REGISTRY, buckets=SECONDS)


def render() -> bytes:
    """Return all metrics in the Prometheus text format."""
    return generate_latest(REGISTRY)
