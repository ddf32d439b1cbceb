"""What a program contains is judged by public statements, each with its code, source and line."""

import pytest
import torch
from torch import fx

from lowering import refused
from torchneuron import targets
from torchneuron.errors import ArgumentError
from torchneuron.lowering import emit as e
from torchneuron.lowering import ops  # noqa: F401 (its import fills the table)
from torchneuron.lowering.emit import read
from torchneuron.lowering.emit.host import host_call
from torchneuron.lowering.emit.module import Module
from torchneuron.lowering.graph import lower
from torchneuron.lowering.legality import Finding, Verdict, judge, judge_operation

STATEMENTS = {row.id: row for row in targets.load_statements()}
# StableHLO has no such operators; a module that was made elsewhere may.
OF_OTHER_DIALECTS = {"topk-operator": "mhlo.topk", "erf-operator": "mhlo.erf"}
DECIDABLE_NO = [row.id for row in STATEMENTS.values() if row.verdict == "no" and not row.outside]


ACCEPTED = [
    (refused.sort("LT"), "sort", "trn1"),
    (refused.reduce("f32", "add"), "reduce", "trn2"),
    (refused.window("padding = dense<0> : tensor<2x2xi64>", "2x3"), "reduce_window", "trn2"),
    (refused.convolution("stride = [2], rhs_dilate = [2]", 3), "convolution", "trn2"),
    (refused.convolution("lhs_dilate = [2]", 14), "convolution", "trn2"),
    (refused.dot("%x", "f32"), "dot_general", "trn2"),
    (refused.dot("%i", "i32"), "dot_general", "trn1"),
    (refused.scatter("%x", "f32", "add"), "scatter", "trn2"),
    (refused.RNG.format("DEFAULT"), "rng_bit_generator", "trn2"),
    (refused.PERMUTE.format("[[0, 1], [1, 0]]"), "collective_permute", "trn2"),
    (refused.ALL_TO_ALL.format("[[0, 1, 2, 3]]", 4), "all_to_all", "trn2"),
    (refused.loop(refused.UNTIL, "add"), "while", "trn2"),
    (refused.quantize(refused.PACKED, refused.GOOD), "custom_call", "trn3"),
    (refused.scaled(), "custom_call", "trn3"),
    (refused.UPDATE.format("%z"), "dynamic_update_slice", "trn2"),
    (refused.UNIFORM, "rng", "trn2"),
]
UNKNOWN = [
    ("%r = stablehlo.cbrt %x : tensor<2x4xf32>", "cbrt"),
    ("%r = stablehlo.remainder %x, %x : tensor<2x4xf32>", "remainder"),
    ("%r = stablehlo.logistic %x : tensor<2x4xf32>", "logistic"),
    ("%r = stablehlo.xor %i, %i : tensor<2x4xi32>", "xor"),
    ("%r = stablehlo.divide %l, %l : tensor<2x4xi64>", "divide"),
    (refused.of_type("i4"), "iota"),
    (refused.loop(refused.UNTIL.replace("LT, %c, %e", "LT, %c, %c"), "add"), "while"),
    (refused.UPDATE.format("%j"), "dynamic_update_slice"),
    (
        "%r = stablehlo.bitcast_convert %x : (tensor<2x4xf32>) -> tensor<2x4x4xi8>",
        "bitcast_convert",
    ),
    (refused.reduce("i32", "or"), "reduce"),
    (refused.collective("all_reduce", "%x", "f32", operation="multiply"), "all_reduce"),
    (refused.OVERLAP, "gather"),
]


def judged(body: str, inputs: str = "", chip: str = "trn2") -> Verdict:
    return judge(read.parse(refused.program(body, inputs)), chip=chip)


def of(verdict: Verdict, op: str) -> Finding:
    [found] = [each for each in verdict.findings if each.op == f"stablehlo.{op}"]
    return found


def test_a_program_is_at_hand_for_every_refusal() -> None:
    assert sorted([*refused.REFUSED, *OF_OTHER_DIALECTS]) == sorted(DECIDABLE_NO)


@pytest.mark.parametrize("name", OF_OTHER_DIALECTS)
def test_operators_of_other_dialects_are_refused_by_name(name: str) -> None:
    op = read.Operation(OF_OTHER_DIALECTS[name], ("f32",), ("f32",), {"dynamic": False})
    assert judge_operation(op, list(STATEMENTS.values())) == ("documented no", STATEMENTS[name])


@pytest.mark.parametrize("name", refused.REFUSED)
def test_a_stated_refusal_is_found(name: str) -> None:
    chip = refused.CHIPS.get(name, "trn2")
    verdict = judged(refused.REFUSED[name], refused.MORE_INPUTS.get(name, ""), chip)
    found = [each for each in verdict.refused if each.statement == STATEMENTS[name]]
    assert found, [each.describe() for each in verdict.refused]
    assert found[0].code == STATEMENTS[name].code
    assert found[0].source == STATEMENTS[name].source
    assert verdict.outcome == "documented no"


@pytest.mark.parametrize(("body", "op", "chip"), ACCEPTED)
def test_the_accepted_form_beside_it_is_accepted(body: str, op: str, chip: str) -> None:
    found = of(judged(body, chip=chip), op)
    assert found.outcome == "documented yes", found.describe()


@pytest.mark.parametrize(("body", "op"), UNKNOWN)
def test_what_nobody_documents_stays_unknown(body: str, op: str) -> None:
    verdict = judged(body)
    assert of(verdict, op).outcome == "unknown"
    assert of(verdict, op) in verdict.unknown
    assert verdict.outcome == "unknown"


def test_an_operation_without_a_row_has_no_source() -> None:
    found = of(judged("%r = stablehlo.remainder %x, %x : tensor<2x4xf32>"), "remainder")
    assert (found.statement, found.source, found.code) == (None, "", "")
    assert "no public statement" in found.describe()


def test_chips_differ() -> None:
    number = refused.constant("v", "1.0", "tensor<2xf8E4M3FN>")
    labels = {chip: of(judged(number, chip=chip), "constant").label for chip in ("trn1", "trn3")}
    assert labels == {"trn1": "documented no (NCC_EVRF051)", "trn3": "documented yes"}


def test_targets_differ_by_what_was_seen_of_the_vendors_package() -> None:
    module = read.parse(refused.program(refused.ALL_TO_ALL.format("[[0, 1]]", 2)))
    assert judge(module, "torch_neuronx_2_33").outcome == "documented no"
    assert judge(module, "torchneuron").outcome == "documented yes"
    with pytest.raises(ArgumentError, match="unknown target `torchneurn`"):
        judge(module, "torchneurn")


def traced(target: torch._ops.OpOverload, *args: object) -> fx.GraphModule:
    """Make the graph of one call, as Dynamo leaves it: with the user's line in its stack trace."""
    graph = fx.Graph()
    nodes = []
    for place, each in enumerate(args):
        node = graph.placeholder(f"x{place}") if isinstance(each, torch.Tensor) else each
        if isinstance(node, fx.Node):
            node.meta["val"] = each
        nodes.append(node)
    call = graph.call_function(target, tuple(nodes))
    call.meta["val"] = target(*args)
    call.meta["stack_trace"] = '  File "model.py", line 12, in forward\n    return y\n'
    graph.output((call,))
    return fx.GraphModule({}, graph)


def test_a_lowered_graph_is_judged_with_node_and_source_line() -> None:
    index = torch.zeros(2, 3, dtype=torch.int64)
    graph = traced(
        torch.ops.aten.scatter_add.default, torch.ones(2, 3).int(), 0, index, index.int()
    )
    verdict = judge(lower(graph).module)
    [found] = verdict.refused
    assert (found.op, found.code) == ("stablehlo.scatter", "NCC_EVRF060")
    assert (found.node, found.file, found.line) == ("scatter_add_default", "model.py", 12)
    assert found.describe().endswith(" at model.py:12")
    assert verdict.label == "documented no (NCC_EVRF060)"


def test_chlo_is_judged_by_its_expansion_at_the_same_line() -> None:
    with Module.build([((2,), torch.float32)]) as builder:
        with builder.at("erf", "model.py", 7):
            result = e.erf(builder.arguments[0])
        builder.finish([result])
    before = builder.module.text()
    verdict = judge(builder.module)
    assert verdict.outcome == "documented yes"
    body = [each for each in verdict.findings if each.op not in {"input", "output"}]
    assert {each.op.partition(".")[0] for each in body} == {"stablehlo"}
    assert {(each.node, each.file, each.line) for each in body} == {("erf", "model.py", 7)}
    assert any(each.count > 1 for each in body)
    assert builder.module.text() == before


def test_calls_into_this_process_are_no_program_for_a_chip() -> None:
    with Module.build([((2,), torch.float32)]) as builder:
        builder.finish(
            host_call("torchneuron.matmul", builder.arguments, [((2,), torch.float32)], {"n": 1})
        )
    assert of(judge(builder.module), "custom_call").code == "NCC_EVRF015"


def test_every_fact_that_is_read_has_a_name_that_rows_may_use() -> None:
    seen: set[str] = set()
    bodies = [(body, refused.MORE_INPUTS.get(name, "")) for name, body in refused.REFUSED.items()]
    bodies += [(row[0], "") for row in (*ACCEPTED, *UNKNOWN)]
    for body, inputs in bodies:
        module = read.parse(refused.program(body, inputs))
        for op in read.operations(module):
            seen |= op.facts.keys()
            kinds = {key: type(value) for key, value in op.facts.items()}
            assert kinds == {key: targets.CONDITIONS[key] for key in kinds}
    asked = {key for row in STATEMENTS.values() for key in row.when}
    assert asked <= seen


def test_text_that_is_no_module_is_refused() -> None:
    with pytest.raises(ValueError, match="not a module"):
        read.parse("func.func @main(")
