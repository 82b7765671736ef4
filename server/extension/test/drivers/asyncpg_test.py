"""Sealed columns through asyncpg, which uses the binary format alone: with pgseal.base_types they are plain columns."""

import asyncio
import datetime
import decimal
import sys
import uuid

import asyncpg

ROW = {
    "id": 2**40 + 7,
    "code": -5,
    "holder": "Ada Lovelace",
    "number": uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "balance": decimal.Decimal("12345.60"),
    "born": datetime.date(1815, 12, 10),
    "at": datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.timezone.utc),
    "raw": b"\x00\xff",
    "note": "a note",
}


async def main(url):
    conn = await asyncpg.connect(url, server_settings={"pgseal.base_types": "on"})
    names, places = ", ".join(ROW), ", ".join(f"${i + 1}" for i in range(len(ROW)))
    await conn.execute(f"INSERT INTO card ({names}) VALUES ({places})", *ROW.values())
    for _ in range(3):
        got = dict(await conn.fetchrow(f"SELECT {names} FROM card WHERE id = $1 AND holder = $2", ROW["id"], ROW["holder"]))
        assert got == ROW, got
    assert await conn.fetchval("SELECT id FROM card WHERE id = ANY($1) ORDER BY id", [1, ROW["id"]]) == ROW["id"]
    assert await conn.fetchval("INSERT INTO card (id) VALUES ($1) RETURNING id", 9) == 9
    await conn.execute("UPDATE card SET balance = $1, born = NULL WHERE id = $2", decimal.Decimal("7.5"), 9)
    rows = await conn.fetch("SELECT id, balance FROM card ORDER BY id DESC")
    assert [tuple(row) for row in rows] == [(ROW["id"], ROW["balance"]), (9, decimal.Decimal("7.50"))], rows
    rows = await conn.fetch("SELECT holder, count(*) AS n FROM card GROUP BY holder ORDER BY holder")
    assert [tuple(row) for row in rows] == [("Ada Lovelace", 1), (None, 1)], rows
    # Without it, parameters and results are strings.
    other = await asyncpg.connect(url)
    try:
        await other.fetchval("SELECT id FROM card WHERE id = $1", 9)
        raise AssertionError("an integer was taken for a sealed_int8")
    except (asyncpg.DataError, asyncpg.exceptions.UnsupportedClientFeatureError, TypeError):
        pass
    assert await other.fetchval("SELECT id::int8 FROM card WHERE id = $1::int8", 9) == 9
    await conn.close()
    await other.close()


asyncio.run(main(sys.argv[1]))
print("asyncpg", asyncpg.__version__, "passed")
