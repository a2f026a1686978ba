"""What is kept of an exception that a sink or an adapter raises."""

import psycopg
import pytest

from samecommit.outbox.courier import describe


def test_a_refused_row_is_not_repeated_in_the_error(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TEMPORARY TABLE customer (email text CHECK (email = ''))")
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            conn.execute("INSERT INTO customer VALUES ('ada@example.com')")
    assert "ada@example.com" in str(refused.value)
    said = describe(refused.value)
    assert said.startswith("CheckViolation: new row for relation") and "ada@" not in said and "\n" not in said


def test_an_exception_without_text_is_named() -> None:
    assert describe(ConnectionResetError()) == "ConnectionResetError"
