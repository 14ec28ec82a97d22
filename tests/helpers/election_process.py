"""A worker that holds claims in a process of its own, asks for each again and again, and tells.

Lines of JSON: `holds` with the partitions; `proved` and `refused` with the partition and the moment when
it was asked (CLOCK_MONOTONIC, the same in all processes). SIGTERM stops it in order.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from typing import Any

from pytube.errors import BrokerUnavailable, ClaimLost
from tests.helpers.election import Holder, neli

PAUSE = 0.05


def say(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


async def prove_again_and_again(holder: Holder) -> None:
    told: set[int] = set()
    while True:
        if holder.partitions != told:
            told = holder.partitions
            say("holds", partitions=sorted(told))
        for partition, claim in list(holder.holds.items()):
            if claim.withdrawn is not None:
                continue
            asked_at = time.monotonic()
            try:
                await claim.prove()
            except ClaimLost as error:
                say("refused", partition=partition, asked_at=asked_at, reason=str(error))
            except BrokerUnavailable as error:
                say("no answer", partition=partition, asked_at=asked_at, reason=str(error))
            else:
                say("proved", partition=partition, asked_at=asked_at)
        await asyncio.sleep(PAUSE)


async def main(bootstrap: str, tube: str, settings: dict[str, Any]) -> None:
    holder = Holder(neli(bootstrap, tube, **settings))
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await holder.start()
    prover = asyncio.create_task(prove_again_and_again(holder))
    await stopping.wait()
    prover.cancel()
    await asyncio.gather(prover, return_exceptions=True)
    say("stopping", at=time.monotonic())
    await holder.stop()
    say("stopped", at=time.monotonic())


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
