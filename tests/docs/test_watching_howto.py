"""The questions of docs/howto/watch-a-gateway.md get the answers that the page shows; its metrics exist."""

import asyncio
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pointsman.core.policy import Effect, PolicyHit
from pointsman.core.quota import Counters, Quota, QuotaKey
from pointsman.core.quota_window import Day
from pointsman.events.operations_file import operation_files
from pointsman.gateway.metrics import Gauges, Metrics
from pointsman.proxy.live_quotas import LiveQuota
from pointsman.testing import FakeClock
from tests.support.chain_requests import MIDNIGHT, Journal, a_day_with_an_outage

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "watch-a-gateway.md").read_text()
QUESTIONS = re.findall(r"^```sh\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("operations")
    with operation_files(path, 30, print, FakeClock(MIDNIGHT - 86400)) as lines:
        asyncio.run(a_day_with_an_outage(Journal(lines=lines, now=MIDNIGHT - 86400)))
    return path


def test_there_are_questions() -> None:
    assert len(QUESTIONS) == 5 == PAGE.count("```sh")


@pytest.mark.parametrize(("question", "answer"), QUESTIONS)
def test_a_question_gets_the_answer_that_is_shown(directory: Path, question: str, answer: str) -> None:
    script = f"set -euo pipefail\n{question}"
    done = subprocess.run(["bash", "-c", script], cwd=directory, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == (answer, "")


def test_every_metric_is_in_the_table_and_no_other() -> None:
    metrics = Metrics("1", process=False)

    async def one_of_each() -> None:
        journal = Journal(metrics)
        request = journal.request()
        request.stream_started()
        request.policy_hit(PolicyHit("no-shell", Effect.BLOCK, "/tools/0", Effect.BLOCK), 1, is_enforced=True)
        await a_day_with_an_outage(journal)

    asyncio.run(one_of_each())
    day = Day("2026-12-01", "2026-12-02", MIDNIGHT, MIDNIGHT + 86400)
    row = LiveQuota(QuotaKey("default", "groq"), Quota(1, 1), Counters(), day, MIDNIGHT)
    gauges = Gauges((row,), True, 0, 0, {"/models/small.gguf": "ready"})
    made: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.exposition(gauges).decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        made[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    shown: dict[str, set[str]] = {}
    for names, labels in re.findall(r"^\| (`pointsman_[^|]+) \| ([^|]*) ?\|", PAGE, re.M):
        for name in re.findall(r"`(\w+)`", names):
            shown[name] = set(labels.replace(",", " ").split())
    assert shown == made


def test_the_configuration_of_the_scraper_is_yaml() -> None:
    [block] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    assert yaml.safe_load(block)["scrape_configs"][0]["job_name"] == "pointsman"
