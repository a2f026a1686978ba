"""What has become of a job, read through the views that anybody may read."""

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row, tuple_row
from tests.support.waiting import until

from samecommit.storage.query import quote_name


@dataclass(frozen=True)
class Jobs:
    """Reads the jobs of one installation, on a connection that commits each statement."""

    conn: psycopg.Connection[Any]
    schema: str = "samecommit"

    @property
    def _home(self) -> str:
        return quote_name(self.schema).replace("%", "%%") + "."

    def all(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement in which ``$.`` stands for the schema."""
        cursor = self.conn.cursor(row_factory=tuple_row)
        cursor.execute(text.replace("$.", self._home).encode(), values)
        return cursor.fetchall() if cursor.description else []

    def value(self, text: str, *values: Any) -> Any:
        """Return the first column of the first row."""
        return self.all(text, *values)[0][0]

    def row(self, job_id: int) -> dict[str, Any]:
        """Return the job as the view ``jobs`` shows it; exactly one row, wherever it is."""
        cursor = self.conn.cursor(row_factory=dict_row)
        rows = cursor.execute(f"SELECT * FROM {self._home}jobs WHERE id = %s".encode(), [job_id]).fetchall()
        assert len(rows) == 1, rows
        return rows[0]

    def state(self, job_id: int) -> str | None:
        """Return the job's state, None when there is none."""
        rows = self.all("SELECT state FROM $.jobs WHERE id = %s", job_id)
        return rows[0][0] if rows else None

    def count(self, state: str | None = None) -> int:
        """Count the jobs, in one state or all."""
        return int(self.value("SELECT count(*) FROM $.jobs WHERE %s::text IS NULL OR state = %s", state, state))

    def attempts(self, job_id: int) -> list[dict[str, Any]]:
        """Return its attempts in order, as the view ``attempts`` shows them."""
        cursor = self.conn.cursor(row_factory=dict_row)
        text = f"SELECT * FROM {self._home}attempts WHERE job_id = %s ORDER BY number, claimed_at"
        return cursor.execute(text.encode(), [job_id]).fetchall()

    def outcomes(self, job_id: int) -> list[str]:
        """Return how its attempts ended, in order."""
        return [attempt["outcome"] for attempt in self.attempts(job_id)]

    async def ended(self, job_id: int, state: str = "done", timeout_seconds: float = 15.0) -> dict[str, Any]:
        """Wait until the job is in that state, and return it."""
        await until(lambda: self.state(job_id) == state, timeout_seconds, f"job {job_id} {state}")
        return self.row(job_id)
