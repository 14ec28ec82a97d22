"""deploy/ fits the program: image, compose, Kubernetes, chart, units, workflows. No server is started."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytube import __version__
from pytube.config import Config, parse
from tests.helpers.database import ROOT
from tests.helpers.manifests import made

DEPLOY = ROOT / "deploy"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
PLAIN = sorted((DEPLOY / "kubernetes").rglob("*.yaml"))
CHART = DEPLOY / "helm/pytube"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MARGIN = 20
"""Seconds that a worker gets to stop beyond its limits: docs/deploy.md#run-a-worker."""
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def config_of(text: str) -> Config:
    return parse(text, environment={"PYTUBE_DSN": "postgresql:///shop"})


def stops_within(config: Config) -> float:
    return (
        config.worker.drain_limit + max(tube.sink.request_timeout for tube in config.tubes.values()) + MARGIN
    )


# --- the image ----------------------------------------------------------------------------------


def test_all_that_the_image_copies_is_let_through() -> None:
    let = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*build["only-include"], PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml"]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    needed += [name for line in copied for name in line.split() if name != "."]
    assert sorted(set(needed) - set(let)) == []
    assert [name for name in let if not (ROOT / name).exists()] == []


def test_the_image_has_every_extra_but_the_embedded_servers() -> None:
    extras = set(re.findall(r"--extra (\w+)", (DEPLOY / "image/install").read_text()))
    assert extras == PROJECT["optional-dependencies"].keys() - {"demo", "embedded"}


def test_the_image_and_the_chart_have_the_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    kustomization = yaml.safe_load((DEPLOY / "kubernetes/kustomization.yaml").read_text())
    (argument,) = re.findall(r"^ARG VERSION=(.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    named = [chart["version"], chart["appVersion"], kustomization["images"][0]["newTag"], argument]
    assert {*named, PROJECT["version"]} == {__version__}


def test_tools_have_hashes_and_uv_is_that_of_the_environment() -> None:
    tools = (DEPLOY / "image/tools.lock").read_text()
    pins = re.findall(r"^([\w-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", tools, re.MULTILINE)
    (uv,) = re.findall(r"^UV_VERSION=(.+)$", (ROOT / ".ci/venv").read_text(), re.MULTILINE)
    assert dict(pins).keys() == {"setuptools", "uv"}
    assert dict(pins)["uv"] == uv


def test_scripts_are_shell() -> None:
    for name in ("install", "check"):
        subprocess.run(["sh", "-n", str(DEPLOY / "image" / name)], check=True)


# --- compose ------------------------------------------------------------------------------------


def test_the_files_that_compose_mounts_are_there() -> None:
    mounts = [one.split(":")[0] for each in SERVICES.values() for one in each.get("volumes", [])]
    files = [one for one in mounts if one.startswith(".")]
    assert files
    assert [one for one in files if not (DEPLOY / one).is_file()] == []


def test_compose_opens_ports_on_loopback_only() -> None:
    ports = [port for each in SERVICES.values() for port in each.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_compose_waits_for_what_it_needs() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":  # the image of pytube has a check
                assert "healthcheck" in SERVICES[other] or "build" in SERVICES[other], (name, other)
            else:
                assert how["condition"] == "service_completed_successfully"
                assert "restart" not in SERVICES[other], (name, other)


def test_images_of_others_have_versions() -> None:
    images = [each["image"] for each in SERVICES.values() if "build" not in each]
    assert images
    assert [image for image in images if not re.search(r":v?\d+\.\d+", image)] == []


def test_the_worker_of_compose_has_a_configuration_that_loads() -> None:
    config = config_of((DEPLOY / "compose/pytube.toml").read_text())
    assert config.worker.listen == "0.0.0.0:9187"
    assert float(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) >= stops_within(config)
    hosts = set(re.findall(r"(?:://|\")(\w+):\d+", (DEPLOY / "compose/pytube.toml").read_text()))
    assert hosts == {"opensearch", "redis", "kafka"}
    assert hosts <= SERVICES["apply"]["depends_on"].keys()


# --- Kubernetes ---------------------------------------------------------------------------------


def documents(path: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(path.read_text())


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in PLAIN:
        for document in documents(path):
            if document["kind"] in {"Deployment", "Job"}:
                yield document["metadata"]["name"], document["spec"]["template"]["spec"]


@pytest.mark.parametrize("path", made(), ids=lambda path: path.name)
def test_rules_are_those_of_the_one_file(path: Path) -> None:
    assert path.read_text() == made()[path], "run: python -m tests.helpers.manifests"


def test_the_rules_are_whole() -> None:
    (rules,) = documents(DEPLOY / "kubernetes/monitoring/rules.yaml")
    assert rules["spec"] == yaml.safe_load((DEPLOY / "alerts.yml").read_text())


def test_kustomizations_name_every_file() -> None:
    for path in PLAIN:
        if path.name == "kustomization.yaml":
            listed = yaml.safe_load(path.read_text())["resources"]
            there = [one.name for one in path.parent.glob("*.yaml") if one != path]
            assert sorted(listed) == sorted(there), path


def test_pods_can_do_nothing_but_serve() -> None:
    names = []
    for name, pod in pods():
        names.append(name)
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert "env" not in container, "secrets come by reference"
            assert container["resources"]["limits"]["memory"]
    assert sorted(names) == ["pytube-apply", "pytube-fleet", "pytube-worker"]


def test_workers_have_the_time_to_stop() -> None:
    config = config_of((DEPLOY / "kubernetes/pytube.toml").read_text())
    pod = dict(pods())["pytube-worker"]
    assert pod["terminationGracePeriodSeconds"] == stops_within(config)
    assert config.worker.listen == f"0.0.0.0:{pod['containers'][0]['ports'][0]['containerPort']}"


def test_autoscaling_alone_says_how_many_workers_there_are() -> None:
    (component,) = documents(DEPLOY / "kubernetes/autoscaling/kustomization.yaml")
    removed = [yaml.safe_load(one["patch"]) for one in component["patches"]]
    assert removed == [[{"op": "remove", "path": "/spec/replicas"}]]
    assert component["patches"][0]["target"] == {"kind": "Deployment", "name": "pytube-worker"}


# --- the chart ----------------------------------------------------------------------------------


def test_the_chart_has_the_configuration_of_the_manifests() -> None:
    config = config_of(VALUES["config"])
    assert config == config_of((DEPLOY / "kubernetes/pytube.toml").read_text())
    worker = VALUES["worker"]
    assert worker["drainLimit"] + worker["requestTimeout"] + MARGIN == stops_within(config)


def test_the_job_of_the_chart_runs_the_commands_of_the_manifests() -> None:
    files = [CHART / "templates/apply.yaml", DEPLOY / "kubernetes/apply.yaml"]
    chart, plain = [re.findall(r"^ +args: (\[.+\])$", path.read_text(), re.MULTILINE) for path in files]
    assert chart == plain == ["[install]", "[apply, --yes, --backfill]"]


@pytest.mark.parametrize("path", sorted((CHART / "templates").iterdir()), ids=lambda path: path.name)
def test_templates_name_values_that_are_there_and_end_what_they_begin(path: Path) -> None:
    text = path.read_text()
    for name in re.findall(r"\.Values\.([\w.]+)", text):
        value: Any = VALUES
        for part in name.split("."):
            assert part in value, name
            value = value[part]
    actions = re.findall(r"\{\{-?\s*(\w+)", text)
    opened = sum(actions.count(word) for word in ("if", "range", "with", "define"))
    assert opened == actions.count("end")
    assert text.count("{{") == text.count("}}")


def test_helm_renders_the_chart() -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    switched = [f"--set={name}.enabled=true" for name in ("monitoring", "autoscaling")]
    shown = subprocess.check_output([helm, "template", "shop", str(CHART), *switched], text=True)
    kinds = {one["kind"] for one in yaml.safe_load_all(shown)}
    assert {"Deployment", "Job", "PrometheusRule", "ScaledObject", "NetworkPolicy"} <= kinds


# --- systemd, workflows -------------------------------------------------------------------------


def test_units_are_valid(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    units = []
    for unit in (DEPLOY / "systemd").iterdir():
        copy = tmp_path / unit.name
        # The program is not installed where tests run.
        copy.write_text(unit.read_text().replace("/opt/pytube/bin/pytube-pg", "/bin/true"))
        units.append(str(copy))
    command = ["systemd-analyze", "verify", "--man=no", *units]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    # It also tells of the machine's own units.
    said = [line for line in answer.stderr.splitlines() if str(tmp_path) in line]
    assert (answer.returncode, said) == (0, [])


def test_the_page_shows_lines_of_the_unit() -> None:
    unit = (DEPLOY / "systemd/pytube-worker.service").read_text().splitlines()
    (core,) = re.findall(
        r"^```ini\n(.+?)^```", (ROOT / "docs/deploy.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert [line for line in core.splitlines() if line not in unit] == []


def test_the_unit_of_the_worker_lets_it_stop() -> None:
    unit = (DEPLOY / "systemd/pytube-worker.service").read_text()
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(seconds) >= stops_within(config_of((DEPLOY / "kubernetes/pytube.toml").read_text()))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_do_little(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert re.search(r"@(v\d+|release/v\d+)$", step.get("uses", "@v1"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_there_is(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    commands = "\n".join(step.get("run", "") for job in jobs for step in job["steps"])
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([\w-]+)", commands)) <= set(targets)
    files = re.findall(r"(?:\.ci|deploy)/[\w./]+", commands)
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_the_site_has_the_pages_of_main_also_after_a_patch_of_an_older_version() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/docs.yml").read_text())["jobs"]
    checkout = jobs["build"]["steps"][0]["with"]
    assert (checkout["ref"], checkout["fetch-depth"]) == ("main", 0)


def test_each_python_that_is_promised_is_tested_and_tried() -> None:
    promised = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    (oldest,) = re.findall(r"^OLDEST=(.+)$", (ROOT / ".ci/venv").read_text(), re.MULTILINE)
    assert PROJECT["requires-python"] == f">={oldest}" == f">={promised[0]}"
    jobs = {path.stem: yaml.safe_load(path.read_text())["jobs"] for path in WORKFLOWS}
    assert jobs["tests"]["test"]["strategy"]["matrix"]["python"] == promised
    (versions,) = [step["with"]["python-version"] for step in jobs["release"]["build"]["steps"][1:2]]
    assert sorted(versions.split()) == promised


def test_the_changelog_has_the_version() -> None:
    assert re.search(rf"^## {re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
