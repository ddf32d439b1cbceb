"""Make every attempt to reach another machine an error, for tests and the scripts they start."""

import socket
from collections.abc import Callable
from typing import Any, NoReturn

FAMILIES = (socket.AF_INET, socket.AF_INET6)
METHODS = ("connect", "connect_ex", "sendto")
"""What reaches another machine; processes of one machine talk through AF_UNIX."""


class NetworkError(BaseException):
    """Stop the program; libraries that try again after an `Exception` do not catch this."""


def close(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Close the network, for good or through a fixture's `setattr`."""
    for name in METHODS:
        patch(socket.socket, name, _closed(name))
    patch(socket, "getaddrinfo", _no_lookup)


def _closed(name: str) -> Callable[..., Any]:
    original = getattr(socket.socket, name)

    def method(self: socket.socket, *args: Any) -> Any:
        if self.family in FAMILIES:
            raise NetworkError(f"a test must not use the network: socket.{name}{args}")
        return original(self, *args)

    return method


def _no_lookup(*args: Any, **_: Any) -> NoReturn:
    raise NetworkError(f"a test must not use the network: socket.getaddrinfo{args}")
