"""Other names."""

from django.db import migrations


class Migration(migrations.Migration):  # type: ignore[misc] # Django has no types
    """The names."""

    dependencies = [("stock", "0001_initial")]
    operations = [
        migrations.RenameField("Part", "room", "place"),
        migrations.RenameField("part", "number", "count"),
        migrations.RenameField("Part", "count", "amount"),
    ]
