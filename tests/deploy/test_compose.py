"""docker-compose.yml: valid, locked down, and in agreement with the programs that it starts."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.compose import resolve, run_compose


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """All services, those of every profile."""
    found: dict[str, Any] = resolve("--profile", "gpu", "--profile", "observability")["services"]
    return found


def volumes_of(service: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {volume["source"]: volume for volume in service["volumes"]}


def test_the_cpu_profile_is_the_default() -> None:
    assert set(resolve()["services"]) == {"keys", "scheduler", "worker"}


def test_the_gpu_profile_adds_a_worker_with_a_gpu(services: dict[str, Any]) -> None:
    assert set(resolve("--profile", "gpu")["services"]) == {"keys", "scheduler", "worker", "worker-gpu"}
    (device,) = services["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]
    assert "--device=cuda" in services["worker-gpu"]["command"]


def test_the_observability_profile_adds_prometheus_and_grafana(services: dict[str, Any]) -> None:
    added = set(resolve("--profile", "observability")["services"]) - set(resolve()["services"])
    assert added == {"prometheus", "grafana"}
    for name in added:
        assert services[name]["read_only"]
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["networks"].keys() == {"front"}
        assert {port["host_ip"] for port in services[name]["ports"]} == {"127.0.0.1"}
        assert all(volume["read_only"] for volume in services[name]["volumes"])
    assert volumes_of(services["prometheus"]).keys() & {"scheduler-keys", "worker-keys", "admin-keys"} == set()
    assert services["prometheus"]["user"] == "10001:10001", "files of keys are their owner's alone"


def test_workers_can_be_scaled(services: dict[str, Any]) -> None:
    """A fixed container name, host port or worker id would let only one start."""
    for name in ("worker", "worker-gpu"):
        assert {"container_name", "ports", "hostname"}.isdisjoint(services[name])
        assert not any(argument.startswith("--worker-id") for argument in services[name]["command"])


def test_a_missing_model_is_named_in_the_error() -> None:
    result = run_compose("config", "--quiet")
    assert result.returncode != 0
    assert "set OCTAVO_MODEL to the folder that holds the model" in result.stderr


def test_compose_refuses_a_misspelt_key(tmp_path: Path) -> None:
    bad = tmp_path / "docker-compose.yml"
    bad.write_text("services: {worker: {image: octavo-worker, replicaz: 3}}\n")
    assert "replicaz" in run_compose("--file", str(bad), "config", "--quiet").stderr


@pytest.mark.parametrize("name", ["keys", "scheduler", "worker", "worker-gpu"])
def test_a_service_can_write_nowhere_but_in_its_temporary_folder(services: dict[str, Any], name: str) -> None:
    service = services[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert [mount.partition(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
    writable = {source for source, volume in volumes_of(service).items() if not volume.get("read_only")}
    made = {"scheduler-keys", "worker-keys", "client-keys", "admin-keys"}
    assert writable == (made if name == "keys" else set())


def test_each_party_sees_its_own_keys_only(services: dict[str, Any]) -> None:
    assert "scheduler-keys" in volumes_of(services["scheduler"])
    assert "worker-keys" not in volumes_of(services["scheduler"])
    for name in ("worker", "worker-gpu"):
        assert "worker-keys" in volumes_of(services[name])
        assert {"scheduler-keys", "client-keys", "admin-keys"}.isdisjoint(volumes_of(services[name]))


def test_workers_reach_the_scheduler_and_nothing_else(services: dict[str, Any]) -> None:
    assert resolve()["networks"]["steps"]["internal"]
    assert set(services["worker"]["networks"]) == set(services["worker-gpu"]["networks"]) == {"steps"}
    assert set(services["scheduler"]["networks"]) == {"front", "steps"}
    assert services["keys"]["network_mode"] == "none"


def test_the_service_is_published_on_loopback_unless_asked_otherwise(services: dict[str, Any]) -> None:
    published = {(port["host_ip"], port["target"]) for port in services["scheduler"]["ports"]}
    assert published == {("127.0.0.1", 50051), ("127.0.0.1", 8080)}
    wide = resolve(OCTAVO_PUBLISH="0.0.0.0:443", OCTAVO_PUBLISH_HTTP="0.0.0.0:80")["services"]["scheduler"]["ports"]
    assert {(port["host_ip"], port["published"]) for port in wide} == {("0.0.0.0", "443"), ("0.0.0.0", "80")}


def test_everything_waits_for_the_keys(services: dict[str, Any]) -> None:
    for name in ("scheduler", "worker", "worker-gpu"):
        assert services[name]["depends_on"]["keys"]["condition"] == "service_completed_successfully"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("keys", "octavo_scheduler.keys"),
        ("scheduler", "octavo_scheduler"),
        ("worker", "octavo_worker"),
        ("worker-gpu", "octavo_worker"),
    ],
)
def test_every_flag_is_one_that_the_program_knows(services: dict[str, Any], name: str, module: str) -> None:
    result = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    flags = {argument.partition("=")[0] for argument in services[name]["command"] if argument.startswith("--")}
    assert flags
    assert flags - set(re.findall(r"--[a-z-]+", result.stdout)) == set()
