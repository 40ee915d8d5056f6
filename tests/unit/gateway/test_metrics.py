"""What is counted for Prometheus: read back by the library's own parser."""

import time
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from pointsman.core.attempts import Plan, Skipped
from pointsman.core.quota import Counters, Quota, QuotaKey
from pointsman.core.quota_window import Day
from pointsman.events.operations import Happening, Subject
from pointsman.gateway.metrics import OTHER, BoundedNames, Gauges, Metrics
from pointsman.proxy.live_quotas import LiveQuota
from pointsman.wire.usage import TokenUsage
from tests.support.canary import KEY
from tests.support.chain_requests import GEMINI, GROQ, LOCAL, MIDNIGHT, Counted, Journal, scripted, succeed

QUIET = Gauges((), True, 0, 0)
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: bytes) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float:
    """The sum of all series that have these labels."""
    wanted = set(labels.items())
    return sum(each for (known, pairs), each in found.items() if known == name and wanted <= set(pairs))


def made(**options: Any) -> Metrics:
    return Metrics("1.2.3", process=False, **options)


def scraped(tell: Any, **options: Any) -> Samples:
    metrics = made(**options)
    scripted(tell, metrics)
    return samples(metrics.exposition(QUIET))


def test_each_provider_that_failed_and_gave_way_counts_a_fallback() -> None:
    def tell(journal: Journal) -> None:
        record = journal.request()
        record.attempting(GROQ, "m")
        record.attempt_failed(GROQ, "server_error", GROQ)
        record.attempting(GROQ, "m")
        record.attempt_failed(GROQ, "rate_limit", GEMINI)
        record.attempt_failed(GEMINI, "auth_error", None)  # its key cannot be read

    found = scraped(tell)
    assert value(found, "pointsman_fallbacks_total", provider="groq", reason="rate_limit") == 1
    assert value(found, "pointsman_fallbacks_total", provider="gemini", reason="auth_error") == 1
    assert value(found, "pointsman_fallbacks_total") == 2


def test_the_first_byte_of_a_stream_is_measured_from_acceptance() -> None:
    def tell(journal: Journal) -> None:
        record = journal.request()
        record.attempting(GROQ, "m")
        journal.clock.advance(0.25)
        record.stream_started()
        journal.clock.advance(2)
        record.completed(200, Counted(1, 2))

    labels = {"route": "fast", "account": "default"}
    found = scraped(tell)
    assert value(found, "pointsman_stream_first_byte_seconds_sum", **labels) == pytest.approx(0.25)
    assert value(found, "pointsman_stream_first_byte_seconds_count", **labels) == 1
    assert value(found, "pointsman_request_duration_seconds_sum", **labels) == pytest.approx(2.25)


def test_an_answer_after_two_failures_is_one_request_and_three_attempts() -> None:
    found = scraped(lambda journal: succeed(journal.request(), journal, GROQ, GEMINI, LOCAL, reason="rate_limit"))
    labels = {"route": "fast", "account": "default", "outcome": "completed"}
    assert value(found, "pointsman_requests_total", provider="local", status="2xx", fallback="true", **labels) == 1
    assert value(found, "pointsman_requests_total") == 1
    assert value(found, "pointsman_attempts_total", provider="groq", outcome="rate_limit") == 1
    assert value(found, "pointsman_attempts_total", provider="local", outcome="ok") == 1
    assert value(found, "pointsman_attempts_total") == 3
    assert value(found, "pointsman_tokens_total", provider="local", kind="completion") == 34
    assert value(found, "pointsman_request_duration_seconds_sum", **labels) == pytest.approx(0.7)
    assert value(found, "pointsman_request_duration_seconds_bucket", le="0.5", **labels) == 0
    assert value(found, "pointsman_request_duration_seconds_bucket", le="1.0", **labels) == 1
    assert value(found, "pointsman_requests_in_progress") == 0


def test_a_stream_counts_its_tokens_once() -> None:
    def tell(journal: Journal) -> None:
        record = journal.request()
        record.ordering(Plan((GROQ,)))
        record.attempting(GROQ, "m")
        record.stream_started()
        record.completed(200, Counted(3, -1))

    found = scraped(tell)
    assert value(found, "pointsman_tokens_total") == 3
    assert value(found, "pointsman_attempts_total") == value(found, "pointsman_requests_total") == 1


@pytest.mark.parametrize(
    ("end", "outcome", "status", "attempt"),
    [
        (lambda record: record.failed("request_rejected", 422), "failed", "4xx", "request_rejected"),
        (lambda record: record.failed("stream_truncated", 200), "failed", "2xx", "stream_truncated"),
        (lambda record: record.cancelled(), "cancelled", "none", "cancelled"),
    ],
)
def test_an_attempt_that_ends_the_request_is_counted(end: Any, outcome: str, status: str, attempt: str) -> None:
    def tell(journal: Journal) -> None:
        record = journal.request()
        record.attempting(GROQ, "m")
        end(record)

    found = scraped(tell)
    assert value(found, "pointsman_requests_total", outcome=outcome, status=status) == 1
    assert value(found, "pointsman_attempts_total", outcome=attempt, provider="groq") == 1
    assert value(found, "pointsman_attempts_total") == 1


def test_a_provider_that_could_not_be_called_is_no_attempt() -> None:
    def tell(journal: Journal) -> None:
        record = journal.request()
        record.attempt_failed(GROQ, "auth_error", None)  # its key is missing
        record.failed("exhausted", 503)

    found = scraped(tell)
    assert value(found, "pointsman_attempts_total") == 0
    assert value(found, "pointsman_requests_total", provider="", status="5xx") == 1


def test_each_skip_counts_once() -> None:
    skipped = [Skipped("gemini", "quota_daily"), Skipped("other", "no_weight")]

    def tell(journal: Journal) -> None:
        record = journal.request()
        succeed(record, journal, GROQ, skipped=skipped)
        journal.request().skipped(Skipped("gemini", "quota_minute"))

    found = scraped(tell)
    reasons = [("gemini", "quota_daily"), ("other", "no_weight"), ("gemini", "quota_minute")]
    for provider, reason in reasons:
        assert value(found, "pointsman_skipped_providers_total", provider=provider, reason=reason) == 1
    assert value(found, "pointsman_requests_in_progress") == 1


def test_what_is_read_at_the_scrape_is_of_that_moment() -> None:
    key = QuotaKey("default", "groq")
    row = LiveQuota(
        key, Quota(100), Counters(100, 3), Day("2026-12-01", "2026-12-02", MIDNIGHT, MIDNIGHT + 86400), MIDNIGHT
    )
    metrics = made()
    first = samples(metrics.exposition(Gauges((row,), True, 5, 7, {"/models/small.gguf": "ready"})))
    assert value(first, "pointsman_quota_used_requests", window="day") == 100
    assert value(first, "pointsman_quota_used_requests", window="minute") == 3
    assert value(first, "pointsman_quota_limit_requests") == 100
    assert value(first, "pointsman_provider_exhausted", provider="groq", account="default") == 1
    assert value(first, "pointsman_open_connections", listener="data") == 7
    assert value(first, "pointsman_operation_events_lost_total") == 5
    assert value(first, "pointsman_store_up") == 1
    assert value(first, "pointsman_engine_state", model="/models/small.gguf", state="ready") == 1
    assert value(first, "pointsman_engine_state") == 1
    second = samples(metrics.exposition(Gauges((), False, 6, 0)))
    assert not [name for name, _ in second if name.startswith(("pointsman_quota", "pointsman_engine"))]
    assert value(second, "pointsman_operation_events_lost_total") == 6
    assert value(second, "pointsman_store_up") == 0


@pytest.mark.parametrize(("names", "expected"), [(4, 4), (5, 4 + 1), (500, 4 + 1)])
def test_names_beyond_the_bound_share_one_series(names: int, expected: int) -> None:
    def tell(journal: Journal) -> None:
        for number in range(names):
            succeed(journal.request(route=f"route-{number}"), journal, GROQ)

    found = scraped(tell, most_names=4)
    series = [dict(pairs)["route"] for name, pairs in found if name == "pointsman_requests_total"]
    assert len(series) == expected
    assert (OTHER in series) is (names > 4)
    assert value(found, "pointsman_requests_total") == names


def test_a_known_name_stays_itself_when_the_bound_is_reached() -> None:
    bounded = BoundedNames(2)
    assert [bounded(name) for name in "abcab"] == ["a", "b", OTHER, "a", "b"]


def test_hostile_names_are_escaped_and_keys_are_not_there() -> None:
    metrics = made()
    scripted(lambda journal: succeed(journal.request(route='a"b\\c\nd'), journal, GROQ), metrics)
    text = metrics.exposition(QUIET)
    assert value(samples(text), "pointsman_requests_total", route='a"b\\c\nd') == 1
    assert KEY.encode() not in text
    assert b"example" not in text


def test_names_follow_the_conventions_and_no_series_is_about_our_making() -> None:
    text = Metrics("1.2.3").exposition(QUIET).decode()
    families = list(text_string_to_metric_families(text))
    assert {each.name.partition("_")[0] for each in families} == {"pointsman", "process"}
    assert "_created" not in text
    for family in families:
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)


def test_two_gateways_in_one_process_share_nothing() -> None:
    before = {metric.name for metric in REGISTRY.collect()}
    one, two = made(), made()
    scripted(lambda journal: succeed(journal.request(), journal, GROQ), one)
    assert value(samples(two.exposition(QUIET)), "pointsman_requests_total") == 0
    assert {metric.name for metric in REGISTRY.collect()} == before


def test_counting_a_request_costs_little_and_never_on_its_path() -> None:
    """Some 3 µs for all series of a request, in a batch; 12 are allowed, for others use the machine too."""
    metrics = made()
    happenings = [
        Happening("infer_started", MIDNIGHT, Subject("r", "default", "fast")),
        Happening(
            "infer_completed",
            MIDNIGHT,
            Subject("r", "default", "fast"),
            "groq",
            tokens=TokenUsage(1, 2),
            status=200,
            ends_attempt=True,
        ),
    ] * 100
    best = float("inf")
    for _ in range(10):
        began = time.process_time()
        metrics.watch(happenings)
        best = min(best, (time.process_time() - began) / 100)
    assert best < 12e-6, f"{best * 1e6:.1f} µs"
