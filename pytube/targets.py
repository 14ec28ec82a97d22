"""Functions and classes of the user that the configuration names as `module:function`."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

from pytube.errors import ConfigError

TARGET = r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$"
"""The form of a target."""


def import_object(target: str, key: str) -> Any:
    """The object behind `module:attribute.path`.

    Args:
        target: its name.
        key: where the name stands, for the error.

    Raises:
        ConfigError: says why there is none.
    """
    if re.match(TARGET, target) is None:
        raise _bad(key, target, "expected module:name, e.g. shop.documents:slim")
    module_name, _, path = target.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise _bad(
                key,
                target,
                f"there is no module {error.name}; install it, or put its folder on PYTHONPATH",
            ) from error
        raise _bad(key, target, f"importing {module_name} failed: {error}") from error
    except (Exception, SystemExit) as error:
        raise _bad(key, target, f"importing {module_name} raised {type(error).__name__}: {error}") from error
    where = f"module {module_name}"
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise _bad(key, target, f"{where} has no {name}") from error
        where = f"{where}, {name}"
    return found


def import_target(target: str, key: str) -> Callable[..., Any]:
    """The function or other callable behind `module:attribute.path`; arguments as of `import_object`.

    Raises:
        ConfigError: says why there is none.
    """
    found = import_object(target, key)
    path = target.partition(":")[2]
    if isinstance(found, type):
        raise _bad(key, target, f"{path} is a class; name a function, or a method of an instance")
    if not callable(found):
        raise _bad(key, target, f"{path} is a {type(found).__name__}, which can't be called")
    function: Callable[..., Any] = found
    if _is_any(function, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        raise _bad(key, target, f"{path} is a generator; it has to return its results, not yield them")
    return function


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call gives a coroutine."""
    return _is_any(function, inspect.iscoroutinefunction)


def _is_any(function: Callable[..., Any], *tests: Callable[[Any], bool]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return any(test(function) or test(type(function).__call__) for test in tests)


def _bad(key: str, target: str, reason: str) -> ConfigError:
    return ConfigError(f'{key} = "{target}": {reason}')
