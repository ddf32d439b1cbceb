"""strict(): errors inside, one warning outside, targets, nesting, threads."""

import logging
import threading

import pytest
import torch

import torchneuron
from torchneuron.errors import ArgumentError, StrictError


def double() -> torch.Tensor:
    return torch.ones(2, dtype=torch.float64, device="neuron")


def integer_product() -> torch.Tensor:
    x = torch.ones(2, 2, dtype=torch.int64, device="neuron")
    return x @ x


def test_refused_dtype_is_an_error_with_code_place_and_hint() -> None:
    with torchneuron.strict("dtype"), pytest.raises(StrictError) as caught:
        double()
    text = str(caught.value)
    for expected in ("float64", "NCC_ESPP004", "torch-neuronx 2.33", "NRN210", "hint: "):
        assert expected in text
    assert "test_strict.py:" in text.splitlines()[0]
    assert caught.value.category == "dtype"


def test_refused_operator_is_an_error_for_that_dtype_only() -> None:
    with torchneuron.strict("dtype"):
        x = torch.ones(2, 2, device="neuron")
        assert (x @ x).sum().item() == 8
        with pytest.raises(StrictError, match=r"int64 in aten::mm"):
            integer_product()
        assert torch.arange(3, device="neuron").tolist() == [0, 1, 2]


def test_without_categories_all_are_meant() -> None:
    with torchneuron.strict(), pytest.raises(StrictError):
        double()


def test_another_category_leaves_dtypes_alone() -> None:
    with torchneuron.strict("memory", "dynamic_shape", "sparse", "host_fallback", "collective"):
        double()


def test_outside_the_block_everything_runs() -> None:
    with torchneuron.strict("dtype"):
        pass
    assert double().sum().item() == 2


def test_blocks_nest_and_restore() -> None:
    with torchneuron.strict("dtype"):
        with torchneuron.strict("memory"), pytest.raises(StrictError):
            double()
        with torchneuron.strict("dtype"), pytest.raises(StrictError):
            double()
        with pytest.raises(StrictError):
            double()
    double()


def test_the_same_block_may_be_entered_twice() -> None:
    block = torchneuron.strict("dtype")
    with block, block:
        pass
    with block, pytest.raises(StrictError):
        double()
    double()


def test_decorator() -> None:
    refusing = torchneuron.strict("dtype")(double)
    for _ in range(2):
        with pytest.raises(StrictError):
            refusing()
    double()


def test_results_are_checked_too() -> None:
    x = torch.ones(2, device="neuron")
    with torchneuron.strict("dtype"), pytest.raises(StrictError, match="float64"):
        x.to(torch.float64)


def test_backward_is_checked() -> None:
    x = double().requires_grad_()
    y = (x * 2).sum()
    with torchneuron.strict("dtype"), pytest.raises(StrictError):
        y.backward()


def test_a_block_does_not_reach_other_threads() -> None:
    failures = []

    def work() -> None:
        try:
            double()
        except StrictError as error:
            failures.append(error)

    with torchneuron.strict("dtype"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert not failures


def test_nothing_is_computed_when_it_is_refused() -> None:
    x = double()
    with torchneuron.strict("dtype"), pytest.raises(StrictError):
        x.add_(1)
    assert x.tolist() == [1.0, 1.0]


def test_target_chooses_the_rules() -> None:
    with torchneuron.strict("dtype", target="torchneuron"), pytest.raises(StrictError) as caught:
        double()
    assert "torch-neuronx" not in str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "options", "near"),
    [(("dtyp",), {}, "dtype"), (("dtype",), {"target": "torchneurn"}, "torchneuron")],
)
def test_unknown_names_have_a_near_miss(arguments, options, near: str) -> None:
    with pytest.raises(ArgumentError, match=f"did you mean `{near}`"):
        torchneuron.strict(*arguments, **options)


def test_a_name_that_is_no_text_is_refused() -> None:
    for arguments, options in (((3,), {}), ((None,), {}), (("dtype",), {"target": 3})):
        with pytest.raises(ArgumentError, match=r"(?s)unknown .*known are.*hint: "):
            torchneuron.strict(*arguments, **options)


def test_a_block_is_left_once_and_where_it_was_entered() -> None:
    block = torchneuron.strict("dtype")
    with pytest.raises(ArgumentError, match=r"(?s)not open here.*hint: "):
        block.__exit__(None, None, None)
    block.__enter__()
    errors: list[str] = []

    def leave() -> None:
        with pytest.raises(ArgumentError, match="another thread") as caught:
            block.__exit__(None, None, None)
        errors.append(str(caught.value))

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert len(errors) == 1
    with pytest.raises(StrictError):
        double()
    block.__exit__(None, None, None)
    double()
    with pytest.raises(ArgumentError, match="left before"):
        block.__exit__(None, None, None)


def test_blocks_may_be_left_in_another_order() -> None:
    first, second = torchneuron.strict("dtype"), torchneuron.strict("sparse")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    double()
    second.__exit__(None, None, None)


def test_sparse_tensors_are_refused_where_they_are_made_taken_and_given() -> None:
    dense = torch.eye(2, device="neuron")
    coo = torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,), device="neuron")
    csr = torch.eye(2).to_sparse_csr().to("neuron")
    attempts = [
        lambda: torch.sparse_coo_tensor([[0]], [1.0], (2,), device="neuron"),
        lambda: torch.sparse_csr_tensor([0, 1], [0], [1.0], device="neuron"),
        lambda: torch.eye(2).to_sparse().to("neuron"),
        lambda: dense.to_sparse(),
        lambda: dense.to_sparse_csr(),
        lambda: csr @ dense,
        lambda: coo.mul_(2),
        lambda: coo.coalesce(),
        lambda: (
            torch.nn.Embedding(3, 2, sparse=True, device="neuron")(
                torch.tensor([1], device="neuron")
            )
            .sum()
            .backward()
        ),
    ]
    for attempt in attempts:
        with torchneuron.strict("sparse"), pytest.raises(StrictError) as caught:
            attempt()
        text = str(caught.value)
        assert caught.value.category == "sparse"
        for expected in ("sparse_c", "torch-neuronx 2.33", "test_strict.py:", "hint: "):
            assert expected in text
    assert coo._values().tolist() == [1.0, 2.0]
    with torchneuron.strict("sparse"):
        assert (dense @ dense).sum().item() == 2
        assert csr.cpu().to_dense().sum().item() == coo.cpu().to_dense().sum().item() - 1
    with torchneuron.strict("dtype"):
        assert (csr @ dense).sum().item() == 2


def test_printing_is_not_work_of_the_device(script) -> None:
    process = script(
        """
        import torch, torchneuron
        x = torch.linspace(0, 1, 5000, device="neuron")
        torchneuron.clear_op_tracking()
        with torchneuron.strict("dtype"):
            print(x, repr(x[:3]), torch.ones(2, dtype=torch.complex64, device="neuron"))
        """
    )
    assert "device='neuron:0'" in process.stdout and process.stderr == ""


WARNS = """
    import torch
    def work():
        torch.ones(2, dtype=torch.float64, device="neuron")
    for _ in range(3):
        work()
    x = torch.ones(2, 2, dtype=torch.int32, device="neuron")
    x @ x
"""


def test_default_says_each_category_once_with_the_line(script) -> None:
    said = script(WARNS).stderr
    assert said.count("float64") >= 1 and said.count("hint: ") == 1
    assert "script.py:4" in said and "NCC_ESPP004" in said and "runs here" in said
    assert "int32" not in said


SPARSE = """
    import torch
    def work():
        return torch.sparse_coo_tensor([[0]], [1.0], (2,), device="neuron", check_invariants=True)
    for _ in range(3):
        work().coalesce() * 2
    torch.eye(2, device="neuron").to_sparse()
"""


def test_sparse_is_said_once_with_the_line(script) -> None:
    said = script(SPARSE).stderr
    assert said.count("refuses sparse_coo in aten::") == 1 and said.count("hint: ") == 1
    assert "script.py:4" in said and "runs here" in said and "said once for `sparse`" in said


def test_strict_off_says_nothing_of_sparse(script) -> None:
    assert script(SPARSE, env={"TORCHNEURON_STRICT": "off"}).stderr == ""


def test_strict_error_refuses_sparse_everywhere(script) -> None:
    process = script(SPARSE, env={"TORCHNEURON_STRICT": "error"}, returncode=1)
    assert "StrictError" in process.stderr and "script.py:4" in process.stderr


def test_strict_off_says_nothing(script) -> None:
    assert script(WARNS, env={"TORCHNEURON_STRICT": "off"}).stderr == ""


def test_strict_error_raises_everywhere(script) -> None:
    process = script(WARNS, env={"TORCHNEURON_STRICT": "error"}, returncode=1)
    assert "StrictError" in process.stderr and "script.py:4" in process.stderr


def test_warning_goes_through_the_logger(script) -> None:
    script(
        """
        import logging, torch
        records = []
        class Keep(logging.Handler):
            def emit(self, record): records.append(record)
        logging.getLogger("torchneuron").addHandler(Keep())
        torch.ones(2, dtype=torch.float64, device="neuron")
        assert [record.levelno for record in records] == [logging.WARNING], records
        assert "float64" in records[0].getMessage()
        """
    )


def test_after_the_warning_strict_blocks_still_refuse(script) -> None:
    script(
        """
        import torch, torchneuron
        torch.ones(2, dtype=torch.float64, device="neuron")
        try:
            with torchneuron.strict("dtype"):
                torch.ones(2, dtype=torch.float64, device="neuron")
        except torchneuron.NeuronError:
            pass
        else:
            raise AssertionError
        """
    )


def test_a_block_may_surround_the_first_use(script) -> None:
    script(
        """
        import torch, torchneuron
        with torchneuron.strict("dtype"):
            assert not torch.neuron.is_initialized()
            try:
                torch.ones(2, dtype=torch.float64, device="neuron")
            except torchneuron.NeuronError:
                pass
            else:
                raise AssertionError
        """
    )


def test_trn3_takes_float8_e4m3fn(script) -> None:
    source = """
        import torch, torchneuron
        with torchneuron.strict("dtype"):
            torch.ones(2, device="neuron").to(torch.float8_e4m3fn)
    """
    trn3 = next(name for name in torchneuron_instances() if name.startswith("trn3"))
    script(source, env={"TORCHNEURON_INSTANCE": trn3})
    process = script(source, env={"TORCHNEURON_INSTANCE": "trn2.3xlarge"}, returncode=1)
    assert "NCC_EVRF051" in process.stderr


def torchneuron_instances() -> tuple[str, ...]:
    from torchneuron.chips import instance_names

    return instance_names(emulated_only=True)


RANK = """
    import torch, torchneuron
    torch.neuron.set_device(1)
    torch.neuron.get_rng_state_all()
    with torchneuron.strict("device_index"):
        torch.neuron.set_device(1)
        try:
            torch.neuron.set_device(0)
        except torchneuron.errors.StrictError as error:
            assert "neuron:0 in rank 1" in str(error), error
        else:
            raise AssertionError
        assert torch.neuron.current_device() == 1
"""


def test_device_of_another_rank_is_refused(script) -> None:
    assert script(RANK, env={"LOCAL_RANK": "1"}).stderr == ""


def test_outside_a_rank_any_device_may_be_chosen(script) -> None:
    script(
        """
        import torch, torchneuron
        with torchneuron.strict("device_index"), torch.neuron.device(3):
            torch.neuron.set_device(2)
        """,
        env={"LOCAL_RANK": None},
    )


def test_a_rank_with_one_visible_core_uses_device_0(script) -> None:
    script(
        """
        import torch, torchneuron
        with torchneuron.strict("device_index"):
            torch.neuron.set_device(0)
        """,
        env={"LOCAL_RANK": "3", "NEURON_RT_VISIBLE_CORES": "3"},
    )


def test_quiet_logger_by_default() -> None:
    assert logging.getLogger("torchneuron").level == logging.NOTSET
