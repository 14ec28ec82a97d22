"""The tube of tickets goes, and the document gets a field."""

from django.db import migrations

from pytube.contrib.django.operations import DetachTube, Document
from tests.contrib.django_project.shop.documents import ORDERS, WITH_NOTES


class Migration(migrations.Migration):  # type: ignore[misc] # Django has no types
    """The changes."""

    dependencies = [("shop", "0004_ticket")]
    operations = [DetachTube("tickets", "Ticket"), Document("orders", WITH_NOTES, before=ORDERS)]
