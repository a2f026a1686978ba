"""Create and find contacts in a CRM that offers no idempotency.

Creating is never safe to repeat blindly: after :class:`NoAnswer` or :class:`CrmError` the contact may exist. Look with
:meth:`CrmClient.find` first, and not before the CRM had time to finish what it was doing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from samecommit.demo.errors import CrmError, CrmRefused
from samecommit.demo.http_json import Response, request_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """A contact as the CRM knows it."""

    id: int
    email: str
    name: str = ""
    company: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrmClient:
    """Where the CRM is."""

    base_url: str
    timeout_seconds: float = 10.0

    @classmethod
    def from_environment(cls) -> CrmClient:
        """Read ``DEMO_CRM_URL``."""
        return cls(base_url=os.environ["DEMO_CRM_URL"].rstrip("/"))

    def create(self, *, email: str, name: str, company: str, label: str) -> Contact:
        """Create a contact; asked twice, it makes two.

        Raises:
            CrmRefused: 4xx, for good.
            CrmError: another status: what was done is unknown.
            NoAnswer: nothing came back: what was done is unknown.
        """
        body = {"email": email, "name": name, "company": company, "label": label}
        return _contact(self._call("POST", "/contacts", body))

    def find(self, email: str) -> list[Contact]:
        """Find the contacts with this address, oldest first; safe to repeat. Raises as :meth:`create`."""
        found = self._call("GET", f"/contacts?{urlencode({'email': email})}")["contacts"]
        return [_contact(contact) for contact in found]

    def contacts(self) -> Iterator[Contact]:
        """Page through all contacts, oldest first."""
        after = 0
        while page := self._call("GET", f"/contacts?{urlencode({'after': after, 'limit': 500})}")["contacts"]:
            yield from (_contact(contact) for contact in page)
            after = int(page[-1]["id"])

    def stats(self) -> dict[str, int]:
        """Read the stub's own counts."""
        return dict(self._call("GET", "/stats"))

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        response = request_json(method, f"{self.base_url}{path}", body=body, timeout_seconds=self.timeout_seconds)
        if response.is_success:
            return response.body
        if 400 <= response.status < 500:
            raise CrmRefused(_reason(response))
        raise CrmError(f"the CRM answered {response.status} to {method}: {_reason(response)}")


def _reason(response: Response) -> str:
    match response.body:
        case {"error": reason}:
            return str(reason)
        case body:
            return repr(body)[:200]


def _contact(raw: Any) -> Contact:
    return Contact(id=int(raw["id"]), email=raw["email"], name=raw["name"], company=raw["company"], label=raw["label"])
