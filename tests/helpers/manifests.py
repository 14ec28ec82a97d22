"""Files of deploy/ that are made from another one: `python -m tests.helpers.manifests` renews them."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.database import ROOT

ALERTS = ROOT / "deploy/alerts.yml"
_HEAD = """\
# Made of deploy/alerts.yml by python -m tests.helpers.manifests: change that file.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: pytube
spec:
"""


def made() -> dict[Path, str]:
    """Each file, and what it has to hold."""
    alerts = ALERTS.read_text()
    inner = "".join(f"  {line}" if line.strip() else line for line in alerts.splitlines(keepends=True))
    return {
        ROOT / "deploy/kubernetes/monitoring/rules.yaml": _HEAD + inner,
        ROOT / "deploy/helm/pytube/files/alerts.yml": alerts,
    }


def main() -> None:
    """Write them."""
    for path, text in made().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
