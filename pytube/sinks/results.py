"""Checks an answer before anybody counts on it."""

from __future__ import annotations

from collections.abc import Sequence

from pytube.errors import SinkContract
from pytube.model import Batch, Ok, Reject, Result, Retry, Stale

_KINDS = (Ok, Retry, Reject, Stale)


def checked_results(who: str, batch: Batch, answer: object) -> list[Result]:
    """The results, one per document; `SinkContract` says how `who` broke the contract."""
    if not isinstance(answer, Sequence) or isinstance(answer, str | bytes):
        raise SinkContract(
            f"{who} answered with a {type(answer).__name__}; expected a list of "
            "Ok, Retry, Reject or Stale, one per document"
        )
    if len(answer) != len(batch):
        raise SinkContract(
            f"{who} answered {len(answer)} results for {len(batch)} documents; "
            "expected one per document, in order"
        )
    results: list[Result] = []
    for index, item in enumerate(answer):
        if not isinstance(item, _KINDS):
            found = f"the class {item.__name__}" if isinstance(item, type) else type(item).__name__
            raise SinkContract(f"{who}: result {index} is {found}; expected an Ok, Retry, Reject or Stale")
        results.append(item)
    return results
