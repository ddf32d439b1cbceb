"""Make every attempt to reach another machine an error, for tests and the scripts they start."""

import socket
from typing import Any, NoReturn

MESSAGE = "a test must not use the network"
FAMILIES = (socket.AF_INET, socket.AF_INET6)
CLOSED = (
    (socket.socket, "connect"),
    (socket.socket, "connect_ex"),
    (socket.socket, "sendto"),
)
"""Methods that reach another machine; processes of one machine talk through AF_UNIX."""


def closed(name: str) -> Any:
    """Return a replacement for one method of a socket that refuses internet addresses."""
    original = getattr(socket.socket, name)

    def method(self: socket.socket, *args: Any) -> Any:
        if self.family in FAMILIES:
            raise AssertionError(f"{MESSAGE}: socket.{name}{args}")
        return original(self, *args)

    return method


def no_lookup(*args: Any, **_: Any) -> NoReturn:
    """Refuse to look up a host's address."""
    raise AssertionError(f"{MESSAGE}: socket.getaddrinfo{args}")


def close(patch: Any = setattr) -> None:
    """Close the network, for good or through a fixture's `setattr`.

    Args:
        patch: Called as `setattr` is.
    """
    for owner, name in CLOSED:
        patch(owner, name, closed(name))
    patch(socket, "getaddrinfo", no_lookup)
