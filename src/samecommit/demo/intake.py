"""Read a CSV of leads as people really export them.

The file is decoded whole (by byte order mark, then UTF-8, then Windows-1252), its delimiter is the one that makes the
most known headers, and every row ends in one of two values: a :class:`Lead`, or a :class:`Rejected` with the row's
number and the reason. No row is dropped silently and no bad row stops the file.

A quote that is opened and never closed would swallow the rows after it. A record that runs over several lines and
breaks the strict rules of quoting, or that never ends, is therefore taken to be broken at its first line, and reading
goes on at the next line.
"""

from __future__ import annotations

import codecs
import csv
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from samecommit.demo.errors import LeadsFileError

SAMPLE = Path(__file__).with_name("leads.csv")
SAMPLE_CP1252 = Path(__file__).with_name("leads_cp1252.csv")

Why = Literal["no e-mail", "malformed e-mail", "duplicate", "wrong columns", "broken quote"]

DELIMITERS = (",", ";", "\t", "|")
MAX_FIELD_LENGTH = 10_000
MAX_RECORD_LINES = 200
ALIASES: Mapping[str, str] = {
    alias: field
    for field, aliases in {
        "email": "email|emailaddress|emailadresse|mail|mailaddress|workemail|businessemail|contactemail|epost|correo|courriel",
        "name": "name|fullname|contact|contactname|leadname|person|nombre|nom",
        "first_name": "firstname|givenname|forename|vorname|prenom",
        "last_name": "lastname|surname|familyname|nachname|nomdefamille",
        "company": "company|companyname|organisation|organization|account|employer|firma|unternehmen|empresa|societe",
        "phone": "phone|phonenumber|telephone|tel|mobile|telefon|telefono",
        "country": "country|countrycode|land|pais|pays",
        "message": "message|notes|note|comment|comments|inquiry|enquiry|nachricht|mensaje|howcanwehelp",
        "source": "source|leadsource|utmsource|campaign|channel|quelle",
    }.items()
    for alias in aliases.split("|")
}

_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060\ufeff\u00ad\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_EMAIL = re.compile(r"[^\s@,;:<>()\[\]\"\\]{1,64}@(?:[\w](?:[\w-]{0,61}[\w])?\.)+[^\W\d_][\w-]{0,61}\w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """One accepted row. ``row`` counts as a spreadsheet does: the header is row 1."""

    row: int
    email: str
    name: str = ""
    company: str = ""
    phone: str = ""
    country: str = ""
    message: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """One refused row: ``why`` is its group, ``reason`` the sentence that names what was found."""

    row: int
    why: Why
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A file that was read: each row is in ``leads``, in ``rejected`` or counted in ``blank``."""

    leads: tuple[Lead, ...]
    rejected: tuple[Rejected, ...]
    blank: int
    encoding: str
    delimiter: str

    @property
    def rows(self) -> int:
        """All rows after the header."""
        return len(self.leads) + len(self.rejected) + self.blank

    @property
    def rejections(self) -> dict[str, int]:
        """How many rows were refused, by group, most frequent first."""
        return dict(Counter(rejected.why for rejected in self.rejected).most_common())

    def report(self, *, limit: int = 20) -> str:
        """Say in plain text what was read and which rows were refused, at most ``limit`` of them by number."""
        delimiter = "tab" if self.delimiter == "\t" else self.delimiter
        counts = f"{len(self.leads)} accepted, {len(self.rejected)} rejected, {self.blank} blank"
        lines = [
            f"{self.rows} rows, {self.encoding}, delimiter {delimiter!r}: {counts}",
            *(f"  {count:>5} {why}" for why, count in self.rejections.items()),
            *(f"  row {rejected.row}: {rejected.reason}" for rejected in self.rejected[:limit]),
        ]
        if len(self.rejected) > limit:
            lines.append(f"  and {len(self.rejected) - limit} more")
        return "\n".join(lines)


def read_leads(path: Path) -> Intake:
    """Read the file at ``path``.

    Raises:
        LeadsFileError: the file cannot be opened, is empty, or has no e-mail column.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LeadsFileError(f"cannot read {str(path)!r}: {error.strerror}; give --leads a CSV file") from error
    text, encoding = decode(data)
    return parse_leads(text, encoding=encoding, name=path.name)


def decode(data: bytes) -> tuple[str, str]:
    """Decode a file whose encoding nobody wrote down; returns the text and the encoding's name."""
    encoding = _encoding(data)
    return data.decode(encoding, errors="replace"), encoding


def _encoding(data: bytes) -> str:
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = data[:2000]
    if head.count(0) > len(head) // 4:  # mostly Latin text in UTF-16 has a zero in every other byte
        return "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def parse_leads(text: str, *, encoding: str = "utf-8", name: str = "the file") -> Intake:
    """Turn decoded text into leads and rejections.

    Raises:
        LeadsFileError: there is no header with an e-mail column.
    """
    lines = [f"{line}\n" for line in text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")]
    start = next((number for number, line in enumerate(lines) if line.strip()), None)
    if start is None:
        raise LeadsFileError(f"{name} is empty: give a CSV file with a header and one lead a row")
    delimiter = _delimiter(lines[start])
    records = _records(lines[start:], delimiter)
    fields = _fields(next(records).cells, name)
    leads: list[Lead] = []
    rejected: list[Rejected] = []
    blank = 0
    first_row_of: dict[str, int] = {}
    for row, record in enumerate(records, start=2):
        match _judge(row, record, fields, first_row_of):
            case Lead() as lead:
                leads.append(lead)
                first_row_of[lead.email] = row
            case Rejected() as refusal:
                rejected.append(refusal)
            case None:
                blank += 1
    return Intake(leads=tuple(leads), rejected=tuple(rejected), blank=blank, encoding=encoding, delimiter=delimiter)


def normalise_email(raw: str) -> str:
    """Bring an address to the form that is compared; what is no address comes back cleaned, not repaired."""
    text = clean(raw)
    if bracketed := re.search(r"<([^<>]+)>", text):
        text = bracketed[1]
    text = text.lower().strip(" ,;.'\"").removeprefix("mailto:")
    return re.sub(r"\s*@\s*", "@", text)


def is_email(address: str) -> bool:
    """Whether a normalised address can be written to."""
    return bool(_EMAIL.fullmatch(address)) and ".." not in address and not address.startswith(".")


def clean(raw: str) -> str:
    """Normalise the characters, drop invisible ones, and collapse white space."""
    return " ".join(_INVISIBLE.sub("", unicodedata.normalize("NFC", raw)).split())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    cells: Sequence[str]
    lines: int
    broken: str = ""


def _records(lines: Sequence[str], delimiter: str) -> Iterator[_Record]:
    """Yield one record a row, going on after the first line of one that is broken."""
    start = 0
    closed = [*lines, "\n"]  # a quote that the last row leaves open runs into this line, and is seen by that
    while start < len(lines):
        record = _record(closed[start : start + MAX_RECORD_LINES], delimiter)
        start += record.lines
        yield record


def _record(lines: Sequence[str], delimiter: str) -> _Record:
    reader = csv.reader(lines, delimiter=delimiter)
    try:
        cells = next(reader)
    except csv.Error as error:
        return _Record(cells=(), lines=1, broken=f"cannot be read: {error}")
    if reader.line_num > 1 and _is_misquoted(lines[: reader.line_num], delimiter):
        return _Record(cells=(), lines=1, broken="a quote is opened and not closed in its row")
    return _Record(cells=cells, lines=reader.line_num)


def _is_misquoted(lines: Sequence[str], delimiter: str) -> bool:
    try:
        next(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error:
        return True
    return False


def _delimiter(header: str) -> str:
    """Choose the delimiter that gives the most known headers, then the most columns."""

    def worth(delimiter: str) -> tuple[int, int]:
        cells = next(csv.reader([header], delimiter=delimiter))
        return sum(_field(cell) is not None for cell in cells), len(cells)

    return max(DELIMITERS, key=worth)


def _field(header: str) -> str | None:
    plain = unicodedata.normalize("NFKD", header).encode("ascii", "ignore").decode().lower()
    return ALIASES.get(re.sub(r"[^a-z]", "", plain))


def _fields(header: Sequence[str], name: str) -> list[str | None]:
    """Name each column's field; of two columns for one field the first is used."""
    fields: list[str | None] = []
    for cell in header:
        field = _field(cell)
        fields.append(None if field in fields else field)
    if "email" not in fields:
        found = ", ".join(repr(clean(cell)) for cell in header)
        raise LeadsFileError(f"{name} has no e-mail column, only {found}: call one of them 'email'")
    return fields


def _judge(
    row: int, record: _Record, fields: Sequence[str | None], first_row_of: Mapping[str, int]
) -> Lead | Rejected | None:
    if record.broken:
        return Rejected(row=row, why="broken quote", reason=record.broken)
    cells = [clean(cell)[:MAX_FIELD_LENGTH] for cell in record.cells]
    if not any(cells):
        return None
    while len(cells) > len(fields) and not cells[-1]:
        cells.pop()
    if len(cells) != len(fields):
        reason = f"has {len(cells)} columns where the header has {len(fields)}"
        return Rejected(row=row, why="wrong columns", reason=reason)
    values = {field: cell for field, cell in zip(fields, cells, strict=True) if field is not None}
    return _judge_email(row, values, first_row_of)


def _judge_email(row: int, values: dict[str, str], first_row_of: Mapping[str, int]) -> Lead | Rejected:
    raw = values.pop("email")
    email = normalise_email(raw)
    if not email or email in {"n/a", "na", "none", "null", "-", "unknown", "#n/a", "k. a", "k. a."}:
        return Rejected(row=row, why="no e-mail", reason=f"no e-mail address (found {raw!r})")
    if not is_email(email):
        return Rejected(row=row, why="malformed e-mail", reason=f"not an e-mail address: {raw!r}")
    if email in first_row_of:
        return Rejected(row=row, why="duplicate", reason=f"same e-mail address as row {first_row_of[email]}: {email}")
    parts = (values.pop("first_name", ""), values.pop("last_name", ""))
    name = values.pop("name", "") or clean(" ".join(parts))
    return Lead(row=row, email=email, name=name, **values)
