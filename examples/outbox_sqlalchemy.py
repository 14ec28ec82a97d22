"""Write a row and a message in one transaction, with SQLAlchemy.

python examples/outbox_sqlalchemy.py

The connection string is in the variable PYTUBE_DSN. The outbox is there: pytube outbox create orders.
"""

from __future__ import annotations

import json
import os

import psycopg
from sqlalchemy import BigInteger, Integer, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pytube.outbox import Message, stash


class Base(DeclarativeBase):
    """The tables of the shop."""


class Order(Base):
    """One order."""

    __tablename__ = "shop_order"
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    total: Mapped[int] = mapped_column(Integer)


def place_order(session: Session, number: int, total: int) -> None:
    """Store an order, and tell it to Kafka if, and only if, the session commits."""
    session.add(Order(number=number, total=total))
    body = json.dumps({"number": number, "total": total})
    stash(driver(session), [Message("orders", str(number), body, {"type": "OrderPlaced"})], outbox="orders")


def driver(session: Session) -> psycopg.Connection:
    """The connection of psycopg that the session's transaction is in."""
    connection = session.connection().connection.driver_connection
    assert isinstance(connection, psycopg.Connection)  # the engine is postgresql+psycopg
    return connection


def main() -> None:
    """Place an order, and one that is taken back."""
    dsn = os.environ["PYTUBE_DSN"]
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        with session.begin():
            place_order(session, 1, 12)
        place_order(session, 2, 99)
        session.rollback()
    engine.dispose()
    print("order 1 is placed, order 2 is taken back with its message")


if __name__ == "__main__":
    main()
