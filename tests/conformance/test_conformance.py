"""Every operator, module, optimizer and autocast list of PyTorch's databases equals CPU."""

import pytest
import torch

from conformance.depth import QUICK
from conformance.expectations import load, problems
from conformance.suites import Case, cases

EXPECTATIONS = load()


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in cases()])
def test_device_equals_cpu(case: Case, device: torch.device) -> None:
    if case.suite == "autocast" and device.type == "cpu":
        pytest.skip("CPU has autocast lists of its own")
    found = problems(case.id, case.check(device, QUICK), EXPECTATIONS, full=False)
    assert not found, "\n".join(found)
