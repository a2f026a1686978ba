"""Every error that Samecommit raises, in one tree.

::

    SamecommitError
    ├── ConfigError              a setting or option is wrong; nothing was started
    │   └── DependencyMissing    an optional package is not installed; the message says what to install
    ├── TaskDefinitionError      a function that cannot be a task; raised where it is declared
    ├── AppNotFound              ``module:app`` names nothing that can be run
    ├── EnqueueError             refused before or by the database; the caller's transaction says which
    │   ├── PayloadError         an argument that cannot be stored; carries its path (also TypeError or ValueError's place)
    │   ├── NotInTransaction     the connection would commit by itself, which would reopen the gap
    │   ├── UnsupportedConnection  an object that is no known connection kind
    │   ├── UnknownQueue         no such queue in the database
    │   ├── EventRefused         an event that a matching destination could never take
    │   ├── UniqueConflict       its unique key is held by another job, and a duplicate was to be rejected
    │   ├── ReadOnlyTransaction  the transaction may not write: a standby, or SET TRANSACTION READ ONLY
    │   └── CommitUnknown        the connection was lost while committing: the job may be stored or not
    ├── PayloadMismatch          a stored payload no longer fits the task's signature
    ├── SchemaError              the database's schema and this code do not fit
    │   ├── SchemaMissing        nothing is installed under that name
    │   ├── SchemaTooOld         run the migration
    │   └── SchemaTooNew         upgrade the package
    ├── UnknownJob               no job has that id (any more)
    ├── UnknownDestination       no destination of the outbox has that name
    ├── SignatureRefused         a webhook that nobody with the secret has sent, or too long ago
    ├── LeaseLost                this run no longer owns its job: all its writes are refused
    ├── ChildDied                the child process that ran a task has ended before it answered
    ├── JobError                 what ``app.result`` raises for a job that failed or was cancelled
    ├── EmbeddedError            the embedded server cannot be found, started or used
    ├── InjectedFault            a test asked for it with SAMECOMMIT_FAULTS
    └── DemoError                the demo's input, services or processes; its kinds are in ``samecommit.demo.errors``
"""


class SamecommitError(Exception):
    """The root: catch it to catch everything that this package raises."""


class ConfigError(SamecommitError):
    """A setting or option is wrong; nothing was started."""


class DependencyMissing(ConfigError):
    """An optional package is not installed."""


class TaskDefinitionError(SamecommitError):
    """The decorated function cannot run as a task."""


class AppNotFound(SamecommitError):
    """What was given as ``module:app`` names no application."""


class EnqueueError(SamecommitError):
    """The job was not stored."""


class PayloadError(EnqueueError):
    """An argument or result that cannot be stored.

    ``path`` says where it sits, as in ``$.items[3].price``; ``index`` which job of a batch has it, from 0.
    """

    def __init__(self, message: str, path: str = "$", index: int | None = None) -> None:
        super().__init__(message)
        self.path, self.index = path, index


class NotInTransaction(EnqueueError):
    """The connection is in autocommit mode and outside a transaction."""


class UnsupportedConnection(EnqueueError, TypeError):
    """The object given as a connection is of no known kind."""


class UnknownQueue(EnqueueError):
    """The named queue does not exist in the database."""


class UniqueConflict(EnqueueError):
    """Another job holds the unique key: ``job_id`` says which. Nothing was stored; the transaction stays usable."""

    def __init__(self, message: str, *, key: str, scope: str, job_id: int) -> None:
        super().__init__(message)
        self.key, self.scope, self.job_id = key, scope, job_id


class ReadOnlyTransaction(EnqueueError):
    """The caller's transaction may not write."""


class CommitUnknown(EnqueueError):
    """The connection was lost while committing, so nobody knows whether the job is stored; a unique key makes it safe to repeat."""


class EventRefused(EnqueueError):
    """A destination could never take the event, so it is refused where its emitter can see it."""


class PayloadMismatch(SamecommitError):
    """A stored payload that no longer fits the task's signature; ``path`` says where, as in `PayloadError`."""

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class SchemaError(SamecommitError):
    """The installed schema and this version of the code do not fit."""


class SchemaMissing(SchemaError):
    """Nothing is installed in the named schema."""


class SchemaTooOld(SchemaError):
    """The installed schema lacks migrations that this code needs."""


class SchemaTooNew(SchemaError):
    """The installed schema was made by a newer version of the code."""


class UnknownJob(SamecommitError):
    """No job with that id is stored any more."""


class UnknownDestination(SamecommitError):
    """No destination of the outbox has that name in the database."""


class SignatureRefused(SamecommitError):
    """A received webhook is not signed by a known secret, or its time is too far from now."""


class LeaseLost(SamecommitError):
    """This run lost its lease; somebody else owns the job now and every write of this run is refused."""


class ChildDied(SamecommitError):
    """The child process of a task with ``executor="process"`` was killed or ended; ``is_begun`` says whether the task had begun."""

    def __init__(self, message: str, *, is_begun: bool = True) -> None:
        super().__init__(message)
        self.is_begun = is_begun


class JobError(SamecommitError):
    """The awaited job ended as failed or cancelled (``state``); ``reason`` is its last error."""

    def __init__(self, message: str, *, job_id: int, state: str, reason: str | None) -> None:
        super().__init__(message)
        self.job_id, self.state, self.reason = job_id, state, reason


class EmbeddedError(SamecommitError):
    """The embedded PostgreSQL cannot be found, started or used."""


class InjectedFault(SamecommitError):
    """A test asked for this failure, see ``samecommit.faultpoints``."""


class DemoError(SamecommitError):
    """Something in the demo's input, services or processes went wrong; never raised by the engine."""
