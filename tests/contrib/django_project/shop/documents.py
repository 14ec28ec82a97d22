"""The document `orders`, and how it was changed."""

from typing import Any

ORDERS: dict[str, Any] = {
    "table": 'public."Shop Orders"',
    "fields": ["id", "status"],
    "customer": {"one": "public.shop_customer", "fields": ["name"]},
}
WITH_NOTES = {**ORDERS, "fields": ["id", "status", "note"]}
