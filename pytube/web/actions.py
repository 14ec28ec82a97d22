"""Operators' actions from a page: confirmed on a separate page, done by a POST, with a row in the audit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pytube import admin
from pytube.admin import Parking, Seen
from pytube.clock import length_of
from pytube.counts import say_count
from pytube.errors import UsageError
from pytube.web.html import Html, address, link, tag
from pytube.web.site import Place, Session, Site, hidden, is_from_here, is_genuine, page, session_of

_LONGEST_FORM: Final = 32_768
"""Bytes: a key of Postgres' index may have some thousands, and each may become three."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An action, and its target."""

    action: str
    tube: str
    host: str | None = None
    partition: int | None = None
    shard: int | None = None
    key: str | None = None
    snapshot: str | None = None
    """The snapshot of the requesting page, so that keys parked since are left alone."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Wanted:
        """Read it from a link or a form; `UsageError` says why it is invalid."""
        action = given.get("action", "")
        if action not in _TITLES:
            raise UsageError(f"{action!r} is not a valid action; expected one of: {', '.join(_TITLES)}")
        shard, key = number(given, "shard"), given.get("key")
        if (shard is None) != (key is None):
            raise UsageError("a shard and a key belong together: give both, or neither")
        tube, partition = text(given, "tube"), number(given, "partition")
        return cls(action, tube, given.get("host"), partition, shard, key, _snapshot(given))

    @property
    def what(self) -> str:
        """In words."""
        host = "" if self.host is None else f" on host {self.host}"
        if self.action in ("pause", "resume"):
            part = "" if self.partition is None else f"partition {self.partition} of "
            return f"{part}{self.tube}{host}"
        if self.key is None:
            return f"all parked documents of {self.tube}{host}"
        return f"the parked document {self.key} of shard {self.shard} of {self.tube}{host}"

    @property
    def parking(self) -> Parking:
        """Which parked documents."""
        return Parking(self.tube, self.shard, self.key)

    @property
    def seen(self) -> Seen | None:
        """The snapshot of the requesting page; None: there was none."""
        return None if self.snapshot is None else Seen(0, self.snapshot, None)

    @property
    def page(self) -> str:
        """Where to go afterwards."""
        if self.partition is not None:
            return address("/partition", tube=self.tube, partition=self.partition, host=self.host)
        return address("/tube", name=self.tube, host=self.host)


_TITLES: Final = {"pause": "Pause", "resume": "Resume", "retry": "Retry", "drop": "Drop"}
_MEANS: Final = {
    "pause": "Its leaders finish the documents in flight, then send nothing. Writers continue, and the tube "
    "fills. The pause is kept in the database, so it also applies to workers that start later.",
    "resume": "Its leaders continue where they stopped. A pause of the whole tube ends for all partitions, "
    "and so does a stop by a worker (poison, too many parked documents).",
    "retry": "They are touched, so that workers deliver them, or park them again.",
    "drop": "They are forgotten. The sink stays as it is until they are touched again.",
}


def text(given: Mapping[str, str], name: str) -> str:
    """A value that has to be there."""
    value = given.get(name)
    if not value:
        raise UsageError(f"{name!r} is missing in the address of this page; begin at the overview")
    return value


def number(given: Mapping[str, str], name: str) -> int | None:
    """A number of Postgres' type integer from 0 on; None where it is not given."""
    value = given.get(name)
    if value is None:
        return None
    if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) >= 2**31:
        raise UsageError(f"{name} is {value!r}; expected a number from 0 on")
    return int(value)


def _snapshot(given: Mapping[str, str]) -> str | None:
    """A snapshot of Postgres, as the page that asks wrote it into its form."""
    value = given.get("snapshot")
    if value is not None and not re.fullmatch(r"[0-9]{1,19}:[0-9]{1,19}:[0-9,]*", value):
        raise UsageError("the snapshot is missing in this form; begin at the overview")
    return value


def buttons(request: Request, *wanted: Wanted) -> Html | None:
    """Links to the pages that ask; None where nothing may be done."""
    if session_of(request) is None:
        return None
    return tag(
        "p",
        *(
            tag(
                "a", f"{_TITLES[one.action]} {one.what}", href=address("/ask", **asdict(one)), class_="button"
            )
            for one in wanted
        ),
        class_="actions",
    )


def ask(site: Site, request: Request) -> Response:
    """The page that asks before something is done, and says how much it is."""
    session = acting(request)
    wanted = Wanted.of(request.query_params)
    title = f"{_TITLES[wanted.action]} {wanted.what}?"
    seen = _see(site.place(wanted.host), wanted)
    if seen is not None and not seen.count:
        return page(request, title, [tag("p", "Nothing of that is parked."), link("Back", wanted.page)])
    fields = asdict(wanted) | {"csrf": session.csrf, "snapshot": seen.snapshot if seen else None}
    form = tag(
        "form",
        *(hidden(name, value) for name, value in fields.items() if value is not None),
        *(_pause_fields() if wanted.action == "pause" else []),
        tag("button", _TITLES[wanted.action], class_="danger" if wanted.action == "drop" else None),
        " ",
        link("Cancel", wanted.page),
        method="post",
        action="/act",
        autocomplete="off",
    )
    how_many = None if seen is None else tag("p", f"Documents: {seen.count}.")
    return page(request, title, [tag("p", _MEANS[wanted.action]), how_many, form])


def _pause_fields() -> list[Html]:
    return [
        tag(
            "label",
            "For how long (90s, 10m, 2h, 1d); empty: until it is resumed",
            tag("input", name="lasts", pattern=r"\s*([0-9]{1,6}\s*[smhd])?\s*", maxlength=12),
        ),
        tag("label", "Why, for other people", tag("input", name="reason", maxlength=300)),
    ]


def _see(place: Place, wanted: Wanted) -> Seen | None:
    if wanted.action in ("pause", "resume"):
        return None
    with place.connect() as connection:
        return admin.see_parked(connection, wanted.parking, place.schema)


async def act(site: Site, request: Request) -> Response:
    """Do it, and go back to the page that it was asked from."""
    session = acting(request)
    form = await form_of(request)
    checked(request, session, form)
    wanted = Wanted.of(form)
    try:
        lasts = length_of(form["lasts"]) if form.get("lasts", "").strip() else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    session.notice = await run_in_threadpool(
        _done, site.place(wanted.host), wanted, lasts, form.get("reason") or None
    )
    return RedirectResponse(wanted.page, 303)


def _done(place: Place, wanted: Wanted, lasts: timedelta | None, reason: str | None) -> str:
    """Do it; returns a report in words."""
    with place.connect() as connection:
        match wanted.action:
            case "pause":
                admin.pause(
                    connection,
                    wanted.tube,
                    place.schema,
                    partition=wanted.partition,
                    lasts=lasts,
                    reason=reason,
                )
                return f"Paused: {wanted.what}{'' if lasts is None else f', for {lasts}'}."
            case "resume":
                ended = admin.resume(connection, wanted.tube, place.schema, partition=wanted.partition)
                return f"{'Resumed' if ended else 'It was not paused'}: {wanted.what}."
            case "retry":
                count = admin.retry_parked(connection, wanted.parking, place.schema, wanted.seen)
                return f"Touched: {say_count(count, 'parked document')} of {wanted.tube}."
            case _:
                count = admin.drop_parked(connection, wanted.parking, place.schema, wanted.seen)
                return f"Dropped: {say_count(count, 'parked document')} of {wanted.tube}."


class Refused(UsageError):
    """This may not be done from here."""


def acting(request: Request) -> Session:
    """Who acts; `Refused` where all is read-only."""
    session = session_of(request)
    if session is None:
        raise Refused(
            "this server is read-only; to act, start it with --token-file, or with PYTUBE_WEB_TOKEN set"
        )
    return session


def checked(request: Request, session: Session, form: Mapping[str, str]) -> None:
    """`Refused` unless the form comes from one of these pages."""
    if not (is_from_here(request) and is_genuine(session, form.get("csrf", ""))):
        raise Refused(
            "this form was not sent from a page of this server, or the session is over; log in again"
        )


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form; `UsageError` when it is too large, or none."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            raise UsageError(f"the form is longer than {_LONGEST_FORM} bytes")
    try:
        return dict(
            parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20)
        )
    except ValueError:  # of Unicode, too
        raise UsageError("the form can't be read") from None
