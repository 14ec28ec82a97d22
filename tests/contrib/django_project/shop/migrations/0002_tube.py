"""pytube, and a tube."""

from django.db import migrations

from pytube.contrib.django.operations import AttachTube, InstallTube


class Migration(migrations.Migration):  # type: ignore[misc] # Django has no types
    """The tube."""

    dependencies = [("shop", "0001_initial")]
    operations = [
        InstallTube(),
        AttachTube(
            "orders-live", "Order", shards=16, columns=["status", "customer"], predicate="status <> '100%'"
        ),
    ]
