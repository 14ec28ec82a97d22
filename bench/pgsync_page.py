"""What `bench.pgsync` prints: how both tools were set up, and what was found."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench.frame.page import Section, Target
from bench.frame.statistics import percentile
from bench.nested_orders import KINDS

OWN, SYNC = "pytube", "PGSync"
SHORT = "0.01"
AS_IT_COMES, SHORT_POLLS, STREAMED = (
    "PGSync, as it comes",
    f"PGSync, `POLL_TIMEOUT={SHORT}`",
    "PGSync, `--wal`",
)
LOAD_TO_PGSYNC, P50_TO_PGSYNC = 3.0, 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """What it took until the index had all documents."""

    seconds: float
    cpu: dict[str, float]
    """Seconds of CPU of each part."""


@dataclass(frozen=True, slots=True)
class Results:
    """All that was measured, each by the name of the tool."""

    versions: str
    orders: int
    probes: int
    loads: dict[str, Load]
    took: dict[str, dict[str, list[float]]]
    """Milliseconds of each kind of change."""
    same: dict[str, str]
    """Whether the index was right in the end."""

    def section(self) -> Section:
        """The page."""
        section = Section("PGSync and pytube, the same documents", self._how())
        self._show_loads(section)
        self._show_changes(section)
        section.say(
            "Then some changes of other sorts (a customer renamed, items deleted and moved, orders made, "
            "deleted and given to another customer), and each index was compared with what the rows of its "
            "database say, arrays in any order, null for an empty one. "
            + "; ".join(f"{tool}: {verdict}" for tool, verdict in self.same.items())
            + "."
        )
        section.targets = self._targets()
        return section

    def _how(self) -> str:
        return (
            f"{self.versions} {self.orders:,} orders, nested: each with its customer and about 3 items, each "
            "item with its product. Two equal databases of one Postgres with `wal_level = logical`, with all "
            "indexes that the foreign keys ask for; one Redis; one OpenSearch, which took other documents "
            "first. pytube came first, so that PGSync found the warmer servers. Postgres is the system's: "
            "PGSync reads the log by `test_decoding`, which the bundled one lacks.\n\n"
            "pytube: a document declared in `pytube.toml`, `pytube apply --backfill`, one `pytube worker`, "
            "all settings as they come. PGSync: the equivalent `schema.json`, `bootstrap`, one `pgsync "
            "--daemon` (triggers, NOTIFY and Redis, as its README has it), 10,000 rows and 5,000 documents a "
            "chunk, 4 threads that send and 2 that read, as they come; but logs at WARNING, which spares it "
            "the text of each request, and a time limit of 60 s for requests, not 10, under which a busy "
            "machine ended it. Both compress what they send, as they come, into an index of "
            "one shard without replicas with dynamic mappings. PGSync collects notifications until none has "
            "come for `POLL_TIMEOUT`, 0.1 s as it comes, and says that less may be better; and its `--wal` "
            "streams the log without triggers and Redis. Changes were measured with these, too."
        )

    def _show_loads(self, section: Section) -> None:
        section.say(
            "The load, from the start of the process until the index has all documents (triggers and slot, "
            "or the request for a backfill, were there); seconds of CPU, the tool's with Redis:"
        )
        parts = list(self.loads[OWN].cpu)
        section.table(
            ["", "documents/s", *(f"CPU, {part}" for part in parts), "together"],
            [
                [
                    tool,
                    f"{self._rate(tool):,.0f}",
                    *(f"{load.cpu[part]:,.1f}" for part in parts),
                    f"{sum(load.cpu.values()):,.1f}",
                ]
                for tool, load in self.loads.items()
            ],
        )

    def _show_changes(self, section: Section) -> None:
        section.say(
            "From the return of a COMMIT until a realtime GET by id shows the change in all documents that "
            f"have it, asked every millisecond; {self.probes} changes of each kind, the kinds in turn, and "
            "nothing else going on. Milliseconds; inf stands for those that were not shown within 30 s, and "
            "after three of them the tool's round ends:"
        )
        rows = []
        for kind in KINDS:
            for tool, kinds in self.took.items():
                ratio = f"{percentile(kinds[kind], 0.5) / self._p50(OWN, kind):,.1f}"
                figures = [f"{percentile(kinds[kind], share):,.1f}" for share in (0.5, 0.99)]
                shown = f"{sum(map(math.isfinite, kinds[kind]))} of {len(kinds[kind])}"
                rows.append([kind, tool, shown, *figures, ratio])
        section.table(["change of", "by", "shown", "p50", "p99", "p50 to pytube's"], rows)

    def _targets(self) -> list[Target]:
        load = Target("load, to PGSync's", LOAD_TO_PGSYNC, self._rate(OWN) / self._rate(SYNC))
        return [
            load,
            *(
                Target(
                    f"a change of {kind}, p50 to PGSync's as it comes",
                    P50_TO_PGSYNC,
                    self._p50(OWN, kind) / self._p50(AS_IT_COMES, kind),
                    "at most",
                )
                for kind in KINDS
            ),
        ]

    def _rate(self, tool: str) -> float:
        return self.orders / self.loads[tool].seconds

    def _p50(self, tool: str, kind: str) -> float:
        return percentile(self.took[tool][kind], 0.5)
