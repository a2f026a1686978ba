"""Make the two sample files: ``python -m samecommit.demo.make_leads``.

The same files come out every time (a test compares them). All addresses are in domains reserved for examples; the
people are put together from lists of names. The mess is what exports really hold: a byte order mark, quotes and line
breaks in cells, the same person three times, addresses with a name around them, non-breaking and zero-width spaces,
"n/a", rows cut short by a stray delimiter, a quote that is never closed.
"""

# ruff: noqa: RUF001, SIM905 - foreign letters and repeatable chance are the point; names read best in a row

from __future__ import annotations

import csv
import io
import random
import unicodedata
from collections.abc import Callable, Sequence

from samecommit.demo.intake import SAMPLE, SAMPLE_CP1252

HEADER = ("Created", "Full Name", "E-mail", "Company Name", "Phone", "Country", "Lead Source", "Message")
GERMAN_HEADER = ("Vorname", "Nachname", "E-Mail-Adresse", "Firma", "Telefon", "Land", "Nachricht")

FIRST = (
    "Ana Björn Chloé Dmitri Emre Fatima Giulia Håkon Ivo Jürgen Kateřina Łukasz María Nguyễn Oluwaseun Priya Quentin "
    "Renée Søren Thủy Uğur Věra William Xóchitl Yusuf Zoë Aoife Brian Claire Dao Ethan Farah Grace Hiroshi Ivan Jane "
    "Kwame Lena Mohamed Noor Olga Peter Rosa Sean Tomás Ursula Viktor Wanjiru Yuki Zeynep"
).split()
LAST = (
    "O’Brien Müller García Nuñez Kowalski Sørensen Lindström Çelik Dvořák Nguyen Okafor Sharma Rossi Ferreira Smith "
    "D'Souza van-Dijk Haddad Tanaka Ivanova Jones Kim Larsson Mbeki Novák Östberg Petrov Quispe Ramírez Šimić Taylor "
    "Ünal Varga Walker Yılmaz Zhang Brown Cohen Dubois Eriksen Fischer Gómez Hansen Ito Jansen Keller Lopez Moreau"
).split()
WHOLE = (
    "李小龙",
    "山田 太郎",
    "김민준",
    "Мария Петрова",
    "Γιώργος Παπαδόπουλος",
    "محمد الأحمد",
    "דוד כהן",
    "สมชาย ใจดี",
)
TRADES = (
    "Logistics Foods Dental Robotics Textiles Solar Travel Legal Optics Brewing Freight Pharma Games Timber".split()
)
PLACES = "Northwind Alder Bluebay Cedar Delta Ember Fjord Granite Harbor Indigo Juniper Kestrel Lumen Meridian".split()
FORMS = ("Ltd", "GmbH", "S.A.", "AB", "Inc.", "& Sons", "Sp. z o.o.", "B.V.")
FREE_MAIL = ("mail.example", "post.example", "inbox.example")
COUNTRIES = ("DE", "United Kingdom", "France", "es", "PL", "Sverige", "USA", "Brasil", "Japan", "", "India", "Türkiye")
SOURCES = ("webform", "Trade show", "newsletter", "Referral", "ads / search", "")

MESSAGES: dict[str, tuple[str, ...]] = {
    "hot": (
        "Please send a quote for {n} seats, budget is approved and we want to start this month.",
        "We need pricing for {n} users urgently. Can you call me tomorrow?",
        "Ready to buy. Where do I send the purchase order for {n} licences?",
        "Our contract with the other vendor ends soon.\nWe need an offer for {n} people by Friday.",
    ),
    "warm": (
        'Saw your talk; can we get a demo for the team? They asked for "something that just works".',
        "We are comparing three products this quarter and would like a trial.",
        "Could you show us how it fits with our warehouse system? A demo next week would be great.",
    ),
    "cold": (
        "Just looking around for now, nothing planned this year.",
        "I am a student and write my thesis about this, do you have a brochure?",
        "Please add me to the newsletter.",
    ),
    "support": (
        "I can't log in since yesterday, the reset mail never arrives.",
        "Invoice {n} is wrong, please correct it.",
        "The export is broken: it stops at row {n} with an error.",
    ),
}
MIXED = (
    "I can't log in, and by the way please send a quote for {n} seats.",
    "Just looking around, but if the pricing is right we are ready to buy.",
    "A demo would be nice; I am a student though.",
)
GERMAN_MESSAGES = (
    "Bitte um ein Angebot – Budget ca. {n}.000 €.",
    "Rückruf erwünscht: „Demo“ für {n} Personen, gerne nächste Woche.",
    "Erst eine Demo, dann ein Angebot für {n} Plätze – geht das?",
)

Row = list[str]


def main_rows(rng: random.Random, people: int = 1230) -> list[Row]:
    """Good rows with their duplicates and bad rows among them, in the order of a real export."""
    rows = [_row(rng, number) for number in range(people)]
    rows += [_again(rng, rng.choice(rows)) for _ in range(70)]
    rows += [_spoil(rng, _row(rng, people + number)) for number in range(60)]
    rng.shuffle(rows)
    for _ in range(6):
        rows.insert(rng.randrange(len(rows)), [])
    rows.insert(len(rows) // 3, ["", "", "", "", "", "", "", ""])
    return rows


def _row(rng: random.Random, number: int) -> Row:
    first, last = rng.choice(FIRST), rng.choice(LAST)
    name = f"{first} {last}" if rng.random() > 0.06 else rng.choice(WHOLE)
    company = f"{rng.choice(PLACES)} {rng.choice(TRADES)} {rng.choice(FORMS)}"
    if rng.random() < 0.03:
        company = f'{rng.choice(PLACES)} "{rng.choice(TRADES)}", {rng.choice(FORMS)}'
    domain = _domain(rng, company)
    email = f"{_ascii(first)}.{_ascii(last)}{number}@{domain}"
    return [
        f"2025-0{rng.randint(1, 9)}-{rng.randint(10, 28)} {rng.randint(0, 23):02}:{rng.randint(0, 59):02}",
        _dressed_name(rng, name),
        _dressed_email(rng, email, name),
        company if rng.random() > 0.08 else "",
        _phone(rng),
        rng.choice(COUNTRIES),
        rng.choice(SOURCES),
        _message(rng),
    ]


def _domain(rng: random.Random, company: str) -> str:
    if rng.random() < 0.012:
        return "do-not-contact.example"
    if rng.random() < 0.25:
        return rng.choice(FREE_MAIL)
    return "-".join(_ascii(word) for word in company.split()[:2]) + ".example"


def _message(rng: random.Random) -> str:
    if rng.random() < 0.03:
        return rng.choice(MIXED).format(n=rng.randint(2, 900))
    label = rng.choices(list(MESSAGES), weights=[3, 4, 3, 1])[0]
    text = rng.choice(MESSAGES[label]).format(n=rng.randint(2, 900))
    return text if rng.random() > 0.05 else f"{text}\n\n--\nsent from my phone 📱"


def _phone(rng: random.Random) -> str:
    digits = f"555 01{rng.randint(0, 99):02}"
    return rng.choice([f"+1 {digits}", f"(0){digits}", digits.replace(" ", "-"), "", "n/a", f"'+44 {digits}"])


def _dressed_name(rng: random.Random, name: str) -> str:
    dress: Sequence[Callable[[str], str]] = (str.upper, str.lower, lambda text: f"  {text}\u00a0", _decomposed)
    return rng.choice(dress)(name) if rng.random() < 0.15 else name


def _dressed_email(rng: random.Random, email: str, name: str) -> str:
    if rng.random() > 0.12:
        return email
    return rng.choice(
        [email.title(), f" {email} ", f"mailto:{email}", f'"{name}" <{email}>', f"{email};", f"\u200b{email}\u00a0"]
    )


def _again(rng: random.Random, row: Row) -> Row:
    """The same person from another form: the address in another spelling."""
    again = list(row)
    again[2] = rng.choice([row[2].upper(), row[2].strip(), f" {row[2]}"])
    again[6] = rng.choice(SOURCES)
    return again


def _spoil(rng: random.Random, row: Row) -> Row:
    """Break the row in one of the ways seen in exports."""
    local = row[2].split("@", maxsplit=1)[0].strip(' "')
    bad = ["", "n/a", "-", f"{local}@", "@example.com", "call me", f"{local} at example.com", f"{local}@@example.com"]
    bad += [f"{local}@example", f"{local}@example..com", "jane@example.com, joe@example.com", "555 0123", "NULL"]
    kind = rng.random()
    if kind < 0.75:
        row[2] = rng.choice(bad)
        return row
    return row[: rng.randint(2, 6)] if kind < 0.88 else [*row, "moved from column G", ""]


def _ascii(text: str) -> str:
    plain = text.translate(str.maketrans("øŁłı", "oLli"))
    plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode().lower()
    return "".join(character for character in plain if character.isalnum())


def _decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def main_csv() -> bytes:
    """``leads.csv``: UTF-8 with a byte order mark, as a spreadsheet saves it."""
    rng = random.Random(20250917)
    rows = main_rows(rng)
    text = _csv([HEADER, *rows], delimiter=",")
    head, tail = text[: len(text) // 2], text[len(text) // 2 :]
    first, rest = tail.split("\r\n2025-", maxsplit=1)
    open_quote = (
        '2025-06-11 09:30,Never Closed,"never.closed@example.com,Kestrel Legal AB,,DE,webform,a stray quote\r\n'
    )
    return (head + first + "\r\n" + open_quote + "2025-" + rest).encode("utf-8-sig")


def german_csv(people: int = 120) -> bytes:
    """``leads_cp1252.csv``: the older export, semicolons and Windows-1252."""
    rng = random.Random(1252)
    first = [name for name in FIRST if _fits_cp1252(name)]
    last = [name for name in LAST if _fits_cp1252(name)]
    rows: list[Row] = []
    for number in range(people):
        given, family = rng.choice(first), rng.choice(last)
        company = f"{rng.choice(PLACES)} {rng.choice(TRADES)} {rng.choice(('GmbH', 'AG', '& Söhne KG'))}"
        email = f"{_ascii(given)}.{_ascii(family)}{number}@{_domain(rng, company)}" if rng.random() > 0.04 else "k. A."
        message = rng.choices(GERMAN_MESSAGES, weights=[5, 5, 1])[0].format(n=rng.randint(2, 90))
        rows.append([given, family, email, company, _phone(rng), "Österreich" if rng.random() < 0.2 else "DE", message])
    return _csv([GERMAN_HEADER, *rows], delimiter=";").encode("cp1252")


def _fits_cp1252(name: str) -> bool:
    try:
        name.encode("cp1252")
    except UnicodeEncodeError:
        return False
    return True


def _csv(rows: Sequence[Sequence[str]], delimiter: str) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return out.getvalue()


if __name__ == "__main__":
    SAMPLE.write_bytes(main_csv())
    SAMPLE_CP1252.write_bytes(german_csv())
