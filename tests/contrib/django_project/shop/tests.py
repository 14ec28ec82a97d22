"""What the project itself tests, by `manage.py test`, two at once."""

from django.db import transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase, TransactionTestCase

from pytube.contrib.django import Message, session, stash
from pytube.contrib.django.testing import captured
from pytube.errors import UnknownTube
from pytube.outbox.admin import Outboxes
from tests.contrib.django_project.shop.models import Customer, Order


class CaptureTest(TestCase):  # type: ignore[misc] # Django has no types
    customer: Customer
    order: Order

    @classmethod
    def setUpTestData(cls) -> None:
        cls.customer = Customer.objects.create(name="Ada")
        cls.order = Order.objects.create(customer=cls.customer, status="new")

    def test_a_save_is_captured(self) -> None:
        with captured("orders-live") as keys:
            second = Order.objects.create(customer=self.customer, status="new")
            self.order.status = "paid"
            self.order.save()
            self.order.save()
        self.assertEqual(keys, [second.pk, self.order.pk])

    def test_what_does_not_count_is_not(self) -> None:
        with captured("orders-live") as keys:
            Order.objects.update(note="a note")
            Order.objects.create(customer=self.customer, status="100%")
        self.assertEqual(keys, [])

    def test_a_related_row_is_in_the_companion(self) -> None:
        with captured("orders_relations") as keys:
            Customer.objects.update(name="Grace")
        self.assertEqual(keys, [self.customer.pk])

    def test_there_is_no_such_tube(self) -> None:
        with self.assertRaises(UnknownTube), captured("no-tube"):
            pass
        self.assertEqual(Order.objects.count(), 1, "the transaction goes on")


class FlushedTest(TransactionTestCase):  # type: ignore[misc] # Django has no types
    def test_a_flushed_table_is_captured_anew(self) -> None:
        """Its tables are truncated after each test, this one's and the ones before."""
        self.check()

    def test_and_again(self) -> None:
        self.check()

    def check(self) -> None:
        self.assertEqual(Order.objects.count(), 0)
        with captured("orders-live") as keys:
            order = Order.objects.create(customer=Customer.objects.create(name="Ada"), status="new")
        self.assertEqual(keys, [order.pk])


class StashTest(TransactionTestCase):  # type: ignore[misc] # Django has no types
    def setUp(self) -> None:
        with session() as connection:
            Outboxes(connection).create("events")

    def records(self) -> int:
        with session() as connection:
            row = connection.execute("SELECT count(*) FROM events").fetchone()
        assert row is not None
        return int(row[0])

    def test_messages_are_part_of_the_transaction(self) -> None:
        before, message = self.records(), Message("events", "1", "placed")
        with transaction.atomic():
            stash([message], outbox="events")
            stash([message, message], outbox="events")
        with transaction.atomic():
            stash([message], outbox="events")
            transaction.set_rollback(True)
        self.assertEqual(self.records() - before, 3)

    def test_outside_of_one_they_are_refused(self) -> None:
        with self.assertRaisesRegex(TransactionManagementError, "within transaction.atomic"):
            stash([Message("events", "1", "placed")], outbox="events")
