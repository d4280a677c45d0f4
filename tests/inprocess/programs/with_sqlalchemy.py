"""SQLAlchemy's ORM on psycopg, psycopg2 and asyncpg, with engines that stay open."""

import asyncio
from decimal import Decimal

from sqlalchemy import (
    JSON,
    Column,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    create_engine,
    exc,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Thing(Base):
    __tablename__ = "alchemical"
    id = mapped_column(Integer, primary_key=True)
    name = mapped_column(String(20), unique=True)
    price = mapped_column(Numeric(8, 2))
    doc = mapped_column(JSON)


OTHER = Table("other", MetaData(), Column("id", Integer, primary_key=True))


def main(address, keep):
    for driver in ("psycopg", "psycopg2"):
        engine = keep.setdefault(
            driver, create_engine(address.replace("postgresql:", f"postgresql+{driver}:"))
        )
        yield from on(engine)
    loop = keep["loop"] if "loop" in keep else keep.setdefault("loop", asyncio.new_event_loop())
    answers = asynchronous(address.replace("postgresql:", "postgresql+asyncpg:"), keep)
    yield from loop.run_until_complete(answers)


def on(engine):
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Thing(name="a", price=Decimal("1.50"), doc={"a": [1]}), Thing(name="b")])
        session.commit()
        found = session.scalars(select(Thing).where(Thing.name == "a")).one()
        yield found.id, found.name, found.price, found.doc
        found.name = "c"
        session.flush()
        with session.begin_nested():
            yield session.execute(
                text("select count(*) from alchemical where name = :name"), {"name": "c"}
            ).scalar_one()
        session.add(Thing(name="b"))
        try:
            session.commit()
        except exc.IntegrityError as error:
            yield type(error.orig).__name__, error.statement
            session.rollback()
        yield [tuple(row) for row in session.execute(select(Thing.name).order_by(Thing.id))]


async def asynchronous(address, keep):
    engine = keep.setdefault("asyncpg", create_async_engine(address))
    seen = []
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(engine) as session:
        session.add_all([Thing(name="a", price=Decimal("1.50"), doc={"a": [1]}), Thing(name="b")])
        await session.commit()
        found = (await session.scalars(select(Thing).where(Thing.name == "a"))).one()
        seen.append((found.id, found.name, found.price, found.doc))
        session.add(Thing(name="b"))
        try:
            await session.commit()
        except exc.IntegrityError as error:
            seen.append(type(error.orig).__name__)
            await session.rollback()
        seen.append([tuple(row) async for row in await session.stream(select(Thing.name).order_by(Thing.id))])
    return seen
