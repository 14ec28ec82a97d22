"""Faults of the network between one worker and one server."""

from __future__ import annotations

from collections.abc import Callable

from tests.crash.chaos.crew import SESSION_TIMEOUT
from tests.crash.chaos.monkey import Course, Fault, Scene
from tests.helpers.proxy import Mode

_SLOW_DELAYS = (0.02, 0.3, 1.0)
"""Seconds that each chunk is under way."""


def _through(mode: Mode) -> Callable[[Scene], Course]:
    def strike(scene: Scene) -> Course:
        name, server = scene.draw.choice(sorted(scene.arena.proxies))
        with scene.alone(f"network of {name}"):
            proxy = scene.arena.proxies[name, server]
            seconds = scene.draw.uniform(0.2, 2.5) * SESSION_TIMEOUT
            delay = scene.draw.choice(_SLOW_DELAYS) if mode is Mode.SLOW else 0.0
            scene.tell(f"{name} and {server}, for {seconds:.1f} s" + (f", by {delay:g} s" if delay else ""))
            proxy.switch(mode, delay=delay)
            yield seconds
            proxy.switch(Mode.PASS)

    return strike


FAULTS = [
    Fault("network cut", 1.5, _through(Mode.CUT)),
    Fault("network half open", 1, _through(Mode.HALF_OPEN)),
    Fault("network slow", 1, _through(Mode.SLOW)),
    Fault("requests lost", 0.5, _through(Mode.REQUESTS_LOST)),
    Fault("answers lost", 0.5, _through(Mode.ANSWERS_LOST)),
]
