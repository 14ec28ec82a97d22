"""Write a row and a message in one transaction, and answer when the copy has the row, with FastAPI.

uvicorn --app-dir examples outbox_fastapi:app

The connection string is in the variable PYTUBE_DSN. Needed are the table, the outbox (pytube outbox create
orders), the tube (pytube tube create live; pytube tube attach live public.shop_order), and a worker that
serves both.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from fastapi import FastAPI, Response
from sqlalchemy import BigInteger, Integer
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pytube.delivered import wait_async
from pytube.errors import WaitTimeout
from pytube.outbox import Message, stash_async

DSN = os.environ["PYTUBE_DSN"]
LONGEST = 5.0
"""Seconds that a request waits for the copy."""
sessions = async_sessionmaker[AsyncSession]()


class Base(DeclarativeBase):
    """The tables of the shop."""


class Order(Base):
    """One order."""

    __tablename__ = "shop_order"
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    total: Mapped[int] = mapped_column(Integer)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """The pool is opened and closed with the application."""
    engine = create_async_engine(
        "postgresql+psycopg://", async_creator=lambda: psycopg.AsyncConnection.connect(DSN)
    )
    sessions.configure(bind=engine)
    try:
        yield
    finally:
        await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}", status_code=201)
async def place_order(number: int, total: int) -> None:
    """Store an order, and send a message to Kafka if, and only if, the session commits."""
    async with sessions.begin() as session:
        session.add(Order(number=number, total=total))
        await session.flush()  # an order that is there already fails here
        body = json.dumps({"number": number, "total": total})
        message = Message("orders", str(number), body, {"type": "OrderPlaced"})
        await stash_async(await driver(session), [message], outbox="orders")


@app.put("/orders/{number}")
async def change_order(number: int, total: int, response: Response) -> None:
    """Change an order; the answer is 200 when the copy has it, 202 when it will have it later."""
    async with sessions.begin() as session:
        order = await session.get_one(Order, number)
        order.total = total
    try:
        await wait_async("live", dsn=DSN, timeout=LONGEST)
    except WaitTimeout:
        response.status_code = 202


async def driver(session: AsyncSession) -> psycopg.AsyncConnection:
    """The connection of psycopg that the session's transaction is in."""
    raw = await (await session.connection()).get_raw_connection()
    connection = raw.driver_connection
    assert isinstance(connection, psycopg.AsyncConnection)  # the engine is postgresql+psycopg
    return connection
