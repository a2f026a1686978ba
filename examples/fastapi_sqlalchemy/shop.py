"""FastAPI with a SQLAlchemy AsyncSession: the order and its job commit together, or neither does.

SAMECOMMIT_DSN=postgresql://localhost/shop uvicorn shop:web
SAMECOMMIT_DSN=postgresql://localhost/shop samecommit worker shop:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import psycopg
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from samecommit import App, AsyncContext

app = App()
engine = create_async_engine("postgresql+psycopg://", async_creator=lambda: psycopg.AsyncConnection.connect(app.dsn))
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    amount: Mapped[int]


@app.task(queue="mail", max_attempts=5)
async def send_receipt(ctx: AsyncContext, order_id: int) -> str:
    return f"receipt {ctx.effect_key} for order {order_id}"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    app.migrate()
    async with engine.begin() as conn:
        await conn.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


async def session() -> AsyncIterator[AsyncSession]:
    async with sessions() as made:
        yield made


web = FastAPI(lifespan=lifespan)


@web.post("/orders")
async def create_order(email: str, amount: int, db: Annotated[AsyncSession, Depends(session)]) -> dict[str, int]:
    order = Order(email=email, amount=amount)
    db.add(order)
    await db.flush()  # gives the order its id
    job = await send_receipt.enqueue(db, order_id=order.id)
    if amount <= 0:
        raise HTTPException(422, "the amount must be above 0")  # no commit: neither order nor job
    await db.commit()
    return {"order": order.id, "job": job.id}
