"""Whether the declared documents of a configuration are compiled, and are the ones applied last."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from pytube.config import Config, DeclaredEnrich, EnrichConfig, TubeConfig
from pytube.errors import ConfigError

RELATIONS = "relations"
"""The type of the sink of companion tubes."""
_SHOWN = 12
"""Characters of a digest that are shown."""


def digest_of(config: EnrichConfig) -> str | None:
    """The digest of the declared document that the section was made of; None: of no document."""
    return config.digest if isinstance(config, DeclaredEnrich) else None


def unresolved(config: Config) -> set[str]:
    """The documents that were not compiled."""
    return {name for name in config.documents if digest_of(config.tube(name).enrich) is None}


def refuse_unresolved(config: Config, tubes: Collection[str]) -> None:
    """Raise `ConfigError` if one of the tubes is that of a document that was not compiled."""
    for name in sorted(unresolved(config)):
        if name in tubes:
            raise ConfigError(
                f"document {name!r} is declared but not compiled, which needs the catalog of the database; "
                "call pytube.documents.resolve.resolve(config), and use the config that it returns"
            )


def with_companions(config: Config, tubes: Iterable[str]) -> list[str]:
    """The tubes, each with its companions behind it: whoever serves a document has to serve its relations."""
    companions: dict[str, list[str]] = {}
    for name, tube in config.tubes.items():
        if tube.sink.type == RELATIONS:
            companions.setdefault(str(tube.sink.options.get("tube")), []).append(name)
    return list(dict.fromkeys(one for name in tubes for one in (name, *companions.get(name, ()))))


def trouble_of(tube: TubeConfig) -> Literal["sink", "source"] | None:
    """What of the tube is down where its document was changed; None: it is of no declared document."""
    if digest_of(tube.enrich) is not None:
        return "source"
    return "sink" if tube.sink.type == RELATIONS else None


def why_not_applied(tube: str, *, applied: str | None, own: str | None) -> str | None:
    """Why nothing of a tube may be delivered, in a sentence; None: its document is the applied one.

    Args:
        tube: its name, which is the document's.
        applied: the digest in the database; None: no document was applied.
        own: the digest in the configuration; None: it declares none.
    """
    if applied == own:
        return None
    if own is None:
        return (
            f"tube {tube} is that of a declared document, and the configuration of this worker has no "
            f"[document.{tube}]; give this worker the file that was applied"
        )
    difference = "none was"
    if applied is not None:
        difference = (
            f"the database has {applied[:_SHOWN]}, the file {own[:_SHOWN]}: the file has changed, or a table "
            'has, as by a new column that "*" takes in'
        )
    return not_applied(tube, difference)


def not_applied(document: str, difference: str) -> str:
    """The sentence about a document that is not the one in the database; `difference`: in what."""
    return (
        f"document {document} differs from the declaration applied last ({difference}); run `pytube apply`, "
        "or, if that is done, send this worker SIGHUP, so that it loads the file"
    )
