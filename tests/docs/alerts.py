"""The alerts of deploy/alerts.yml, and whether those on the fleet would go off."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tests.helpers.database import ROOT

RULES = ROOT / "deploy" / "alerts.yml"
_EXPR = re.compile(
    r"(?:max|min|sum) by \([\w, ]+\) \((\w+)(?:\{(\w+)=\"(\w+)\"\})?"
    r"(?: (?:and|unless) on \([\w, ]+\) (?:\w+(?:\{\w+=\"\w+\"\})?|\(\w+ == 0.*?\)))*\) (==|>) ([\d.]+)"
)
_COMPARE: dict[str, Callable[[float, float], bool]] = {"==": operator.eq, ">": operator.gt}


@dataclass(frozen=True, slots=True)
class Alert:
    """One of them."""

    name: str
    expr: str
    runbook: str | None
    """The path and anchor of its section."""

    labels: frozenset[str]
    """Those that its annotations name."""

    def goes_off(self, metrics: str, limit: float | None = None) -> bool:
        """Whether it would, if these metrics stayed as they are.

        An aggregate of values that all fulfil the condition does, too; the drill has one partition, and no
        outbox, which is what `and` and `unless` are about.

        Args:
            metrics: what `pytube status --prometheus` printed.
            limit: in place of its own, where a test does not wait as long.
        """
        found = _EXPR.fullmatch(self.expr)
        assert found, f"{self.name} is no alert on a gauge of the fleet: {self.expr}"
        metric, label, wanted, compare, own = found.groups()
        values = [
            sample.value
            for family in text_string_to_metric_families(metrics)
            for sample in family.samples
            if sample.name == metric and (label is None or sample.labels[label] == wanted)
        ]
        threshold = float(own) if limit is None else limit
        return any(_COMPARE[compare](value, threshold) for value in values)


def read_alerts() -> dict[str, Alert]:
    """All of them, by name."""
    found = {}
    for rule in re.split(r"^ +- alert: ", RULES.read_text(), flags=re.MULTILINE)[1:]:
        name = rule.split()[0]
        expr = re.search(r"^ +expr: '(.*)'$", rule, re.MULTILINE)
        runbook = re.search(r'^ +runbook: "(.*)"$', rule, re.MULTILINE)
        assert expr, name
        labels = frozenset(re.findall(r"\$labels\.(\w+)", rule))
        found[name] = Alert(name, expr[1], runbook and runbook[1], labels)
    return found
