"""What deploy/kubernetes runs, with the rights that docs/containers.md gives each of its secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from tests.helpers.cli import run, run_json
from tests.helpers.database import ROOT
from tests.helpers.roles import as_role, database_name, roles, staff

pytestmark = pytest.mark.every_server

KUBERNETES = ROOT / "deploy/kubernetes"
LOGINS = {"pytube-install": "installer", "pytube-admin": "admin", "pytube-monitor": "monitor"}


def install(dsn: str, prefix: str) -> object:
    return run("install", "--roles", prefix, dsn=dsn)


def containers_of_the_job() -> list[dict[str, Any]]:
    pod = yaml.safe_load((KUBERNETES / "apply.yaml").read_text())["spec"]["template"]["spec"]
    return [*pod["initContainers"], *pod["containers"]]


def test_the_job_and_the_metrics_of_the_fleet_need_no_other_rights(any_bare_dsn: str, tmp_path: Path) -> None:
    (tmp_path / "pytube.toml").write_text((KUBERNETES / "pytube.toml").read_text())
    owner = f"shop_{database_name(any_bare_dsn)}"
    with roles(any_bare_dsn, owner) as session, staff(any_bare_dsn, superuser=False, install=install) as team:
        session.execute(f"GRANT CREATE ON DATABASE {database_name(any_bare_dsn)} TO {owner}".encode())
        session.execute(f"GRANT {owner} TO {team.name('admin')}".encode())
        with psycopg.connect(as_role(any_bare_dsn, owner), autocommit=True) as shop:
            shop.execute((ROOT / "examples/shop.sql").read_bytes())
        for _deployment in range(2):
            for container in containers_of_the_job():
                (source,) = container["envFrom"]
                dsn = team.dsns[LOGINS[source["secretRef"]["name"]]]
                run(*container["args"], dsn=dsn, folder=tmp_path)
        monitor = team.dsns["monitor"]
        (backfill,) = run_json("backfill", "status", dsn=monitor)
        assert backfill["tube"] == "orders"
        assert "pytube_fleet_pods" in run("status", "--prometheus", dsn=monitor, folder=tmp_path).stdout


def test_the_page_names_each_secret() -> None:
    page = (ROOT / "docs/containers.md").read_text()
    used = {
        name
        for path in KUBERNETES.rglob("*.yaml")
        for name in re.findall(r"secretRef:\s+name: (\S+)", path.read_text())
    }
    assert used == set(re.findall(r"^\| `(pytube-\w+)`", page, re.MULTILINE))
