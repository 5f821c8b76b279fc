"""Addresses of others: whether they may be trusted with what is sent, and whether anybody answers."""

from __future__ import annotations

import ipaddress
import os
import socket

from syno.errors import SessionError, shown

_ANSWERS_S = 5.0


def host_and_port(address: str) -> tuple[str, int]:
    """Of ``"HOST:PORT"``, ``"ray://HOST:PORT"`` or ``"ray://[IPv6]:PORT"``.

    Raises:
        SessionError: it is none of these.
    """
    rest = address.removeprefix("ray://").split("/", 1)[0]
    host, separator, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (separator and host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise SessionError(
            f"{shown(address)} is no address of a Ray cluster",
            fix="write ray://HOST:PORT, such as ray://head:10001, or ray alone beside the head",
            code="R021",
        )
    return host, int(port)


def check_address(address: str, *, trust_network: bool) -> None:
    """Raises SessionError where an address lies in no private network, and nothing says that what goes there is
    encrypted or trusted; where its name is not known; where nobody answers."""
    host, port = host_and_port(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise SessionError(
            f"the host of {address} is not known: {words}",
            fix="write its name or its number as it is known here",
            code="R021",
        ) from None
    public = [ip for info in found if not private(ip := str(info[4][0]))]
    if public and not trust_network and os.environ.get("RAY_USE_TLS") != "1":
        raise SessionError(
            f"{address} is {public[0]}, in no private network, and without TLS anybody on the way could run code here and there",
            fix="set up TLS (RAY_USE_TLS=1 and its certificates), run beside the head (ray job submit), or take the "
            "risk with --trust-network (trust_network=True)",
            code="R022",
        )
    try:
        socket.create_connection((host, port), timeout=_ANSWERS_S).close()
    except OSError as error:
        raise SessionError(
            f"nobody answers at {address}: {error.strerror or error}",
            fix="start the cluster (ray start --head --ray-client-server-port=10001), or correct the address",
            code="R021",
        ) from None


def private(ip: str) -> bool:
    """Whether an address is this machine's, or of a network that is not the internet."""
    try:
        address = ipaddress.ip_address(ip.split("%", 1)[0])
    except ValueError:
        return False
    return address.is_private or address.is_loopback or address.is_link_local
