"""What goes wrong in the demo's own services.

::

    DemoError                 (samecommit.errors)
    ├── LeadsFileError        the file cannot be read as a table of leads
    ├── ChildError            a process of the demo did not start or did not end
    ├── NoAnswer              the other side closed the connection or stayed silent: what it did is unknown
    ├── ModelBusy             429; carries how long to wait
    ├── ModelError            an answer that is no answer: another status, or text that cannot be read
    ├── CrmError              5xx or another unexpected status: what it did is unknown
    └── CrmRefused            4xx: the CRM will never take this contact; carries its reason
"""

from samecommit.errors import DemoError


class LeadsFileError(DemoError):
    """The file cannot be read as a table of leads."""


class ChildError(DemoError):
    """A process of the demo did not start, or did not end when told."""


class NoAnswer(DemoError):
    """The request was sent and no answer came: it may or may not have been carried out."""


class ModelBusy(DemoError):
    """The model's service is rate limiting; ask again after ``retry_after`` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the model's service is busy: ask again after {retry_after:g} s")
        self.retry_after = retry_after


class ModelError(DemoError):
    """The model's service answered with something that is no classification."""


class CrmError(DemoError):
    """The CRM answered with an error; it may or may not have created the contact."""


class CrmRefused(DemoError):
    """The CRM will never take this contact; asking again does not help."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the CRM refused the contact: {reason}")
        self.reason = reason
