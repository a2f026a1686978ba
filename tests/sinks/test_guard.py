"""No webhook reaches a private network, however its address is written or comes about."""

import ipaddress

import pytest

from samecommit.errors import ConfigError
from samecommit.outbox.sinks.guard import Forbidden, Guard

PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "198.18.0.1",
    "192.0.0.8",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "240.0.0.1",
    "192.88.99.1",
    "::",
    "::1",
    "fe80::1",
    "fc00::1",
    "fec0::2",
    "feff::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "2001:0:7f00:1::1",
]
PUBLIC = ["8.8.8.8", "93.184.215.14", "2606:4700:4700::1111", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_or_carrying_address_is_forbidden(address: str) -> None:
    assert not Guard().permits(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_permitted(address: str) -> None:
    assert Guard().permits(ipaddress.ip_address(address))


def test_a_network_may_be_allowed_also_when_it_is_written_as_mapped() -> None:
    guard = Guard(allow=["10.1.0.0/16", "fd00::/8"])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1"):
        assert guard.permits(ipaddress.ip_address(address))
    for address in ("10.2.2.3", "127.0.0.1", "::1"):
        assert not guard.permits(ipaddress.ip_address(address))


def test_what_is_no_network_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="give networks"):
        Guard(allow=["10.1.2.3/16"])


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://example.com/", "scheme 'http'"),
        ("ftp://example.com/", "scheme 'ftp'"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("https:///nowhere", "needs a host"),
        ("https://user:secret@example.com/", "no name or password"),
        ("https://example.com:22/", "port 22"),
        ("https://example.com:99999/", "cannot be read"),
        ("https://[::1/", "cannot be read"),
        ("https://user:secret\u2100@example.com/", "cannot be read"),
    ],
)
def test_a_url_is_looked_at_first_and_not_repeated(url: str, says: str) -> None:
    with pytest.raises(Forbidden, match=says) as caught:
        Guard().check_url(url)
    assert "secret" not in str(caught.value)


def test_a_usual_url_passes() -> None:
    Guard().check_url("https://example.com/hook?x=1")
    Guard(allow_http=True, ports=None).check_url("http://example.com:9000/")
