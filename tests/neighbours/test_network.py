"""The other tests of this folder would notice an attempt to reach another machine."""

import socket
import urllib.request
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from neighbours.network import NetworkError

# An address of the block that RFC 5737 reserves for documentation.
ADDRESS = ("192.0.2.1", 80)


def test_connections_and_look_ups_are_refused() -> None:
    with pytest.raises(NetworkError, match=r"getaddrinfo.*example"):
        urllib.request.urlopen("http://example.invalid/")
    with socket.socket() as stream, pytest.raises(NetworkError, match=ADDRESS[0]):
        stream.connect(ADDRESS)
    with socket.socket(type=socket.SOCK_DGRAM) as datagram, pytest.raises(NetworkError):
        datagram.sendto(b"x", ADDRESS)


def test_scripts_have_no_network_either(script: Callable[..., CompletedProcess[str]]) -> None:
    process = script(f"import socket; socket.create_connection({ADDRESS})", returncode=1)
    assert "NetworkError: a test must not use the network" in process.stderr


def test_processes_of_one_machine_still_talk() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"x")
        assert there.recv(1) == b"x"
