"""The page shows the table of rights as it is."""

from pathlib import Path

from samecommit.storage.roles import ACCESS, ROLES

PAGE = Path(__file__).parents[2] / "docs/operations/roles.md"
BEGIN, END = "<!-- rights: begin (made by tests/roles/test_page.py) -->", "<!-- rights: end -->"
SAID = {
    "": "-",
    "EXECUTE": "yes",
    "SELECT": "read",
    "SELECT, INSERT, UPDATE, DELETE": "read, write",
    "USAGE, SELECT": "use, read",
}


def table() -> str:
    shown = [role for role in ROLES if role != "owner"]
    lines: list[str] = []
    for what, grants in ACCESS.items():
        lines += ["", f"| {what} | {' | '.join(shown)} |", f"|---|{'---|' * len(shown)}"]
        for name, roles in grants.items():
            if roles:
                lines.append(f"| `{name}` | {' | '.join(SAID[roles.get(role, '')] for role in shown)} |")
    return "\n".join([*lines, "", ""])


def test_the_page_shows_the_table_of_rights() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0] == "\n" + table(), f"put this between the marks:\n{table()}"
