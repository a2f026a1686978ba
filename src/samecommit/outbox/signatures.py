"""Signatures of webhooks as the Standard Webhooks specification 1.0 has them (symmetric, ``v1``).

Signed is ``<id>.<timestamp>.<body>`` with HMAC-SHA256. A secret is ``whsec_`` and the base64 of 24 to 64 random bytes. While
a secret is replaced a message is signed with both, and a receiver takes any that fits.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256

from samecommit.errors import ConfigError, SignatureRefused

_PREFIX = "whsec_"
_LEAST_BYTES, _MOST_BYTES = 24, 64
TOLERANCE_SECONDS = 300.0


def secret_key(secret: str) -> bytes:
    """Return the bytes of a secret.

    Raises:
        ConfigError: it is none; its text is not shown.
    """
    try:
        key = b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        raise ConfigError(
            f"a webhook secret cannot be used: give {_PREFIX} and the base64 of {_LEAST_BYTES} to {_MOST_BYTES} random bytes"
        )
    return key


def sign(message_id: str, timestamp: int, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """Return the three headers of a message.

    Args:
        message_id: the same for every attempt; without a full stop.
        timestamp: of the attempt, in seconds since 1970.
        body: what is sent.
        secrets: the newest first, and those that are being replaced.

    Raises:
        ConfigError: a secret or the id cannot be used.
    """
    if "." in message_id or not message_id:
        raise ConfigError(f"webhook id {message_id!r} cannot be signed: give one without a full stop")
    if not secrets:
        raise ConfigError("a webhook without a secret cannot be signed: give its endpoint one")
    signed = [f"v1,{_signature(secret_key(secret), message_id, str(timestamp), body)}" for secret in secrets]
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp), "webhook-signature": " ".join(signed)}


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[str],
    now: float,
    tolerance_seconds: float = TOLERANCE_SECONDS,
) -> str:
    """Return the id of a message that is signed by one of the secrets and not too old.

    Args:
        headers: of the request; names in lower case.
        body: as it came, before any decoding.
        secrets: any of them will do.
        now: seconds since 1970.
        tolerance_seconds: how far the message's time may be from now.

    Raises:
        SignatureRefused: it is not; says why in words that may be shown to the sender.
        ConfigError: a secret cannot be used.
    """
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    given = headers.get("webhook-signature", "").split()
    if not (message_id and timestamp and given):
        raise SignatureRefused("the headers webhook-id, webhook-timestamp and webhook-signature are needed")
    if "." in message_id:  # where it ends would be uncertain: a time and a part of the body could pass for one another
        raise SignatureRefused("webhook-id has a full stop")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 16):
        raise SignatureRefused("webhook-timestamp is no number of seconds")
    if abs(int(timestamp) - now) > tolerance_seconds:
        raise SignatureRefused("webhook-timestamp is too far from now")
    expected = [_signature(secret_key(secret), message_id, timestamp, body) for secret in secrets]
    candidates = [text.removeprefix("v1,").encode() for text in given if text.startswith("v1,")]
    # all are compared, so that how long it takes tells nothing
    fits = [hmac.compare_digest(ours.encode(), theirs) for ours in expected for theirs in candidates]
    if not any(fits):
        raise SignatureRefused("no signature fits")
    return message_id


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    return b64encode(hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, sha256).digest()).decode()
