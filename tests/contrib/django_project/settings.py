"""Its settings; databases and the file come from the environment."""

import os
from typing import Any

from psycopg.conninfo import conninfo_to_dict


def _database(name: str) -> dict[str, Any]:
    given = conninfo_to_dict(os.environ[name])
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": given.get("host", ""),
        "PORT": given.get("port", ""),
        "NAME": given["dbname"],
        "USER": given.get("user", ""),
        "TEST": {"NAME": f"test_{given['dbname']}"},
    }


DATABASES = {"default": _database("SHOP_DSN")}
if "OTHER_DSN" in os.environ:
    DATABASES["other"] = _database("OTHER_DSN")
INSTALLED_APPS = ["pytube.contrib.django", "tests.contrib.django_project.shop"]
if "SHOP_STOCK" in os.environ:
    INSTALLED_APPS.append("tests.contrib.django_project.stock")
PYTUBE = {"schema": os.environ.get("SHOP_SCHEMA", "tube"), "config": os.environ.get("SHOP_CONFIG")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "only for tests"
USE_TZ = True
