"""A document."""

from django.db import migrations

from pytube.contrib.django.operations import Document
from tests.contrib.django_project.shop.documents import ORDERS


class Migration(migrations.Migration):  # type: ignore[misc] # Django has no types
    """The document."""

    dependencies = [("shop", "0002_tube")]
    operations = [Document("orders", ORDERS, backfill=True)]
