"""The device under test."""

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a developer try the harness itself with CPU on both sides."""
    parser.addoption("--dut", default="neuron", help="device under test of tests/conformance")


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """Return the device under test."""
    return torch.device(request.config.getoption("--dut", default="neuron"))
