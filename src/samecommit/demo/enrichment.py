"""Work out what a lead's own fields say about it: the first of the three steps, without any service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Segment = Literal["business", "private"]

FREE_MAIL = {
    *("gmail.com", "googlemail.com", "outlook.com", "hotmail.com", "yahoo.com", "icloud.com", "gmx.de", "proton.me"),
    *("mail.example", "post.example", "inbox.example"),
}
COUNTRIES: Mapping[str, str] = {
    "united kingdom": "GB",
    "uk": "GB",
    "usa": "US",
    "germany": "DE",
    "deutschland": "DE",
    "österreich": "AT",
    "france": "FR",
    "sverige": "SE",
    "brasil": "BR",
    "japan": "JP",
    "india": "IN",
    "türkiye": "TR",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Enriched:
    """The lead's fields in the form that people and the CRM expect."""

    name: str
    company: str
    phone: str
    country: str
    segment: Segment

    def values(self) -> dict[str, str]:
        """Return the fields as parameters of a statement."""
        return asdict(self)


def enrich_lead(*, email: str, name: str, company: str, phone: str, country: str) -> Enriched:
    """Tidy the name, guess a missing company from the domain, and tell a business address from a private one."""
    domain = email.rpartition("@")[2]
    segment: Segment = "private" if domain in FREE_MAIL else "business"
    guess = domain.split(".")[0].replace("-", " ").title() if segment == "business" else ""
    return Enriched(
        name=name.title() if name.isupper() or name.islower() else name,
        company=company or guess,
        phone=re.sub(r"[^\d+]", "", phone),
        country=COUNTRIES.get(country.lower(), country.upper() if len(country) == 2 else country),
        segment=segment,
    )
