"""Options of the formats. None of them is a secret: plans and the UI show them."""

from __future__ import annotations

from collections.abc import Mapping

from pytube.errors import UsageError
from pytube.spark.hosts import Host


def host_of(options: Mapping[str, str], bound: Mapping[str, Host]) -> Host:
    """The database that the options mean.

    Args:
        options: `host`, the name of a database that was registered; or `dsn`, and `schema`.
        bound: what was registered.

    Raises:
        UsageError: neither is given, or there is no such name, or the DSN holds a password.
        ConfigError: it is no connection string.
    """
    name, dsn = options.get("host"), options.get("dsn")
    if name is not None:
        if name not in bound:
            known = ", ".join(sorted(bound)) or "none"
            raise UsageError(f"no database {name!r} is registered (there is {known}): pytube.spark.register")
        return bound[name]
    if dsn is None:
        if "default" in bound:
            return bound["default"]
        raise UsageError(
            "which database? Call pytube.spark.register(spark, dsn), or give the option dsn (no password)"
        )
    host = Host(dsn, options.get("schema", "tube"))
    if host.has_password():
        raise UsageError(
            "an option must not hold a password, because plans and the UI show it: use "
            "pytube.spark.register, dsn=env:NAME with the variable on all machines, or a service or "
            "passfile of libpq"
        )
    return host


def required(options: Mapping[str, str], name: str, what: str) -> str:
    """An option that has to be there."""
    value = options.get(name)
    if not value:
        raise UsageError(f"the option {name!r} lacks: {what}")
    return value


def number(options: Mapping[str, str], name: str, default: int) -> int:
    """An option that is a number of at least 1."""
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"the option {name!r} is {text!r}; give a number of at least 1")
    return int(text)


def flag(options: Mapping[str, str], name: str) -> bool:
    """An option that is true or false."""
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise UsageError(f"the option {name!r} is {text!r}; give true or false")
    return text == "true"


def listed(options: Mapping[str, str], name: str) -> list[str]:
    """An option of names joined by commas."""
    return [part.strip() for part in options.get(name, "").split(",") if part.strip()]
