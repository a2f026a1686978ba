from pathlib import Path

import pytest

from samecommit.demo import make_leads
from samecommit.demo.errors import LeadsFileError
from samecommit.demo.intake import (
    SAMPLE,
    SAMPLE_CP1252,
    Intake,
    Lead,
    decode,
    is_email,
    normalise_email,
    parse_leads,
    read_leads,
)

NAMES = "Zoë Łukasz 李小龙 O’Brien"  # noqa: RUF001


def read(text: str) -> Intake:
    return parse_leads(text)


def test_the_shipped_samples_are_what_the_script_makes() -> None:
    assert SAMPLE.read_bytes() == make_leads.main_csv()
    assert SAMPLE_CP1252.read_bytes() == make_leads.german_csv()


def test_the_sample_is_large_and_has_every_kind_of_mess() -> None:
    intake = read_leads(SAMPLE)
    assert len(intake.leads) >= 1200
    assert set(intake.rejections) == {"no e-mail", "malformed e-mail", "duplicate", "wrong columns", "broken quote"}
    assert intake.blank > 0
    assert intake.encoding == "utf-8-sig"
    assert any(not lead.name.isascii() for lead in intake.leads)


def test_every_row_of_the_sample_is_accounted_for() -> None:
    intake = read_leads(SAMPLE)
    rows = [lead.row for lead in intake.leads] + [rejected.row for rejected in intake.rejected]
    assert len(rows) == len(set(rows))
    assert len(rows) + intake.blank == intake.rows
    assert len({lead.email for lead in intake.leads}) == len(intake.leads)


def test_the_older_sample_reads_as_windows_1252_with_semicolons_and_german_headers() -> None:
    intake = read_leads(SAMPLE_CP1252)
    assert (intake.encoding, intake.delimiter) == ("cp1252", ";")
    assert len(intake.leads) > 100
    assert any("€" in lead.message and "–" in lead.message for lead in intake.leads)  # noqa: RUF001
    assert any("ü" in lead.name for lead in intake.leads)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_unicode_names_survive_every_encoding(encoding: str) -> None:
    text, _ = decode(f"name,email\n{NAMES},a@b.example\n".encode(encoding))
    assert read(text).leads[0].name == NAMES


def test_bytes_that_are_no_utf8_are_read_as_windows_1252() -> None:
    text, encoding = decode("name;email\nMüller – €;a@b.example\n".encode("cp1252"))  # noqa: RUF001
    assert encoding == "cp1252"
    assert read(text).leads[0].name == "Müller – €"  # noqa: RUF001


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(delimiter: str) -> None:
    text = delimiter.join(["Full Name", "Email Address"]) + "\n" + delimiter.join(["Ann", "a@b.example"])
    intake = read(text)
    assert intake.delimiter == delimiter
    assert intake.leads[0].name == "Ann"


def test_a_comma_in_a_quoted_header_does_not_win_over_the_real_delimiter() -> None:
    assert read('"Notes, other, more";E-Mail\nx;a@b.example\n').delimiter == ";"


@pytest.mark.parametrize(
    "header", ["E-mail", "email address", "EMAIL", "e_mail", "Work Email", "E-Mail-Adresse", " Mail ", "\ufeffemail"]
)
def test_headers_for_the_address_are_known_under_their_usual_names(header: str) -> None:
    assert read(f"Name,{header}\nAnn,a@b.example\n").leads[0].email == "a@b.example"


def test_first_and_last_name_make_the_name() -> None:
    assert read("First Name,Surname,email\nAnn,Lee,a@b.example\n").leads[0].name == "Ann Lee"


def test_columns_nobody_knows_are_left_out() -> None:
    assert read("Created,email,Shoe size\n2025,a@b.example,42\n").leads == (Lead(row=2, email="a@b.example"),)


def test_a_file_without_an_address_column_says_what_it_has_instead() -> None:
    with pytest.raises(LeadsFileError, match="no e-mail column, only 'Name', 'Phone'"):
        read("Name,Phone\nAnn,1\n")


@pytest.mark.parametrize("text", ["", "\n\n", "   \n"])
def test_an_empty_file_is_refused(text: str) -> None:
    with pytest.raises(LeadsFileError, match="is empty"):
        read(text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LeadsFileError, match=r"nowhere\.csv"):
        read_leads(tmp_path / "nowhere.csv")


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        (" Ann@B.Example ", "ann@b.example"),
        ("mailto:ann@b.example", "ann@b.example"),
        ("MAILTO:Ann@b.example", "ann@b.example"),
        ('"Lee, Ann" <ann@b.example>', "ann@b.example"),
        ("ann@b.example;", "ann@b.example"),
        ("\u200bann@b.example\u00a0", "ann@b.example"),
        ("ann @ b.example", "ann@b.example"),
    ],
)
def test_addresses_are_brought_to_one_form(raw: str, normal: str) -> None:
    assert normalise_email(raw) == normal


@pytest.mark.parametrize("good", ["a@b.example", "a.b+c@x-y.example", "o'brien@b.example", "ü@müller.example"])
def test_real_addresses_pass(good: str) -> None:
    assert is_email(good)


@pytest.mark.parametrize(
    "bad", ["a@", "@b.example", "a@@b.example", "a@b", "a@b..example", "a b@c.example", "a@b.example, c@d.example", "a"]
)
def test_what_is_no_address_is_refused(bad: str) -> None:
    assert not is_email(bad)


def test_an_address_in_another_spelling_is_a_duplicate_and_names_the_first_row() -> None:
    intake = read("email\nann@b.example\n\nANN@b.example\n")
    assert intake.rejected[0].row == 4
    assert intake.rejected[0].reason == "same e-mail address as row 2: ann@b.example"


@pytest.mark.parametrize("nothing", ["", "n/a", "NULL", "-", "k. A."])
def test_a_row_without_an_address_says_so(nothing: str) -> None:
    assert read(f"name,email\nAnn,{nothing}\n").rejected[0].why == "no e-mail"


@pytest.mark.parametrize(("row", "columns"), [("Ann", 1), ("Ann,a@b.example,x,y", 4)])
def test_a_row_of_another_width_is_refused_with_both_numbers(row: str, columns: int) -> None:
    intake = read(f"name,email\n{row}\nBob,b@b.example\n")
    assert intake.rejected[0].reason == f"has {columns} columns where the header has 2"
    assert [lead.name for lead in intake.leads] == ["Bob"]


def test_empty_columns_at_the_end_are_no_fault() -> None:
    assert read("name,email\nAnn,a@b.example,,\n").leads[0].name == "Ann"


def test_quotes_commas_and_line_breaks_stay_in_their_cell() -> None:
    intake = read('name,email,message\n"Lee, ""Ann""",a@b.example,"one\r\ntwo"\nBob,b@b.example,x\n')
    assert intake.leads[0].name == 'Lee, "Ann"'
    assert intake.leads[0].message == "one two"
    assert intake.leads[1].row == 3


@pytest.mark.parametrize("broken", ['Ann,"a@b.example,x', 'Ann,a@b.example,"x', '"Ann,a@b.example,x'])
def test_a_quote_that_is_never_closed_costs_its_own_row_alone(broken: str) -> None:
    rest = "".join(f'Bob,b{number}@b.example,"fine, really"\n' for number in range(300))
    intake = read(f"name,email,message\n{broken}\n{rest}")
    assert [rejected.why for rejected in intake.rejected] == ["broken quote"]
    assert len(intake.leads) == 300


def test_an_open_quote_in_the_last_row_is_told() -> None:
    intake = read('name,email\nAnn,a@b.example\nBob,"b@b.example')
    assert [rejected.why for rejected in intake.rejected] == ["broken quote"]


@pytest.mark.parametrize("after", ["", "Bob,b@b.example\n"])
def test_quotes_inside_a_quoted_cell_are_forgiven_in_any_row(after: str) -> None:
    assert read(f'name,email\n"Ann "Best" Lee",a@b.example\n{after}').leads[0].name.startswith("Ann Best")


def test_a_cell_beyond_the_reader_s_limit_costs_its_own_row_alone() -> None:
    intake = read(f"name,email\n{'x' * 200_000},a@b.example\nBob,b@b.example\n")
    assert [lead.name for lead in intake.leads] == ["Bob"]
    assert "cannot be read" in intake.rejected[0].reason


def test_characters_that_postgres_or_people_cannot_take_are_gone() -> None:
    assert read("name,email\nA\u0000n\u200bn\u202e,a@b.example\n").leads[0].name == "Ann"


def test_the_report_counts_groups_and_lists_rows() -> None:
    report = read("email\na@b.example\nnonsense\n-\n").report(limit=1)
    assert report.splitlines()[0] == "3 rows, utf-8, delimiter ',': 1 accepted, 2 rejected, 0 blank"
    assert "row 3: not an e-mail address: 'nonsense'" in report
    assert report.endswith("and 1 more")
