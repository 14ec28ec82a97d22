"""Write a row and a message in one transaction, with Django.

python examples/outbox_django.py

The connection string is in the variable PYTUBE_DSN. The outbox is there: pytube outbox create orders.
Django uses psycopg 3 where it is installed.
"""

from __future__ import annotations

import json
import os

import django
from django.conf import settings
from django.db import connection, models, transaction
from psycopg.conninfo import conninfo_to_dict

from pytube.contrib.django import Message, stash


def configure(dsn: str) -> None:
    """What a project has in its settings.py."""
    given = conninfo_to_dict(dsn)
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": given.get("host", ""),
                "PORT": given.get("port", ""),
                "NAME": given["dbname"],
                "USER": given.get("user", ""),
                "PASSWORD": given.get("password", ""),
            }
        },
        INSTALLED_APPS=["pytube.contrib.django"],
        LOGGING_CONFIG=None,
    )
    django.setup()


def order_model() -> type[models.Model]:
    """What a project has in its models.py; here it can only be made once Django is configured."""

    class Order(models.Model):  # type: ignore[misc] # Django has no types
        number = models.BigIntegerField(primary_key=True)
        total = models.IntegerField()

        class Meta:
            app_label = "shop"

    return Order


def place_order(order: type[models.Model], number: int, total: int) -> None:
    """Store an order, and tell it to Kafka if, and only if, the transaction commits."""
    with transaction.atomic():
        order.objects.create(number=number, total=total)
        body = json.dumps({"number": number, "total": total})
        stash([Message("orders", str(number), body, {"type": "OrderPlaced"})], outbox="orders")


def main() -> None:
    """Place an order, and one that is taken back."""
    configure(os.environ["PYTUBE_DSN"])
    order = order_model()
    with connection.schema_editor() as editor:
        editor.create_model(order)
    place_order(order, 1, 12)
    with transaction.atomic():
        place_order(order, 2, 99)
        transaction.set_rollback(True)
    connection.close()
    print("order 1 is placed, order 2 is taken back with its message")


if __name__ == "__main__":
    main()
