"""Payloads: JSON that gives back exactly what was put in, or is refused before it is stored.

The types come from the function's signature, so what is stored is plain JSON that SQL, a dashboard or another
language can read, and no pickle. What is accepted comes back equal, with its type; what could not is refused where it
is enqueued, with its place (``$.items[3].price``).

==============================  ====================================================================================
declared                        stored, and what is refused
==============================  ====================================================================================
``bool``, ``None``              as JSON has them; 1 is no bool
``int``                         number of up to 4,300 characters; bool and ``"42"`` are refused
``float``                       number; an int that a float holds exactly becomes one; NaN and infinity are refused
``str``                         text; NUL and lone surrogates are refused
``Decimal``                     text, so ``1.10`` stays ``1.10``; NaN and infinity are refused
``datetime``                    ISO 8601 with offset; the instant is kept to the microsecond, the zone's name is not;
                                a datetime without zone is refused always
``date``, ``time``,             ISO 8601; a datetime is no date; a time with a zone but no fixed offset is refused
``timedelta``
``UUID``                        text
``bytes``, ``bytearray``        base 64
``Enum``, ``Flag``              the member's value; all values are text, or all are integers below 2⁶³
``Literal``                     the value
``list``, ``tuple``, ``set``,   array; ``Sequence`` and ``Collection`` mean list; a tuple is no list
``frozenset``, ``NamedTuple``
``dict``, ``TypedDict``         object; the order of keys is not kept. Keys: str, int, UUID, date, time, datetime,
                                timedelta, Decimal, bytes, Enum, Literal. Undeclared keys are refused
dataclass, attrs, msgspec       object; an instance of a subclass is refused; one that a ``__post_init__`` changes
``Struct``, generic or not      when it is read is refused
pydantic model                  as the model writes itself; refused if it does not read itself back equal
``X | Y``                       as the one that fits; types that look alike in JSON (``datetime | str``) are refused
                                where the task is declared
``Any``, ``object``, nothing    JSON's own types only: anything else is refused, and so are keys that are not str
==============================  ====================================================================================

An instance of a subclass of str, int, float, datetime and the like is stored as its base if it equals it. Negative
zero comes back as zero: jsonb has only one. Values nest at most 100 levels; JSON is at most 1 MiB unless told.

**Plain forms.** `encode_plain`, for records, results without annotation and the like, also takes all of the above
without a declared type, and writes the same forms: dataclasses, structs and models become objects by field name,
tuples and sets become arrays (a set in the order of its JSON). Read back, they are what JSON has: this way is one-way.
"""

from samecommit.payload.codec import PayloadCodec, ValueCodec, encode_plain
from samecommit.payload.document import MAX_BYTES
from samecommit.payload.plain import MAX_DEPTH
from samecommit.payload.text import clean_text

__all__ = ["MAX_BYTES", "MAX_DEPTH", "PayloadCodec", "ValueCodec", "clean_text", "encode_plain"]
