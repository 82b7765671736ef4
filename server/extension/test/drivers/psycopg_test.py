"""Sealed columns through psycopg 3: text and binary results, prepared statements, COPY both ways."""

import datetime
import decimal
import sys
import uuid

import psycopg

ROW = (
    2**40 + 7,
    -5,
    "Ada Lovelace",
    uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    decimal.Decimal("12345.60"),
    datetime.date(1815, 12, 10),
    datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.timezone.utc),
    b"\x00\xff",
    "a note",
)
COLUMNS = "id, code, holder, number, balance, born, at, raw, note"
PLAIN = "id::int8, code::int4, holder::text, number::uuid, balance::numeric, born::date, at::timestamptz, raw::bytea, note::text"

with psycopg.connect(sys.argv[1], autocommit=True) as conn:
    insert = f"INSERT INTO card ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
    conn.execute(insert, ROW, prepare=True)
    conn.execute("DELETE FROM card WHERE id = %s", (ROW[0],), prepare=True)
    conn.cursor(binary=True).execute(insert, ROW, prepare=True)
    for binary in (False, True):
        cur = conn.cursor(binary=binary)
        for _ in range(7):  # past the threshold of server-side plans
            got = cur.execute(f"SELECT {PLAIN} FROM card WHERE id = %s", (ROW[0],), prepare=True).fetchone()
            assert got == ROW, (binary, got)
        got = cur.execute("SELECT holder FROM card WHERE holder = %s AND born = %s AND number = %s", (ROW[2], ROW[5], ROW[3])).fetchone()
        text = got[0].decode() if isinstance(got[0], bytes) else got[0]
        assert text == ROW[2], got
        assert cur.execute("SELECT count(*) FROM card WHERE balance < %s AND code < %s AND id = ANY(%s)", (20000, 0, [1, ROW[0]])).fetchone()[0] == 1
    # Columns as they are: text, since the driver does not know the types.
    got = conn.execute("SELECT id, holder, balance, born FROM card").fetchone()
    assert got == (str(ROW[0]), ROW[2], "12345.60", "1815-12-10"), got
    with conn.cursor().copy("COPY card (id, holder) FROM STDIN") as copy:
        for i in range(1000):
            copy.write_row((i, f"holder {i}"))
    with conn.cursor().copy("COPY card (id, holder) TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(["int8", "text"])
        rows = {row for row in copy.rows()}
    assert (500, "holder 500") in rows and len(rows) == 1001
    with conn.cursor().copy("COPY card (id, holder) FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(["int8", "text"])
        copy.write_row((5000, "binary"))
    assert conn.execute("SELECT holder FROM card WHERE id = 5000").fetchone() == ("binary",)
    try:
        conn.execute("INSERT INTO card (id) VALUES (5000)")
        raise AssertionError("no duplicate key")
    except psycopg.errors.UniqueViolation:
        pass
with psycopg.connect(sys.argv[1], autocommit=True, options="-c pgseal.base_types=on") as conn:
    conn.execute("TRUNCATE card")
    for binary in (False, True):
        cur = conn.cursor(binary=binary)
        cur.execute(insert, ROW, prepare=True)
        got = cur.execute(f"SELECT {COLUMNS} FROM card WHERE id = %s", (ROW[0],), prepare=True).fetchone()
        assert got == ROW, (binary, got)
        assert cur.execute("DELETE FROM card WHERE id = %s RETURNING id, raw", (ROW[0],)).fetchone() == (ROW[0], ROW[7])
print("psycopg", psycopg.__version__, "passed")
