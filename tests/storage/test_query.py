import re
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samecommit.storage import query
from samecommit.storage.query import parse, quote_literal, quote_name, render, statement

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
quick = settings(deadline=None, max_examples=200)


def test_a_parameter_becomes_a_number_and_keeps_it() -> None:
    made = parse("x", "SELECT :a::int, :b::text, :a::int", "s")
    assert made.text == "SELECT $1::int, $2::text, $1::int"
    assert made.parameters == ("a", "b")
    assert made.bind({"b": "B", "a": 1}) == (1, "B")


def test_what_only_looks_like_a_parameter_stays() -> None:
    text = """SELECT 'at 10:30', ':no', x::text, "a:b" -- :comment\nFROM :"schema".job WHERE p = :p::int"""
    made = parse("x", text, "s")
    assert made.parameters == ("p",)
    assert made.text == """SELECT 'at 10:30', ':no', x::text, "a:b" \nFROM "s".job WHERE p = $1::int"""


def test_the_schema_comes_as_a_name_a_literal_and_a_qualified_literal() -> None:
    assert render(""":"schema".job :'schema' :'schema.job'""", "a\"b'c") == (
        """"a""b'c".job 'a"b''c' '"a""b''c".job\'"""
    )


def test_drivers_with_percent_placeholders_get_every_use_and_no_percent_of_the_schema() -> None:
    made = parse("x", """SELECT :a::int, 5 % 2, :b::int, :a::int FROM :"schema".job""", "100%s")
    text, used = made.with_placeholder()
    assert used == ("a", "b", "a")
    assert text % (1, 2, 3) == 'SELECT 1::int, 5 % 2, 2::int, 3::int FROM "100%s".job'


def test_a_schema_that_looks_like_a_placeholder_is_no_placeholder() -> None:
    made = parse("x", """SELECT :a::int FROM :"schema".job""", "$1")
    text, used = made.with_placeholder()
    assert (text, used) == ('SELECT %s::int FROM "$1".job', ("a",))


PREPARABLE = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|MERGE|WITH)\b")


def all_labels() -> list[str]:
    folder: Any = query._FOLDER
    found = (path for path in folder.rglob("*.sql") if path.parent.name != "migrations")
    labels = sorted(str(path.relative_to(folder))[:-4] for path in found)
    labels = [label for label in labels if not label.startswith("copy/")]  # for tables of another database
    return [label for label in labels if PREPARABLE.match(statement(label, "samecommit").text)]


@pytest.mark.session("statements prepared by name")
def test_every_statement_can_be_prepared(conn: psycopg.Connection[Any]) -> None:
    for label in all_labels():
        made = statement(label, "samecommit")
        assert not re.search(r':"|:\'', made.text), label
        conn.execute(f'PREPARE "{label}" AS {made.text}'.encode())


def test_parameters_are_always_cast() -> None:
    for label in all_labels():
        text = statement(label, "samecommit").text
        assert not re.search(r"\$\d+(?!\d|::)", text), label


@quick
@given(name=names)
def test_a_quoted_name_is_the_name_again(name: str) -> None:
    quoted = quote_name(name)
    assert quoted[0] == quoted[-1] == '"' and quoted[1:-1].replace('""', '"') == name
    assert not re.search(r'(?<!")"(?:"")*(?!")', quoted[1:-1])


def test_quoted_literals_and_names_arrive_as_they_were(conn: psycopg.Connection[Any]) -> None:
    @quick
    @given(text=names)
    def check(text: str) -> None:
        row = conn.execute(f"SELECT {quote_literal(text)} AS {quote_name(text[:15])}".encode())
        assert row.description is not None
        assert row.description[0].name == text[:15]
        assert row.fetchall() == [(text,)]

    check()


@pytest.mark.parametrize("setting", ["on", "off"])
def test_no_server_setting_changes_what_a_literal_means(conn: psycopg.Connection[Any], setting: str) -> None:
    text = "a\\'b\\\\c'd"
    with psycopg.connect(conn.info.dsn, autocommit=True, options=f"-c standard_conforming_strings={setting}") as other:
        other.execute("SET escape_string_warning = off")
        assert other.execute(f"SELECT {quote_literal(text)}".encode()).fetchall() == [(text,)]
