"""What the two custom calls of block-scaled numbers say of themselves.

Rules: SDK compiler/error-codes/EVRF036 to EVRF058. `QuantizeMX` takes one tensor and gives four
values in each ui32 with a scale per block; `__op$block_scaled_dot` multiplies two such tensors.
"""

from __future__ import annotations

import json
import math
from typing import Any

import jaxlib.mlir.ir as ir

Facts = dict[str, bool | int | str]


def _configuration(op: Any) -> dict[str, Any] | None:
    """Return a call's configuration, empty where none is given, None where it is not JSON."""
    attribute = op.attributes["backend_config"] if "backend_config" in op.attributes else None
    text = attribute.value if isinstance(attribute, ir.StringAttr) else ""
    if text in ("", "None"):
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _results(op: Any) -> list[Any]:
    """Return the types of the results, those inside a tuple one by one."""
    types = [each.type for each in op.results]
    if len(types) == 1 and isinstance(types[0], ir.TupleType):
        return [types[0].get_type(place) for place in range(types[0].num_types)]
    return types


def _element(kind: Any) -> str:
    return str(kind.element_type)


def quantize(op: Any) -> Facts:
    """Return what is known of `QuantizeMX`; defaults: dim 0, block_size 32, scale_method EMAX."""
    config, results = _configuration(op), _results(op)
    found: Facts = {
        "json_config": config is not None,
        "num_inputs": len(op.operands),
        "num_results": len(results),
    }
    if config is None or len(op.operands) != 1:
        return found
    kind = op.operands[0].type
    dim, rank, block = config.get("dim", 0), kind.rank, config.get("block_size", 32)
    near_last = dim == rank - 1 or (rank >= 2 and dim == rank - 2)
    found |= {
        "near_last_dim": near_last,
        "block_size": block if isinstance(block, int) else 0,
        "emax_scale": config.get("scale_method", "EMAX") == "EMAX",
        "half_input": _element(kind) in {"bf16", "f16"},
    }
    if near_last and len(results) == 2:
        size = kind.shape[dim]
        packed = [each // 4 if place == dim else each for place, each in enumerate(kind.shape)]
        known = config.get("dtype") in {None, "float8_e5m2", "float8_e4m3fn"}
        shaped = _element(results[0]) == "ui32" and list(results[0].shape) == packed
        found |= {"divisible_by_4": size % 4 == 0, "packed_output": known and shaped}
    return found


def block_scaled_dot(op: Any) -> Facts:
    """Return what is known of ScaledMatmul; sizes only with its default dimensions."""
    config = _configuration(op)
    found: Facts = {"json_config": config is not None, "num_inputs": len(op.operands)}
    if len(op.operands) != 4:
        return found
    left, right = op.operands[0].type, op.operands[1].type
    found |= {
        "packed_lhs": _element(left) == "ui32",
        "wide_output": _element(_results(op)[0]) in {"f32", "bf16"},
        "lhs_rank": left.rank,
        "rhs_rank": right.rank,
    }
    if config == {} and left.rank >= 2 and right.rank >= 2:
        batches = [math.prod(list(each.shape)[:-2]) for each in (left, right)]
        found["equal_batches"] = batches[0] == batches[1]
        found["equal_contracting"] = left.shape[-1] == right.shape[-1]
    return found
