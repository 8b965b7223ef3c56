"""The Helm chart: linted, rendered, checked against Kubernetes' own schemas, in agreement with the programs it starts."""

from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml
from octavo_scheduler import config as scheduler_config
from octavo_scheduler.keys import FILES
from octavo_worker import flags as worker_flags

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "octavo"
EVERYTHING: dict[str, Any] = {
    "model": {"path": "model.gguf"},
    "autoscaling": {"enabled": True},
    "serviceMonitor": {"enabled": True, "tokenSecret": "tokens", "labels": {"release": "prometheus"}},
    "image": {"pullSecrets": [{"name": "registry"}]},
    "scheduler": {"flags": ["--max-queued-requests=1000"], "nodeSelector": {"kubernetes.io/arch": "amd64"}},
    "worker": {
        "flags": ["--device=cuda", "--tensor-parallel-size=2"],
        "resources": {"limits": {"nvidia.com/gpu": 2}},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    },
    "networkPolicy": {
        "clients": [{"namespaceSelector": {"matchLabels": {"team": "web"}}}],
        "monitoring": [{"namespaceSelector": {"matchLabels": {"team": "watch"}}}],
    },
}
OF_OPERATORS = {"ScaledObject", "ServiceMonitor"}
"""Kinds of KEDA and of the Prometheus operator, which Kubernetes has no schema of."""


def rendered(values: dict[str, Any], name: str = "mine") -> dict[tuple[str, str], dict[str, Any]]:
    """All objects by kind and name."""
    with helm_python.Chart.load(CHART) as chart:
        texts = chart.render(values, name=name, namespace="models")
    manifests = (text for path, text in texts.items() if path.endswith(".yaml"))
    found = [each for text in manifests for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.fixture(params=["as it comes", "with everything"])
def objects(request: pytest.FixtureRequest) -> dict[tuple[str, str], dict[str, Any]]:
    return rendered({} if request.param == "as it comes" else EVERYTHING)


def container(objects: dict[tuple[str, str], dict[str, Any]], component: str) -> dict[str, Any]:
    pod = objects["Deployment", f"mine-octavo-{component}"]["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    return dict(only)


@pytest.mark.parametrize("values", [{}, EVERYTHING])
def test_helm_has_nothing_to_say_against_it(values: dict[str, Any]) -> None:
    found = helm_python.lint(CHART, values, strict=True)
    assert found["errors"] == []
    assert [each["error"] for each in found["messages"]] == ["icon is recommended"]


def test_every_object_has_only_fields_that_kubernetes_knows(objects: dict[tuple[str, str], dict[str, Any]]) -> None:
    for (kind, _), each in objects.items():
        if kind not in OF_OPERATORS:
            kubernetes_validate.validate(each, "1.30.0", strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    service = rendered({})["Service", "mine-octavo"]
    service["spec"]["portz"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="portz"):
        kubernetes_validate.validate(service, "1.30.0", strict=True)


@pytest.mark.parametrize(
    "values",
    [
        {"worker": {"replicaz": 2}},
        {"worker": {"flags": ["kv-cache-memory=1GiB"]}},
        {"model": {"path": "/absolute"}},
        {"autoscaling": {"prometheus": "prometheus:9090"}},
    ],
)
def test_values_that_mean_nothing_are_refused(values: dict[str, Any]) -> None:
    with helm_python.Chart.load(CHART) as chart, pytest.raises(helm_python.HelmError):
        chart.validate_schema(values)


def test_what_runs_without_options_is_scheduler_workers_and_policies() -> None:
    assert set(rendered({})) == {
        ("Deployment", "mine-octavo-scheduler"),
        ("Deployment", "mine-octavo-worker"),
        ("Service", "mine-octavo"),
        ("Service", "mine-octavo-steps"),
        ("NetworkPolicy", "mine-octavo-scheduler"),
        ("NetworkPolicy", "mine-octavo-worker"),
    }


def test_a_release_that_is_called_octavo_does_not_say_it_twice() -> None:
    assert ("Service", "octavo") in rendered({}, name="octavo")


def test_the_scheduler_understands_its_flags(objects: dict[tuple[str, str], dict[str, Any]]) -> None:
    options = scheduler_config.parser().parse_args(container(objects, "scheduler")["args"])
    ports = {each["name"]: each["containerPort"] for each in container(objects, "scheduler")["ports"]}
    assert options.listen == f"0.0.0.0:{ports['grpc']}"
    assert options.workers == f"tcp://0.0.0.0:{ports['steps']}"
    assert options.http == f"0.0.0.0:{ports['http']}"


def test_workers_understand_their_flags_and_dial_the_scheduler(objects: dict[tuple[str, str], dict[str, Any]]) -> None:
    options = worker_flags.parser().parse_args(container(objects, "worker")["args"])
    (port,) = objects["Service", "mine-octavo-steps"]["spec"]["ports"]
    assert options.scheduler == f"tcp://mine-octavo-steps:{port['port']}"


@pytest.mark.parametrize("component", ["scheduler", "worker"])
def test_pods_write_nowhere_but_in_their_temporary_folder_and_are_nobody(
    objects: dict[tuple[str, str], dict[str, Any]], component: str
) -> None:
    pod = objects["Deployment", f"mine-octavo-{component}"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    locked = container(objects, component)["securityContext"]
    assert locked["readOnlyRootFilesystem"]
    assert locked["capabilities"] == {"drop": ["ALL"]}
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in container(objects, component)["volumeMounts"]}
    assert mounts == {"/model": True, "/keys": True, "/tmp": False}


def test_the_secrets_hold_what_octavo_keys_makes(objects: dict[tuple[str, str], dict[str, Any]]) -> None:
    pod = objects["Deployment", "mine-octavo-scheduler"]["spec"]["template"]["spec"]
    (keys,) = (volume for volume in pod["volumes"] if volume["name"] == "keys")
    (source,) = keys["projected"]["sources"]
    paths = {item["path"] for item in source["secret"]["items"]}
    assert {f"scheduler/{path}" for path in paths - {"allow/worker.key"}} <= set(FILES)
    asked = {word.partition("=/keys/")[2] for word in container(objects, "scheduler")["args"] if "=/keys/" in word}
    assert {path.partition("/")[0] for path in paths} == asked
    asked = {word.partition("=/keys/")[2] for word in container(objects, "worker")["args"] if "=/keys/" in word}
    assert {f"worker/{path}" for path in asked} <= set(FILES)


def test_the_scheduler_starts_anew_alone_and_workers_one_after_the_other(
    objects: dict[tuple[str, str], dict[str, Any]],
) -> None:
    assert objects["Deployment", "mine-octavo-scheduler"]["spec"]["strategy"] == {"type": "Recreate"}
    rolling = objects["Deployment", "mine-octavo-worker"]["spec"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxUnavailable": 0, "maxSurge": 1}


def test_the_queue_decides_how_many_workers_there_are() -> None:
    objects = rendered(EVERYTHING)
    assert "replicas" not in objects["Deployment", "mine-octavo-worker"]["spec"]
    scaled = objects["ScaledObject", "mine-octavo-worker"]["spec"]
    assert scaled["scaleTargetRef"] == {"name": "mine-octavo-worker"}
    (trigger,) = scaled["triggers"]
    assert "vllm:num_requests_waiting" in trigger["metadata"]["query"]


def test_prometheus_finds_the_port_that_it_is_told() -> None:
    objects = rendered(EVERYTHING)
    (endpoint,) = objects["ServiceMonitor", "mine-octavo"]["spec"]["endpoints"]
    assert endpoint["port"] in {each["name"] for each in objects["Service", "mine-octavo"]["spec"]["ports"]}
    assert (endpoint["path"], endpoint["scheme"]) == ("/metrics", "https")


def test_workers_reach_the_step_port_and_names_and_nothing_reaches_them(
    objects: dict[tuple[str, str], dict[str, Any]],
) -> None:
    policy = objects["NetworkPolicy", "mine-octavo-worker"]["spec"]
    assert policy["ingress"] == []
    assert [port["port"] for rule in policy["egress"] for port in rule["ports"]] == ["steps", 53, 53]
    assert objects["NetworkPolicy", "mine-octavo-scheduler"]["spec"]["egress"] == []
