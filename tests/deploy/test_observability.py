"""Alert rules and dashboard: checked by Prometheus's own tools, and asked of one that has scraped a scheduler."""

import asyncio
import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from octavo_scheduler.exposition import exposition
from octavo_scheduler.model import ServedModel, load_model

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import VOCAB_SIZE, PaperWorker
from tests.doubles.tiny_model import make_tiny_model
from tests.layout.tree import ROOT
from tests.patience import PATIENCE

RULES = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "octavo.json"
RUNBOOK = ROOT / "docs" / "how-to" / "watch-a-server.md"
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


def alerts() -> list[str]:
    return re.findall(r"alert: (\w+)", (RULES / "alerts.yml").read_text())


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


@needs_promtool
@pytest.mark.parametrize("command", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_promtool_finds_the_alert_rules_right(command: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *command], cwd=RULES, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_and_a_line_in_the_runbook() -> None:
    tested = re.findall(r"- name: (\w+)", (RULES / "alerts_test.yml").read_text())
    described = re.findall(r"^\| `(Octavo\w+)` \|", RUNBOOK.read_text(), re.MULTILINE)
    assert sorted(alerts()) == sorted(tested) == sorted(described)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    return load_model(make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", vocab=VOCAB_SIZE, layers=1))


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    async with paper_service(model, tmp_path, PaperWorker(), "--http", "127.0.0.1:0") as running:
        running.is_open.set()
        yield running


async def test_rules_and_dashboard_ask_for_metrics_that_are_there(service: PaperService) -> None:
    page = exposition(await service.client.status()).decode()
    there = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)) | set(re.findall(r"^(\w+)[{ ]", page, re.MULTILINE))
    asked = set(re.findall(r"octavo_\w+", " ".join([*expressions(), (RULES / "alerts.yml").read_text()])))
    assert asked - there == set()
    assert len(asked) > 20


def query(port: int, expression: str) -> Any:
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@needs_prometheus
async def test_prometheus_answers_every_question_of_the_dashboard(service: PaperService, tmp_path: Path) -> None:
    port = free_port()
    target = {"targets": [service.scheduler.http_address]}
    jobs = [{"job_name": "octavo", "scrape_interval": "250ms", "scrape_timeout": "250ms", "static_configs": [target]}]
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
    flags = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    command = ["prometheus", *flags, f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for number in range(400):
            await service.ask(str(number), [number % 900, 1, 2])
            await asyncio.sleep(0.05)
            try:
                found = (await asyncio.to_thread(query, port, "count_over_time(up[1m])"))["data"]["result"]
            except OSError:
                continue
            if found and int(found[0]["value"][1]) > 5:
                break
        answers = {}
        for each in expressions():
            filled = each.replace("$__rate_interval", "1m").replace("$instance", ".+")
            answers[each] = await asyncio.to_thread(query, port, filled)
    finally:
        process.terminate()
        process.wait(PATIENCE)
    assert {answer["status"] for answer in answers.values()} == {"success"}
    empty = [each for each, answer in answers.items() if not answer["data"]["result"]]
    assert empty == ['octavo_device_memory_bytes{instance=~"$instance"}'], "paper has no device"
