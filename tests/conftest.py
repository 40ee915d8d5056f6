"""Hypothesis profiles: `fast` in every run, `deep` by `make fuzz`. Evidence for the search that ends the run."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Before any test imports grpc, which it tells to print nothing: what grpc prints at a fork would be anybody's output.
import pointsman.rpc  # noqa: F401
from tests.support import canary, evidence
from tests.support.onlooker import Onlooker

settings.register_profile("fast", max_examples=60, deadline=None, derandomize=True)
settings.register_profile(
    "deep", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


# A shell starts what it puts into the background with interrupts ignored, and every process below inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Plant what must never show before there are processes of pytest-xdist: all plant, and search for, the same."""
    assert canary.KEY


@pytest.fixture(scope="session", autouse=True)
def _onlooker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    evidence.keep("places", str(tmp_path_factory.getbasetemp()))
    onlooker = Onlooker(os.getpid())
    onlooker.start()
    yield
    onlooker.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The search for canaries comes last: it looks at what all the others left."""
    items.sort(key=lambda item: "canaries" in item.path.parts)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what a test, and what it started, printed."""
    for title, text in report.sections:
        evidence.keep("output", f"{report.nodeid} {title}\n{text}")
