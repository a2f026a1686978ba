"""Keeps webhooks away from private networks: every address is looked at when it is connected to.

A name may lead to another address than when it was checked, so a check before the connection is none. Python's own view of
what is global is not enough either: it takes addresses that carry an IPv4 address inside (mapped, NAT64, 6to4, compatible)
for global ones, whatever is inside.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

from samecommit.errors import ConfigError

# Beside what Python calls private; some of its versions differ about these.
_RESERVED = tuple(
    ip_network(net)
    for net in (
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # NAT64 of a network's own
        "2002::/16",  # 6to4
        "::/96",  # IPv4-compatible
        "::ffff:0:0:0/96",  # IPv4-translated
        "192.88.99.0/24",  # 6to4 relays
        "2001::/32",  # Teredo
        "192.0.0.0/24",  # protocol assignments
        "fec0::/10",  # site-local
    )
)


class Forbidden(OSError):
    """An address or URL that nothing may be sent to."""


class Guard:
    """Which addresses may be connected to.

    Args:
        allow: networks that may be, though they are private (``10.1.0.0/16``).
        ports: which ports; None is any.
        allow_http: also without TLS.
    """

    def __init__(
        self,
        allow: Collection[str] = (),
        ports: Collection[int] | None = (80, 443, 8080, 8443),
        *,
        allow_http: bool = False,
    ) -> None:
        try:
            self._allowed: tuple[IPv4Network | IPv6Network, ...] = tuple(ip_network(net) for net in allow)
        except ValueError as error:
            raise ConfigError(f"allow has {error}: give networks as in 10.1.0.0/16") from error
        self._ports = None if ports is None else frozenset(ports)
        self._schemes = ("https", "http") if allow_http else ("https",)

    def __repr__(self) -> str:
        return f"<Guard allows {', '.join(map(str, self._allowed)) or 'no private network'}>"

    def check_url(self, url: str) -> None:
        """Look at what a URL says by itself.

        Raises:
            Forbidden: its scheme, port or form; the URL is not repeated in the message.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:  # whose text may hold a name and password
            raise Forbidden("the endpoint's URL cannot be read: look at its host and port") from None
        if parts.scheme not in self._schemes:
            raise Forbidden(f"the endpoint's URL has scheme {parts.scheme!r}: give one of {', '.join(self._schemes)}")
        if not parts.hostname or parts.username is not None or parts.password is not None:
            raise Forbidden("the endpoint's URL needs a host, and no name or password")
        if self._ports is not None and port not in self._ports:
            raise Forbidden(f"the endpoint's URL has port {port}, which is not among those allowed")

    def permits(self, address: IPv4Address | IPv6Address) -> bool:
        """Whether an address may be connected to."""
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in net for net in self._allowed if net.version == address.version):
            return True
        if any(address in net for net in _RESERVED if net.version == address.version):
            return False
        return address.is_global and not address.is_multicast

    def socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Make a socket for one address of ``getaddrinfo``: the last moment before it is connected.

        Raises:
            Forbidden: nothing may be sent there.
        """
        family, kind, protocol, _, where = info
        address = ip_address(str(where[0]).partition("%")[0])
        if not self.permits(address):
            raise Forbidden(f"address {address} is private or reserved, and not among the networks allowed")
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made
