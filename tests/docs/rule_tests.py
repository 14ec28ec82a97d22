"""The tests of the alert rules, in deploy/tests: promtool runs them; here is what they feed in and expect."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from tests.helpers.database import ROOT

FILES = sorted((ROOT / "deploy" / "tests").glob("*.yml"))
_TEXT = "\n".join(file.read_text() for file in FILES)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_SCRAPED = {"instance", "job"}
"""What Prometheus adds to whatever it scrapes."""

Shape = tuple[str, frozenset[str], str | None]
"""A series as far as rules look at it: its name, the names of its labels, and the class of its pods."""


def shape(name: str, labels: Mapping[str, str]) -> Shape:
    """That of one sample, as it is printed."""
    return name, frozenset(labels), labels.get("class")


def fed(*, of_hosts: bool) -> set[Shape]:
    """Our series that are fed in, as they would be printed: of several hosts, or of the only one."""
    found = (
        (name, dict(_LABEL.findall(labels)))
        for name, labels in re.findall(r"series: '(pytube_\w+)\{([^}]*)\}'", _TEXT)
    )
    return {
        shape(name, {label: value for label, value in labels.items() if label not in _SCRAPED})
        for name, labels in found
        if ("host" in labels) == of_hosts
    }


def shapes(exposition: str) -> set[Shape]:
    """Those of all samples of a scrape."""
    families = text_string_to_metric_families(exposition)
    return {shape(sample.name, sample.labels) for family in families for sample in family.samples}


def firing() -> dict[str, set[str]]:
    """The alerts that must fire somewhere, with the labels that they have then."""
    found: dict[str, set[str]] = {}
    for labels in re.findall(r"labels: 'ALERTS\{([^}]*)\}', value: 1", _TEXT):
        named = dict(_LABEL.findall(labels))
        assert named["alertstate"] == "firing", labels
        found.setdefault(named["alertname"], set()).update(named)
    return found


def silent() -> set[str]:
    """The alerts that must not fire somewhere."""
    expected = (
        r"""expr: 'ALERTS\{alertname="(\w+)", alertstate="firing"\}', eval_time: \w+, exp_samples: \[\]"""
    )
    return set(re.findall(expected, _TEXT))
