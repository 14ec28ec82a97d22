"""A server that runs on Java: started, stopped, killed and restarted in a folder of its own."""

from __future__ import annotations

import atexit
import signal
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from pytube.embedded import java
from pytube.embedded.process import EmbeddedError, ServerProcess

STOP_TIMEOUT = 30.0


class JavaServer:
    """A server on loopback; what it holds stays in `directory` over `stop`, `kill` and `start`.

    It ends with this process.
    """

    NAME: ClassVar[str]
    START_TIMEOUT: ClassVar[float]

    def __init__(self, directory: Path | str) -> None:
        """Nothing runs before `start`. The directory is made if it is missing."""
        self.directory = Path(directory).resolve()
        self.log = self.directory / f"{self.NAME.lower()}.log"
        self._process: ServerProcess | None = None
        self._user: str | None = None
        """Who runs it; None: we do."""

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """Its process id; `EmbeddedError` when it was never started."""
        if self._process is None:
            message = f"{self.NAME} in {self.directory} was not started"
            raise EmbeddedError(message)
        return self._process.pid

    def start(self) -> Self:
        """Start, and wait until it serves.

        Raises:
            EmbeddedError: Java or the jars can't be had, or it does not come up (with its log).
        """
        if self.running:
            return self
        self._process = ServerProcess(
            self._prepare(),
            log=self.log,
            guard_signal=signal.SIGKILL,
            user=self._user,
            env=self._environment(),
        )
        atexit.register(self.close)
        self._process.wait_ready(self._serves, timeout=self.START_TIMEOUT, name=self.NAME)
        return self

    def stop(self) -> None:
        """Shut down in order."""
        if self._process is not None:
            self._process.stop(signal.SIGTERM, timeout=STOP_TIMEOUT, name=self.NAME)

    def kill(self) -> None:
        """SIGKILL the server; `start` recovers."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> Self:
        """Stop and start, on the same port."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """End for good: kill, and let the ports go. The folder stays."""
        atexit.unregister(self.close)
        self.kill()
        self._release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _prepare(self) -> list[str]:
        """The command; what it needs is in the folder afterwards."""
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        """The variables of its environment."""
        return java.environment()

    def _serves(self) -> bool:
        """Whether it takes requests."""
        raise NotImplementedError

    def _release(self) -> None:
        """Let the ports go."""
        raise NotImplementedError
