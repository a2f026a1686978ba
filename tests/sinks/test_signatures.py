"""Signatures, against the specification's own example and against everything that somebody else may send."""

import secrets
from base64 import b64encode

import pytest

from samecommit.errors import ConfigError, SignatureRefused
from samecommit.outbox.signatures import sign, verify

# The example of the Standard Webhooks specification's reference libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, TIME, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def new_secret(size: int = 24) -> str:
    return "whsec_" + b64encode(secrets.token_bytes(size)).decode()


def test_the_specifications_example_has_its_signature() -> None:
    assert sign(ID, TIME, BODY, [SECRET]) == {
        "webhook-id": ID,
        "webhook-timestamp": str(TIME),
        "webhook-signature": SIGNATURE,
    }


def test_while_a_secret_is_replaced_both_receivers_take_it() -> None:
    old, new = new_secret(), new_secret(64)
    headers = sign("m1", TIME, BODY, [new, old])
    assert verify(headers, BODY, [old], TIME) == "m1"
    assert verify(headers, BODY, [new], TIME + 299) == "m1"
    assert verify(sign("m1", TIME, BODY, [old]), BODY, [new, old], TIME) == "m1"


@pytest.mark.parametrize(
    ("changes", "body", "now", "says"),
    [
        ({"webhook-id": "m2"}, BODY, TIME, "no signature fits"),
        ({}, BODY + b" ", TIME, "no signature fits"),
        ({"webhook-timestamp": str(TIME + 1)}, BODY, TIME, "no signature fits"),
        ({"webhook-signature": "v1,"}, BODY, TIME, "no signature fits"),
        ({"webhook-signature": "v1,ü"}, BODY, TIME, "no signature fits"),
        ({"webhook-signature": SIGNATURE.replace("v1,", "v1a,")}, BODY, TIME, "no signature fits"),
        ({"webhook-signature": SIGNATURE.replace("v1,", "")}, BODY, TIME, "no signature fits"),
        ({"webhook-signature": ""}, BODY, TIME, "are needed"),
        ({"webhook-id": ""}, BODY, TIME, "are needed"),
        ({"webhook-timestamp": "soon"}, BODY, TIME, "no number"),
        ({"webhook-timestamp": "-1"}, BODY, TIME, "no number"),
        ({"webhook-timestamp": "٣"}, BODY, TIME, "no number"),
        ({"webhook-timestamp": "9" * 400}, BODY, TIME, "no number"),
        ({}, BODY, TIME + 301, "too far"),
        ({}, BODY, TIME - 301, "too far"),
    ],
)
def test_what_somebody_else_has_sent_is_refused(changes: dict[str, str], body: bytes, now: float, says: str) -> None:
    headers = {**sign("m1", TIME, BODY, [SECRET]), **changes}
    with pytest.raises(SignatureRefused, match=says):
        verify(headers, body, [SECRET], now)


def test_a_time_in_the_id_and_a_body_that_begins_with_one_are_no_other_message() -> None:
    headers = {
        **sign("m1", TIME, b"1764600000.5", [SECRET]),
        "webhook-id": f"m1.{TIME}",
        "webhook-timestamp": "1764600000",
    }
    with pytest.raises(SignatureRefused, match="full stop"):
        verify(headers, b"5", [SECRET], 1764600000)


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_!!!", "plain", new_secret(23), new_secret(65), SECRET[6:]],
    ids=["empty", "no base 64", "plain", "too short", "too long", "without its prefix"],
)
def test_a_secret_that_is_none_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sign("m1", TIME, BODY, [secret])
    assert not secret or secret not in str(caught.value)


def test_an_id_with_a_full_stop_and_a_missing_secret_are_refused() -> None:
    with pytest.raises(ConfigError, match="full stop"):
        sign("a.b", TIME, BODY, [SECRET])
    with pytest.raises(ConfigError, match="without a secret"):
        sign("m1", TIME, BODY, [])
