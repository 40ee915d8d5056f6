"""What Prometheus may scrape: counted from the events of the operation log, so that both tell the same.

Owns the names and labels, on a registry of its own. Labels come from what operators made (routes, providers, accounts)
and from words of ours; never from what a client sent. Nothing is counted while a request runs: events come in batches.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pointsman.events import operations
from pointsman.events.operations import Happening
from pointsman.gateway.runner_identity import NO_LOAD, RunnerLoad
from pointsman.proxy.live_quotas import LiveQuota

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
MOST_NAMES = 256
"""Values of one label; what comes beyond counts as `OTHER`. Records come and go, and a scrape must stay small."""
OTHER = "other"
_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Seconds: from a cached answer to a chain's whole timeout."""
_CLASSES = {1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}
_ENDS = {
    operations.INFER_COMPLETED: "completed",
    operations.INFER_FAILED: "failed",
    operations.INFER_CANCELLED: "cancelled",
}
_ATTEMPT_OUTCOMES = {"completed": "ok", "cancelled": "cancelled"}
_FLAGS = {False: "false", True: "true"}
_ENGINE_STATES = ("idle", "loading", "ready", "failed")
_ATTEMPT_ENDS = (operations.INFER_RETRIED, operations.INFER_FALLBACK)


@dataclass(frozen=True, slots=True)
class Gauges:
    """What is read at the moment of a scrape."""

    rows: Sequence[LiveQuota]
    """Quotas of all accounts."""
    store_up: bool
    events_lost: int
    """Lines of the operation log, since the start."""
    open_connections: int
    """Of clients, at the data listener."""
    engines: Mapping[str, str] = field(default_factory=dict)
    """What each local engine is doing, by the path of its model."""
    runners: RunnerLoad = NO_LOAD
    """Of this process alone: several may hold lines."""


class BoundedNames:
    """The values that one label may have."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        """The name, or `OTHER` when there are too many."""
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name


class _WithoutCreated(Collector):
    """A registry without the moments at which series were made: they double a scrape, and tell nobody anything."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            if metric.samples or not metric.name.endswith("_created"):
                yield metric


class Metrics:
    """Watches a journal; forms the answer to a scrape. Use it on one event loop."""

    def __init__(self, version: str, *, process: bool = True, most_names: int = MOST_NAMES) -> None:
        registry = self._registry = CollectorRegistry(auto_describe=True)
        self._route, self._provider, self._account, self._rule = (BoundedNames(most_names) for _ in range(4))
        route, provider = ["account", "route"], ["account", "provider"]
        self._requests = Counter(
            "pointsman_requests",
            "Requests that have ended; status is the class of the answer, none when there was none.",
            [*route, "provider", "outcome", "status", "fallback"],
            registry=registry,
        )
        self._seconds = Histogram(
            "pointsman_request_duration_seconds",
            "From acceptance to the last byte.",
            [*route, "outcome"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._first_byte = Histogram(
            "pointsman_stream_first_byte_seconds",
            "From acceptance to the first byte of an event stream that goes to the client.",
            route,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._attempts = Counter(
            "pointsman_attempts",
            "Calls of providers that have ended; outcome is ok or what failed.",
            [*provider, "outcome"],
            registry=registry,
        )
        self._fallbacks = Counter(
            "pointsman_fallbacks",
            "Times that a provider failed and another was to take its place.",
            [*provider, "reason"],
            registry=registry,
        )
        self._hits = Counter(
            "pointsman_policy_hits",
            "Places at which rules of policies have matched; enforced is false in a dry run.",
            ["account", "rule", "effect", "enforced"],
            registry=registry,
        )
        self._skips = Counter(
            "pointsman_skipped_providers", "Providers passed over.", [*provider, "reason"], registry=registry
        )
        self._tokens = Counter(
            "pointsman_tokens", "Tokens as providers reported them.", [*provider, "kind"], registry=registry
        )
        self._running = Gauge("pointsman_requests_in_progress", "Requests that have not ended.", registry=registry)
        self._make_gauges(registry, provider)
        self._sums: defaultdict[tuple[Any, ...], int] = defaultdict(int)
        """What came since the last scrape, by a counter and its labels' values."""
        self._durations: dict[tuple[str, ...], Histogram] = {}
        self._first_bytes: dict[tuple[str, ...], Histogram] = {}
        self._in_progress = 0
        info = Gauge("pointsman_build_info", "Always 1; tells the version.", ["version"], registry=registry)
        info.labels(version).set(1)
        if process:
            ProcessCollector(registry=registry)

    def _make_gauges(self, registry: CollectorRegistry, provider: list[str]) -> None:
        window = [*provider, "window"]
        self._used = Gauge(
            "pointsman_quota_used_requests",
            "Of the current day or minute, calls under way included.",
            window,
            registry=registry,
        )
        self._limit = Gauge(
            "pointsman_quota_limit_requests", "Only for providers that have one.", window, registry=registry
        )
        self._exhausted = Gauge("pointsman_provider_exhausted", "1: no room at present.", provider, registry=registry)
        self._engines = Gauge(
            "pointsman_engine_state",
            "Of each local model that was asked for: 1 for what its engine is doing.",
            ["model", "state"],
            registry=registry,
        )
        self._store = Gauge("pointsman_store_up", "1: the database answers.", registry=registry)
        self._connections = Gauge(
            "pointsman_open_connections", "Of clients, by listener.", ["listener"], registry=registry
        )
        self._runners = Gauge(
            "pointsman_runners_connected", "Runners whose line this process holds.", registry=registry
        )
        self._runner_requests = Gauge(
            "pointsman_runner_requests_active", "Requests that hold a place at one of these runners.", registry=registry
        )
        self._lost = Counter(
            "pointsman_operation_events_lost", "Lines missing in the operation log.", registry=registry
        )
        self._lost_before = 0

    # While the gateway runs: plain sums, for the library's labels and locks would cost ten times as much

    def watch(self, happenings: Sequence[Happening]) -> None:
        """Count events."""
        for each in happenings:
            event = each.event
            if event in _ENDS:
                self._end(each, _ENDS[event])
            elif event == operations.INFER_STARTED:
                self._in_progress += 1
            elif event in _ATTEMPT_ENDS:
                self._attempt(each, each.reason)
                if event == operations.INFER_FALLBACK:
                    names = self._account(each.subject.account), self._provider(each.provider)
                    self._sums[(self._fallbacks, *names, each.reason)] += 1
            elif event == operations.STREAM_STARTED:
                self._started(each)
            elif event == operations.POLICY_HIT and each.hit is not None:
                names = self._account(each.subject.account), self._rule(each.hit.rule)
                self._sums[(self._hits, *names, str(each.hit.would), _FLAGS[each.fallback])] += 1
            elif event == operations.RATE_LIMIT_HIT:
                self._skip(each, each.provider, each.reason)
            elif event == operations.INFER_ORDERING and each.plan is not None and each.plan.skipped:
                for skipped in each.plan.skipped:
                    if skipped.reason not in operations.QUOTA_REASONS:  # those have an event of their own
                        self._skip(each, skipped.provider, skipped.reason)

    def _end(self, each: Happening, outcome: str) -> None:
        subject, tokens = each.subject, each.tokens
        account, route = self._account(subject.account), self._route(subject.route)
        provider = self._provider(each.provider) if each.provider else ""
        status = _CLASSES.get(each.status // 100, "none")
        self._in_progress -= 1
        self._sums[self._requests, account, route, provider, outcome, status, _FLAGS[each.fallback]] += 1
        self._duration(account, route, outcome).observe(each.seconds)
        self._attempt(each, _ATTEMPT_OUTCOMES.get(outcome, each.reason))
        if tokens is not None:
            self._sums[self._tokens, account, provider, "prompt"] += max(tokens.input_tokens, 0)
            self._sums[self._tokens, account, provider, "completion"] += max(tokens.output_tokens, 0)

    def _duration(self, *labels: str) -> Histogram:
        child = self._durations.get(labels)
        if child is None:
            child = self._durations[labels] = self._seconds.labels(*labels)
        return child

    def _started(self, each: Happening) -> None:
        labels = self._account(each.subject.account), self._route(each.subject.route)
        child = self._first_bytes.get(labels)
        if child is None:
            child = self._first_bytes[labels] = self._first_byte.labels(*labels)
        child.observe(each.seconds)

    def _attempt(self, each: Happening, outcome: str) -> None:
        if each.ends_attempt:
            self._sums[self._attempts, self._account(each.subject.account), self._provider(each.provider), outcome] += 1

    def _skip(self, each: Happening, provider: str, reason: str) -> None:
        self._sums[self._skips, self._account(each.subject.account), self._provider(provider), reason] += 1

    # When it is scraped

    def exposition(self, gauges: Gauges) -> bytes:
        """Everything in the text format 0.0.4."""
        sums, self._sums = self._sums, defaultdict(int)
        for (counter, *labels), count in sums.items():
            counter.labels(*labels).inc(count)
        self._running.set(self._in_progress)
        for gauge in (self._used, self._limit, self._exhausted, self._engines):
            gauge.clear()
        for row in gauges.rows[:MOST_NAMES]:
            self._show(row)
        for model, state in list(gauges.engines.items())[:MOST_NAMES]:
            for each in _ENGINE_STATES:
                self._engines.labels(model, each).set(each == state)
        self._store.set(gauges.store_up)
        self._connections.labels("data").set(gauges.open_connections)
        self._runners.set(gauges.runners.connected)
        self._runner_requests.set(gauges.runners.active_requests)
        self._lost.inc(max(gauges.events_lost - self._lost_before, 0))
        self._lost_before = gauges.events_lost
        return generate_latest(_WithoutCreated(self._registry))

    def _show(self, row: LiveQuota) -> None:
        names = row.key.account, row.key.provider
        self._exhausted.labels(*names).set(row.is_exhausted)
        windows = (
            ("day", row.counters.daily, row.quota.daily_requests),
            ("minute", row.counters.minute, row.quota.requests_per_minute),
        )
        for window, used, limit in windows:
            self._used.labels(*names, window).set(used)
            if limit:
                self._limit.labels(*names, window).set(limit)
