"""The end of each command's `--help`: two ways to call it, and the page with more; and names of values."""

from __future__ import annotations

from typing import Final

import click

from pytube.errors import page as address

EXAMPLES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "apply": ("documents.md#what-apply-does", ("", "orders --backfill --yes")),
    "audit": ("operate.md#audit", ("", "es-live --limit 20")),
    "backfill cancel": ("backfill.md#run-one", ("es-live", "es-live --table public.orders")),
    "backfill pause": ("backfill.md#run-one", ("es-live", "es-live --table public.orders")),
    "backfill resume": ("backfill.md#run-one", ("es-live", "es-live --rate 2000 --wait")),
    "backfill start": (
        "backfill.md#run-one",
        ("es-live --wait", "es-live --in-worker"),
    ),
    "backfill status": ("backfill.md#what-the-numbers-mean", ("", "es-live --json")),
    "config show": ("configuration.md", ("", "--json")),
    "demo": ("index.md", ("", "--outbox --seconds 20")),
    "dev": ("cli.md", ("postgres", "opensearch --port 9201")),
    "doctor": ("monitor.md#doctor", ("", "--json")),
    "document from-pgsync": (
        "documents.md#coming-from-pgsync",
        ("schema.json",),
    ),
    "document show": ("documents.md#what-plan-shows", ("orders", "orders 7")),
    "explain": ("verify.md#explain", ("es-live 7", "es-live 7 --table public.orders")),
    "install": ("install.md#install-the-sql", ("", "--roles shop")),
    "outbox acknowledge": ("outbox.md#watch-and-repair", ("events",)),
    "outbox adopt": ("outbox.md#adopt-a-table-of-goharvests", ("events public.outbox --partitions 6",)),
    "outbox create": ("outbox.md#the-table", ("events", "events --partitions 6 --value-type bytea")),
    "outbox parked discard": (
        "outbox.md#watch-and-repair",
        ("events 17 18", "events --topic orders --yes"),
    ),
    "outbox drop": ("outbox.md#the-table", ("events", "events --force")),
    "outbox list": ("outbox.md#watch-and-repair", ("", "--json")),
    "outbox park": ("outbox.md#watch-and-repair", ("events --topic orders",)),
    "outbox parked list": ("outbox.md#watch-and-repair", ("", "events --limit 20")),
    "outbox pump": (
        "outbox.md#generate-load",
        ("events --rate 500 --duration 60", "events --keys 10"),
    ),
    "outbox parked retry": ("outbox.md#watch-and-repair", ("events 17", "events --all")),
    "outbox parked show": ("outbox.md#watch-and-repair", ("events 17",)),
    "outbox status": ("outbox.md#watch-and-repair", ("", "events --json")),
    "park discard": ("operate.md#parked-documents", ("es-live --key 7", "es-live --older-than 7d --yes")),
    "park list": ("operate.md#parked-documents", ("", "es-live --error mapping --limit 20")),
    "park retry": ("operate.md#parked-documents", ("es-live", "es-live --error mapping --yes")),
    "park show": ("operate.md#parked-documents", ("es-live 7",)),
    "pause": (
        "operate.md#pause-and-resume",
        ("es-live --reason 'new mapping'", "es-live --partition 2 --for 10m"),
    ),
    "plan": ("documents.md#what-plan-shows", ("", "orders --json")),
    "pods discard": (
        "operate.md#inspect-and-change-pods",
        ("es-live --key 7", "es-live --from 100 --to 200 --yes"),
    ),
    "pods list": ("operate.md#inspect-and-change-pods", ("es-live", "es-live --partition 2 --key 7")),
    "pods reset": ("operate.md#inspect-and-change-pods", ("es-live", "es-live --key 7")),
    "pods retry": ("operate.md#inspect-and-change-pods", ("es-live --partition 2", "es-live --key 7")),
    "pods show": ("operate.md#inspect-and-change-pods", ("es-live --seq 100", "es-live 7")),
    "pods step": ("operate.md#inspect-and-change-pods", ("es-live --partition 2",)),
    "reindex abandon": ("reindex.md#go-back-or-give-up", ("es-live",)),
    "reindex compare": ("reindex.md#step-by-step", ("es-live",)),
    "reindex finish": ("reindex.md#step-by-step", ("es-live",)),
    "reindex start": ("reindex.md#step-by-step", ("es-live --wait",)),
    "reindex status": ("reindex.md#step-by-step", ("es-live", "es-live --json")),
    "reindex switch": ("reindex.md#step-by-step", ("es-live", "es-live --back")),
    "resume": ("operate.md#pause-and-resume", ("es-live", "es-live --partition 2")),
    "sink accept": ("sinks.md#a-sink-that-was-emptied", ("es-live",)),
    "sink check": ("sinks.md#trying-a-sink", ("es-live",)),
    "spark backfill": ("spark.md#backfill", ("es-live --table public.orders --cores 8",)),
    "spark fanout": (
        "spark.md#fan-out",
        ("es-live --query 'SELECT id FROM orders WHERE total > 100' --job big-orders",),
    ),
    "spark jobs": ("spark.md#when-something-fails", ("", "--json")),
    "spark reconcile": (
        "spark.md#reconcile",
        ("--source public.orders --sink es-live.jsonl --tube es-live",),
    ),
    "spark touch": ("spark.md#fan-out", ("es-live --input ids.parquet --format parquet",)),
    "status": ("monitor.md#doctor", ("", "es-live --watch")),
    "top": ("monitor.md#top", ("", "--interval 2")),
    "touch": ("operate.md#parked-documents", ("es-live public.orders 7 8", "es-live public.orders -- -1")),
    "tube acknowledge": ("verify.md#copies-that-are-to-be-verified", ("es-live",)),
    "tube attach": (
        "attach.md",
        ("es-live public.orders --shards 16", "es-live public.items --id-col order_id"),
    ),
    "tube create": (
        "attach.md",
        ("es-live --partitions 4", "es-live --keys uuid"),
    ),
    "tube detach": ("attach.md#options", ("es-live public.items",)),
    "tube drop": ("operate.md#uninstall", ("es-live", "es-live --force")),
    "tube list": ("attach.md", ("", "--json")),
    "tube rebase": ("runbook.md#restore-from-a-backup", ("es-live --epoch 41",)),
    "uninstall": ("operate.md#uninstall", ("", "--force")),
    "upgrade": ("upgrade.md", ("",)),
    "verify": ("verify.md#verify", ("es-live", "es-live --sample 1% --repair")),
    "wait": ("verify.md#wait", ("es-live", "es-live orders --timeout 10")),
    "web": ("monitor.md#pages-for-a-browser", ("", "--listen 127.0.0.1:8080 --token-file token")),
    "worker": ("deploy.md#run-a-worker", ("", "--tube es-live --watch")),
}
"""By the words of a command: a page with its section, and arguments."""


def show_examples(words: str, command: click.Command) -> None:
    """Have the help of a command, or of all in a group, show defaults, and end with their examples."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            show_examples(f"{words} {name}", inner)
        return
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        option.show_default = isinstance(option.default, str | int | float) and not option.is_flag
        # click would show the type, such as INTEGER RANGE.
        is_number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
        if option.metavar is None and is_number:
            option.metavar = "SECONDS" if "econds" in (option.help or "") else "N"
    if words in EXAMPLES:
        page, calls = EXAMPLES[words]
        lines = "\n".join(f"  pytube {words} {arguments}".rstrip() for arguments in calls)
        command.epilog = f"\b\nExamples:\n{lines}\n\nMore: {address(page)}"
