import pytest
import torch

from torchneuron import chips, targets
from torchneuron.errors import ArgumentError, DataError
from torchneuron.targets import refusals

ROW = {
    "id": "x",
    "category": "dtype",
    "code": "NCC_X",
    "chips": ["trn2"],
    "dtypes": ["float64"],
    "summary": "s",
    "hint": "h",
    "source": "p",
    "confidence": "documented",
}


@pytest.fixture(params=targets.target_names())
def target(request: pytest.FixtureRequest) -> targets.Target:
    return targets.load_target(request.param)


def refused(op: str, dtype: str, chip: str = "trn2") -> str:
    row = targets.load_target().find_dtype(op, dtype, chip)
    return row.label if row else ""


@pytest.mark.parametrize(
    ("op", "dtype", "chip", "code"),
    [
        ("aten::add.Tensor", "float64", "trn2", "NCC_ESPP004"),
        ("aten::add.Tensor", "float64", "trn3", "NCC_ESPP004"),
        ("aten::add.Tensor", "complex128", "trn2", "NCC_EVRF004"),
        ("aten::add.Tensor", "complex64", "trn2", ""),
        ("aten::_fft_c2c", "complex64", "trn2", "NCC_EVRF004"),
        ("aten::_fft_r2c", "float32", "trn2", "NCC_EVRF004"),
        ("aten::convolution", "complex64", "trn3", "NCC_EVRF004"),
        ("aten::sum.dim_IntList", "complex64", "trn2", "NCC_EVRF004"),
        ("aten::mm", "complex64", "trn2", ""),
        ("aten::copy_", "float8_e4m3fn", "trn1", "NCC_EVRF051"),
        ("aten::copy_", "float8_e4m3fn", "trn2", "NCC_EVRF051"),
        ("aten::copy_", "float8_e4m3fn", "trn3", ""),
        ("aten::copy_", "float8_e5m2", "trn2", ""),
        ("aten::copy_", "float8_e4m3fnuz", "trn3", "NCC_EVRF005"),
        ("aten::copy_", "float8_e5m2fnuz", "trn2", "NCC_EVRF005"),
        ("aten::copy_", "float4_e2m1fn_x2", "trn3", "NCC_ESPP004"),
        ("aten::mm", "int64", "trn2", "NCC_EVRF035"),
        ("aten::mm", "int32", "trn1", ""),
        ("aten::mm", "int64", "trn1", "NCC_EVRF035"),
        ("aten::mm.out", "int32", "trn3", "NCC_EVRF035"),
        ("aten::baddbmm_", "int32", "trn2", "NCC_EVRF035"),
        ("aten::_int_mm", "int8", "trn2", "NCC_EVRF035"),
        ("aten::mm", "bfloat16", "trn2", ""),
        ("aten::topk", "int32", "trn2", "NCC_EVRF013"),
        ("aten::topk", "float32", "trn2", ""),
        ("aten::sort.stable", "float32", "trn2", "NCC_EVRF029"),
        ("aten::sort", "float32", "trn1", ""),
        ("aten::scatter_reduce_.two", "bool", "trn2", "NCC_EVRF016"),
        ("aten::scatter_add", "int64", "trn2", "NCC_EVRF060"),
        ("aten::index_add_", "int8", "trn2", "NCC_EVRF016"),
        ("aten::bincount", "int64", "trn2", "NCC_EVRF060"),
        ("aten::scatter_add", "float32", "trn2", ""),
        ("aten::scatter.src", "int64", "trn2", ""),
        ("aten::pow.Tensor_Scalar", "int64", "trn2", "NCC_EVRF062"),
        ("aten::pow.Tensor_Scalar", "int32", "trn2", ""),
        ("aten::__rshift__.Scalar", "int16", "trn2", "NCC_EVRF022"),
        ("aten::bitwise_right_shift.Tensor", "int32", "trn2", ""),
        ("aten::remainder.Scalar", "int64", "trn2", "NCC_ESPP004"),
        ("aten::add.Tensor", "int64", "trn2", ""),
        ("mylib::mm", "float64", "trn2", "NCC_ESPP004"),
        ("mylib::mm", "int64", "trn2", ""),
    ],
)
def test_dtype_rules_are_the_documented_ones(op: str, dtype: str, chip: str, code: str) -> None:
    assert refused(op, dtype, chip) == code


def test_both_targets_apply_the_compilers_dtype_rules() -> None:
    ours, vendors = (targets.load_target(name) for name in ("torchneuron", "torch_neuronx_2_33"))
    assert ours.dtype_rules("trn2") == vendors.dtype_rules("trn2")


def test_dynamic_true_is_refused_by_the_vendors_package_only() -> None:
    ours, vendors = (targets.load_target(name) for name in ("torchneuron", "torch_neuronx_2_33"))
    assert "dynamic=True" in vendors.refusals["compile-dynamic"].summary
    assert not {"compile-dynamic", "dynamic-dimension"} & ours.refusals.keys()


def test_vendor_target_has_rows_in_every_category() -> None:
    found = {row.category for row in targets.load_target().refusals.values()}
    assert found == set(targets.CATEGORIES)


def test_rules_list_each_operator_once_and_agree_with_the_search(target: targets.Target) -> None:
    for chip in chips.CHIP_NAMES:
        rules = target.dtype_rules(chip)
        assert len({op for op, _ in rules}) == len(rules)
        for op, dtypes in rules:
            assert len(set(dtypes)) == len(dtypes)
            name = "aten::relu" if op == targets.EVERY_OP else op
            assert all(target.find_dtype(name, dtype, chip) for dtype in dtypes)


def test_names_are_those_of_torch(target: targets.Target) -> None:
    known = {schema.name for schema in torch._C._jit_get_all_schemas()}
    for row in target.refusals.values():
        assert [op for op in row.ops if f"aten::{op}" not in known] == []
        assert all(isinstance(getattr(torch, dtype), torch.dtype) for dtype in row.dtypes)


def test_rows_with_operators_can_be_decided_by_their_first_tensor(target: targets.Target) -> None:
    schemas = torch._C._jit_get_all_schemas()
    for row in target.rows("dtype", "trn2"):
        for schema in (s for s in schemas if s.name.removeprefix("aten::") in row.ops):
            tensors = [arg.name for arg in schema.arguments if "Tensor" in str(arg.type)]
            assert tensors[:1] not in (["index"], ["indices"])


def test_rows_are_complete(target: targets.Target) -> None:
    for row in target.refusals.values():
        assert row.summary
        assert row.hint
        assert row.source
        assert row.code == "" or row.code.startswith("NCC_")
        assert set(row.chips) <= set(chips.CHIP_NAMES)


def test_unknown_target_and_category_name_the_near_one() -> None:
    with pytest.raises(ArgumentError, match="unknown target `torch_neuronx_233`") as caught:
        targets.load_target("torch_neuronx_233")
    assert caught.value.hint == "did you mean `torch_neuronx_2_33`?"
    with pytest.raises(ArgumentError, match="unknown category `dtyp`") as caught:
        targets.check_category("dtyp")
    assert caught.value.hint == "did you mean `dtype`?"
    assert targets.check_category("sparse") == "sparse"


def test_file_of_the_compiler_is_no_target() -> None:
    with pytest.raises(ArgumentError):
        targets.load_target("neuronx_cc")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"category": "speed"}, "category `speed`"),
        ({"confidence": "sure"}, "confidence `sure`"),
        ({"colour": "red"}, "unknown fields colour"),
        ({"dtypes": []}, "names no dtypes"),
    ],
)
def test_malformed_row_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=rf"x.toml: row `x`.*{message}"):
        refusals.parse_row(ROW | change, "x.toml")


def test_missing_field_is_named() -> None:
    with pytest.raises(DataError, match="lacks hint"):
        refusals.parse_row({key: value for key, value in ROW.items() if key != "hint"}, "x.toml")


def test_double_id_and_unknown_drop_are_refused() -> None:
    row = refusals.parse_row(ROW, "x.toml")
    with pytest.raises(DataError, match="`x` occurs twice"):
        refusals.merge("t", {"title": "t", "refusal": [ROW]}, [row])
    with pytest.raises(DataError, match="drops `y`"):
        refusals.merge("t", {"title": "t", "drops": ["y"]}, [row])
    assert refusals.merge("t", {"title": "t", "drops": ["x"]}, [row]).refusals == {}
