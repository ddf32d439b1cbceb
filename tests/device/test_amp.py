"""Autocast and GradScaler: default dtype in every thread, and what is allowed."""

import threading
import warnings

import pytest
import torch


def product_dtype(**options: object) -> torch.dtype:
    x = torch.ones(2, 2, device="neuron")
    with torch.autocast("neuron", **options):
        return (x @ x).dtype


def in_a_thread(function) -> object:
    seen = []
    thread = threading.Thread(target=lambda: seen.append(function()))
    thread.start()
    thread.join()
    return seen[0]


def test_default_is_bfloat16() -> None:
    assert product_dtype() == torch.bfloat16
    assert torch.neuron.get_amp_supported_dtype() == [torch.bfloat16, torch.float16]
    assert torch.neuron.is_bf16_supported() and torch.neuron.is_bf16_supported(False)


def test_default_is_bfloat16_in_a_new_thread() -> None:
    assert in_a_thread(product_dtype) == torch.bfloat16


def test_float16_is_allowed() -> None:
    assert product_dtype(dtype=torch.float16) == torch.float16
    assert product_dtype() == torch.bfloat16


def test_a_thread_may_choose_float16_as_its_default() -> None:
    def choose() -> torch.dtype:
        product_dtype()
        torch.set_autocast_dtype("neuron", torch.float16)
        return product_dtype()

    assert in_a_thread(choose) == torch.float16


def test_another_dtype_disables_autocast_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="bfloat16"):
        assert product_dtype(dtype=torch.float64) == torch.float32


def test_decorator_and_disabled_regions() -> None:
    x = torch.ones(2, 2, device="neuron")

    @torch.autocast("neuron")
    def product() -> torch.Tensor:
        with torch.autocast("neuron", enabled=False):
            assert (x @ x).dtype == torch.float32
        return x @ x

    assert product().dtype == torch.bfloat16


def test_autocast_of_other_devices_is_left_alone() -> None:
    with torch.autocast("cpu"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
        x = torch.ones(2, 2, device="neuron")
        assert (x @ x).dtype == torch.float32


def test_grad_scaler_without_argument_means_neuron() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler = torch.amp.GradScaler()
    assert scaler.is_enabled()
    assert torch.amp.GradScaler("neuron").is_enabled()


def test_grad_scaler_skips_a_step_with_infinite_gradients() -> None:
    weight = torch.ones(2, device="neuron", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler("neuron", init_scale=4.0)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1.0, 1.0] and scaler.get_scale() == 2.0
    optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.5, 0.5]
