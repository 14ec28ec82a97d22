"""The alerts fire when they must, and only then: Prometheus's promtool runs deploy/tests over the rules."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.alerts import RULES, read_alerts
from tests.docs.rule_tests import FILES, firing, silent
from tests.helpers.database import ROOT
from tests.helpers.pgbouncer import BUILT

ALERTS = read_alerts()
DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"


@pytest.fixture(scope="module")
def promtool() -> str:
    """The program; where nobody installs it, people still can run the other tests."""
    found = shutil.which("promtool", path=f"{os.environ['PATH']}:{BUILT}")
    if found is None:
        missing = "promtool is not installed: run .ci/system as root, or install Debian's package prometheus"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def run(*command: str | Path) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_valid(promtool: str) -> None:
    run(promtool, "check", "rules", "--lint-fatal", RULES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_alerts_fire_when_they_must_and_only_then(promtool: str, file: Path) -> None:
    run(promtool, "test", "rules", file)


def test_each_alert_has_a_series_that_sets_it_off_and_one_that_does_not() -> None:
    assert set(firing()) == silent() == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_the_labels_that_its_words_name(name: str) -> None:
    """A label that the expression aggregates away would be an empty word."""
    assert ALERTS[name].labels - firing()[name] == set()


def test_the_queries_of_the_dashboard_are_valid(promtool: str, tmp_path: Path) -> None:
    queries = [re.sub(r"\$__\w+", "5m", query) for query in of_targets(json.loads(DASHBOARD.read_text()))]
    assert queries
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # which is YAML, too
    run(promtool, "check", "rules", file)


def of_targets(part: Any) -> list[str]:
    """The expressions in a part of the dashboard."""
    if isinstance(part, list):
        return [query for one in part for query in of_targets(one)]
    if not isinstance(part, dict):
        return []
    return [
        query for key, value in part.items() for query in ([value] if key == "expr" else of_targets(value))
    ]
