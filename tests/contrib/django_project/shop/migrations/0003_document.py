"""A document."""

from django.db import migrations

from pytube.contrib.django.operations import Document


class Migration(migrations.Migration):  # type: ignore[misc] # Django has no types
    """The document."""

    dependencies = [("shop", "0002_tube")]
    operations = [
        Document(
            "orders",
            {
                "table": 'public."Shop Orders"',
                "fields": ["id", "status"],
                "customer": {"one": "public.shop_customer", "fields": ["name"]},
            },
            backfill=True,
        )
    ]
