"""Enqueues under keys, tells who holds them, and checks what must be true at every moment."""

from dataclasses import dataclass
from typing import Any

from tests.support.jobs import Jobs

# Live jobs that share a key with another live job, keys of live jobs that are not theirs, and keys of nobody.
BROKEN = """
    SELECT 'two live jobs', unique_scope, unique_key, count(*)
    FROM $.job WHERE unique_key IS NOT NULL AND state <> 'failed'
    GROUP BY unique_scope, unique_key HAVING count(*) > 1
    UNION ALL
    SELECT 'a live job without its key', j.unique_scope, j.unique_key, j.id
    FROM $.job AS j
    WHERE j.unique_key IS NOT NULL AND j.state <> 'failed'
      AND NOT EXISTS (SELECT FROM $.unique_key AS k
                      WHERE k.scope = j.unique_scope AND k.key = j.unique_key AND k.job_id = j.id)
    UNION ALL
    SELECT 'a key without a live job', k.scope, k.key, k.job_id
    FROM $.unique_key AS k
    WHERE k.until_at IS NULL
      AND NOT EXISTS (SELECT FROM $.job AS j WHERE j.id = k.job_id AND j.state <> 'failed')
"""


@dataclass(frozen=True)
class Keys:
    """The keys of one installation."""

    jobs: Jobs

    def enqueue(self, key: str = "k", kind: str = "work", **options: Any) -> tuple[int, bool, bool]:
        """Store a job through the contract's function: (id, created, replaced)."""
        named = "".join(f", {name} => %s" for name in options)
        row = self.jobs.all(f"SELECT * FROM $.enqueue(%s, unique_key => %s{named})", kind, key, *options.values())[0]
        return row[0], row[1], row[2]

    def holder(self, key: str = "k", scope: str = "work") -> int | None:
        """Return which job holds the key."""
        rows = self.jobs.all("SELECT job_id FROM $.unique_key WHERE scope = %s AND key = %s", scope, key)
        return rows[0][0] if rows else None

    def call(self, function: str, *values: Any) -> Any:
        """Call one of the contract's functions."""
        return self.jobs.value(f"SELECT $.{function}({', '.join(['%s'] * len(values))})", *values)

    def check(self) -> None:
        """Every live job holds its key, alone."""
        broken = self.jobs.all(BROKEN)
        assert not broken, broken
