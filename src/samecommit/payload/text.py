"""Text that PostgreSQL always takes.

An error's message may hold anything: a NUL, half of a surrogate pair, ten megabytes. The write that records a failure
must not fail because of it, or the job is neither failed nor done.
"""


def clean_text(text: str, *, limit_bytes: int) -> str:
    r"""Return `text` as something that a ``text`` or ``jsonb`` column takes, at most `limit_bytes` long in UTF-8.

    NUL becomes the four visible characters ``\x00`` and a lone surrogate ``\udc80`` or the like. A longer text keeps
    its head and its tail, where a traceback says what happened, and between them says how many bytes are missing.

    Never raises, whatever the text.
    """
    data = str.replace(text, "\0", r"\x00").encode("utf-8", "backslashreplace")
    if len(data) <= limit_bytes:
        return data.decode()
    # The marker is measured with the largest number that it can hold, so that one pass is enough.
    room = limit_bytes - len(_marker(len(data)))
    if room < 2:
        return _whole(data[: max(limit_bytes, 0)])
    head = _whole(data[: room - room // 2])
    tail = _whole(data[-(room // 2) :])
    kept = len(head.encode()) + len(tail.encode())
    return f"{head}{_marker(len(data) - kept)}{tail}"


def _marker(cut: int) -> str:
    return f"\n[... {cut:,} bytes cut ...]\n"


def _whole(data: bytes) -> str:
    """Drop the character that the cut went through."""
    return data.decode("utf-8", "ignore")
