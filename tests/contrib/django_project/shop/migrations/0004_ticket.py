"""A table with keys of another type, and its tube."""

import django.db.models.deletion
from django.db import migrations, models

from pytube.contrib.django.operations import AttachTube


class Migration(migrations.Migration):  # type: ignore[misc] # Django has no types
    """Each step is a transaction."""

    atomic = False
    dependencies = [("shop", "0003_document")]
    operations = [
        migrations.CreateModel(
            name="Ticket",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "order",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="shop.order"),
                ),
            ],
        ),
        AttachTube("tickets", "shop.Ticket"),
    ]
