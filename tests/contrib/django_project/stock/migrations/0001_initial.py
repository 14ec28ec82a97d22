"""The tables, a tube, and a document."""

import django.db.models.deletion
from django.db import migrations, models

from pytube.contrib.django.operations import AttachTube, Document


class Migration(migrations.Migration):  # type: ignore[misc] # Django has no types
    """The tables."""

    initial = True
    dependencies = [("shop", "0002_tube")]
    operations = [
        migrations.CreateModel(name="Room", fields=[("id", models.BigAutoField(primary_key=True))]),
        migrations.CreateModel(
            name="Part",
            fields=[
                ("id", models.BigAutoField(primary_key=True)),
                ("number", models.IntegerField()),
                ("room", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="stock.room")),
            ],
        ),
        AttachTube("parts-live", "Part", columns=["number", "room"]),
        AttachTube("parts-moved", "Part", columns=["room_id"]),
        Document("parts", {"table": "public.stock_part", "fields": ["id", "number"]}),
    ]
