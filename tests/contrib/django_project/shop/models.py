"""Orders of customers."""

from django.db import models


class Customer(models.Model):  # type: ignore[misc] # Django has no types
    """Part of each of its orders' documents."""

    name = models.CharField(max_length=100)


class Order(models.Model):  # type: ignore[misc] # Django has no types
    """Its table needs quotes."""

    customer = models.ForeignKey(Customer, models.CASCADE)
    status = models.CharField(max_length=20)
    note = models.TextField(default="")

    class Meta:
        db_table = "Shop Orders"


class Ticket(models.Model):  # type: ignore[misc] # Django has no types
    """Its key is a UUID."""

    id = models.UUIDField(primary_key=True)
    order = models.ForeignKey(Order, models.CASCADE)
