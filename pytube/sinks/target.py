"""Finds the function that `module:function` names."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from pytube.errors import ConfigError


def import_target(target: str) -> Callable[..., Any]:
    """The function or other callable behind `module:attribute.path`; `ConfigError` says why not."""
    module_name, _, path = target.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise _bad(
                target,
                f"there is no module {error.name}; install it, or put its folder on PYTHONPATH",
            ) from error
        raise _bad(target, f"importing {module_name} failed: {error}") from error
    except (Exception, SystemExit) as error:
        raise _bad(target, f"importing {module_name} raised {type(error).__name__}: {error}") from error
    where = f"module {module_name}"
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise _bad(target, f"{where} has no {name}") from error
        where = f"{where}, {name}"
    if isinstance(found, type):
        raise _bad(target, f"{path} is a class; name a function, or a method of an instance")
    if not callable(found):
        raise _bad(target, f"{path} is a {type(found).__name__}, which can't be called")
    function: Callable[..., Any] = found
    if _is_any(function, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        raise _bad(target, f"{path} is a generator; it has to return its results, not yield them")
    return function


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call gives a coroutine."""
    return _is_any(function, inspect.iscoroutinefunction)


def _is_any(function: Callable[..., Any], *tests: Callable[[Any], bool]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return any(test(function) or test(type(function).__call__) for test in tests)


def _bad(target: str, reason: str) -> ConfigError:
    return ConfigError(f'sink "callable": option "target" = "{target}": {reason}')
