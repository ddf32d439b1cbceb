"""A program that breaks each statement of `targets/programs`, by the statement's id."""

HEAD = (
    "%x: tensor<2x4xf32>, %i: tensor<2x4xi32>, %l: tensor<2x4xi64>, %p: tensor<i1>, %j: tensor<i32>"
)


def call(name: str, operands: str, signature: str, attributes: str = "") -> str:
    """Write an operation in MLIR's generic form; its result is `%r`."""
    return f'%r = "stablehlo.{name}"({operands}) {attributes} : {signature}'


def region(operation: str, element: str) -> str:
    """Write a region of two scalars that applies one operation."""
    kind = f"tensor<{element}>"
    return (
        f"({{ ^bb0(%a: {kind}, %b: {kind}):\n %c = stablehlo.{operation} %a, %b : {kind}\n"
        f" stablehlo.return %c : {kind} }})"
    )


def constant(name: str, value: str, kind: str) -> str:
    return f"%{name} = stablehlo.constant dense<{value}> : {kind}\n"


def of_type(element: str) -> str:
    kind = f"tensor<2x{element}>"
    return f'%v = "stablehlo.iota"() <{{iota_dimension = 0 : i64}}> : () -> {kind}'


def reduce(element: str, operation: str) -> str:
    start = constant("z", "0", f"tensor<{element}>")
    value = {"i32": "%i", "f32": "%x"}[element]
    body = region(operation, element)
    kinds = f"(tensor<2x4x{element}>, tensor<{element}>) -> tensor<2x{element}>"
    return start.replace("dense<0>", "dense<0.0>" if element == "f32" else "dense<0>") + (
        f'%r = "stablehlo.reduce"({value}, %z) <{{dimensions = array<i64: 1>}}> {body} : {kinds}'
    )


REDUCE_TWO = """
%z = stablehlo.constant dense<0.0> : tensor<f32>
%r:2 = "stablehlo.reduce"(%x, %x, %z, %z) <{dimensions = array<i64: 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
  stablehlo.return %a, %b : tensor<f32>, tensor<f32>
}) : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<f32>, tensor<f32>)
  -> (tensor<2xf32>, tensor<2xf32>)
"""


def window(attributes: str, result: str) -> str:
    body = region("add", "f32")
    return constant("z", "0.0", "tensor<f32>") + (
        f'%r = "stablehlo.reduce_window"(%x, %z) <{{window_dimensions = array<i64: 1, 2>, '
        f"{attributes}}}> {body} : (tensor<2x4xf32>, tensor<f32>) -> tensor<{result}xf32>"
    )


WINDOW_TWO = REDUCE_TWO.replace("reduce", "reduce_window").replace(
    "dimensions = array<i64: 1>", "window_dimensions = array<i64: 1, 4>"
).replace("-> (tensor<2xf32>, tensor<2xf32>)", "-> (tensor<2x1xf32>, tensor<2x1xf32>)")  # fmt: skip


def convolution(window: str, size: int) -> str:
    made = constant("w", "1.0", "tensor<1x1x8xf32>") + constant("k", "1.0", "tensor<1x1x2xf32>")
    return made + (
        "%r = stablehlo.convolution(%w, %k) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], "
        f"window = {{{window}}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : "
        f"(tensor<1x1x8xf32>, tensor<1x1x2xf32>) -> tensor<1x1x{size}xf32>"
    )


def dot(value: str, element: str) -> str:
    kind = f"tensor<2x4x{element}>"
    return (
        f"%r = stablehlo.dot_general {value}, {value}, contracting_dims = [1] x [1] : "
        f"({kind}, {kind}) -> tensor<2x2x{element}>"
    )


def gather(index: str, kind: str) -> str:
    return index + (
        f'%r = "stablehlo.gather"(%x, %n) <{{dimension_numbers = #stablehlo.gather<'
        "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
        f"index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}}> : "
        f"(tensor<2x4xf32>, {kind}) -> tensor<3x4xf32>"
    )


def scatter(value: str, element: str, operation: str, index: str = "") -> str:
    kind = f"tensor<2x4x{element}>"
    rows = 3 if index else 1
    made = index or constant("n", "0", "tensor<1x1xi32>")
    fill = {"f32": "0.0", "i1": "false"}.get(element, "0")
    update = constant("u", fill, f"tensor<{rows}x4x{element}>")
    base = constant("v", fill, kind) if value == "%v" else ""
    return made + update + base + (
        f'%r = "stablehlo.scatter"({value}, %n, %u) <{{scatter_dimension_numbers = '
        "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
        f"scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> "
        f"{region(operation, element)} : "
        f"({kind}, tensor<{rows}x1xi32>, tensor<{rows}x4x{element}>) -> {kind}"
    )  # fmt: skip


COUNTED = '%n = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<3x1xi32>\n'
OUTSIDE = constant("n", "7", "tensor<3x1xi32>")


def sort(direction: str, first: str = "%a", second: str = "%b") -> str:
    return (
        '%r = "stablehlo.sort"(%x) <{dimension = 1 : i64, is_stable = true}> ({\n'
        "  ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        f"  %c = stablehlo.compare {direction}, {first}, {second} : "
        "(tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "  stablehlo.return %c : tensor<i1>\n}) : (tensor<2x4xf32>) -> tensor<2x4xf32>"
    )


def loop(condition: str, step: str) -> str:
    return f"""
%s = stablehlo.constant dense<0> : tensor<i32>
%r = "stablehlo.while"(%s) ({{
  ^bb0(%c: tensor<i32>):
  %e = stablehlo.constant dense<5> : tensor<i32>
  {condition}
}}, {{
  ^bb0(%c: tensor<i32>):
  %o = stablehlo.constant dense<1> : tensor<i32>
  %m = stablehlo.{step} %c, %o : tensor<i32>
  stablehlo.return %m : tensor<i32>
}}) : (tensor<i32>) -> tensor<i32>
"""


UNTIL = (
    "%t = stablehlo.compare LT, %c, %e : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    "  stablehlo.return %t : tensor<i1>"
)


def collective(
    name: str,
    value: str,
    element: str,
    more: str = "",
    result: str = "2x4",
    operation: str = "add",
) -> str:
    groups = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
    kinds = f"(tensor<2x4x{element}>) -> tensor<{result}x{element}>"
    return call(name, value, kinds, f"<{{{groups}{more}}}> {region(operation, element)}")


def custom(target: str, operands: str, kinds: str, config: str = "") -> str:
    return (
        f'%r:{2 if kinds.endswith(")") else 1} = "stablehlo.custom_call"({operands}) '
        f'<{{call_target_name = "{target}", backend_config = "{config}"}}> : {kinds}'
    )


def quantize(kinds: str, config: str, operands: str = "%h") -> str:
    half = constant("h", "1.0", "tensor<2x8xbf16>") + constant("g", "1.0", "tensor<2x6xbf16>")
    return half + custom("QuantizeMX", operands, kinds, config.replace('"', "\\22"))


PACKED = "(tensor<2x8xbf16>) -> (tensor<2x2xui32>, tensor<2x1xui8>)"
GOOD = '{"dim": 1, "dtype": "float8_e5m2"}'


def scaled(left: str = "2x8xui32", right: str = "2x8xui32", out: str = "2x2xf32", config: str = "",
           operands: str = "%a, %b, %s, %s") -> str:  # fmt: skip
    kinds = [f"tensor<{each}>" for each in (left, right, "2x1xui8", "2x1xui8")]
    made = "".join(
        constant(name, "1.0" if "f" in kind else "1", kind)
        for name, kind in zip("abs", kinds, strict=False)
    )
    count = operands.count(",") + 1
    signature = f"({', '.join(kinds[:count])}) -> tensor<{out}>"
    return made + custom("__op$block_scaled_dot", operands, signature, config)


SHIFT = "%n = stablehlo.convert %l : (tensor<2x4xi64>) -> tensor<2x4xi16>\n"
RNG = constant("s", "1", "tensor<2xui64>") + (
    "%r, %q = stablehlo.rng_bit_generator %s, algorithm = {} : "
    "(tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)"
)
IF = """
%r = "stablehlo.if"(%p) ({ stablehlo.return %x : tensor<2x4xf32> },
  { stablehlo.return %x : tensor<2x4xf32> }) : (tensor<i1>) -> tensor<2x4xf32>
"""
PERMUTE = (
    '%r = "stablehlo.collective_permute"(%x) <{{source_target_pairs = dense<{}> : '
    "tensor<2x2xi64>}}> : (tensor<2x4xf32>) -> tensor<2x4xf32>"
)
ALL_TO_ALL = (
    '%r = "stablehlo.all_to_all"(%x) <{{split_dimension = 1 : i64, concat_dimension = 1 : i64, '
    "split_count = {1} : i64, replica_groups = dense<{0}> : tensor<1x{1}xi64>}}> : "
    "(tensor<2x4xf32>) -> tensor<2x4xf32>"
)
SOLVE = (
    constant("m", "1.0", "tensor<2x2xf32>")
    + '%r = "stablehlo.triangular_solve"(%m, %x) <{left_side = true, lower = true, '
    "unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : "
    "(tensor<2x2xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>"
)
OUTFEED = (
    "%t = stablehlo.create_token : !stablehlo.token\n"
    '%r = "stablehlo.outfeed"(%x, %t) <{outfeed_config = ""}> : '
    "(tensor<2x4xf32>, !stablehlo.token) -> !stablehlo.token"
)

UPDATE = (
    constant("z", "0", "tensor<i32>")
    + constant("u", "1.0", "tensor<1x4xf32>")
    + "%r = stablehlo.dynamic_update_slice %x, %u, {0}, {0} : "
    "(tensor<2x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>"
)
UNIFORM = (
    constant("z", "0.0", "tensor<f32>")
    + constant("n", "2", "tensor<1xi64>")
    + "%r = stablehlo.rng %z, %z, %n, distribution = UNIFORM : "
    "(tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<2xf32>"
)
OVERLAP = constant("n", "0", "tensor<3x1xi32>") + (
    '%r = "stablehlo.gather"(%x, %n) <{dimension_numbers = #stablehlo.gather<'
    "offset_dims = [1, 2], start_index_map = [0], index_vector_dim = 1>, "
    "slice_sizes = array<i64: 1, 4>}> : (tensor<2x4xf32>, tensor<3x1xi32>) -> tensor<3x1x4xf32>"
)

# id of the statement -> body of the program; the chip is trn2 where CHIPS does not say another
REFUSED: dict[str, str] = {
    "float8-e4m3fn": constant("v", "1.0", "tensor<2xf8E4M3FN>"),
    "float8-fnuz": constant("v", "1.0", "tensor<2xf8E5M2FNUZ>"),
    "float4": constant("v", "1.0", "tensor<2xf4E2M1FN>"),
    "float64": of_type("f64"),
    "complex128": of_type("complex<f64>"),
    "complex64-elsewhere": of_type("complex<f32>")
    + '\n%r = "stablehlo.optimization_barrier"(%v) : '
    "(tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>",
    "triangular-solve": SOLVE,
    "sort": sort("LT"),
    "sort-comparator": sort("EQ"),
    "conditional": IF,
    "while-data": loop("stablehlo.return %p : tensor<i1>", "add"),
    "reduce-precision": "%r = stablehlo.reduce_precision %x, format = e5m10 : tensor<2x4xf32>",
    "host-callbacks": OUTFEED,
    "reduce-computation": reduce("i32", "xor"),
    "reduce-variadic": REDUCE_TWO,
    "window-base-dilation": window("base_dilations = array<i64: 1, 2>", "2x6"),
    "window-dilation": window("window_dilations = array<i64: 1, 2>", "2x2"),
    "window-operands": WINDOW_TWO,
    "convolution-two-dilations": convolution("lhs_dilate = [2], rhs_dilate = [2]", 13),
    "convolution-stride-and-dilation": convolution("stride = [2], lhs_dilate = [2]", 7),
    "integer-dot": dot("%i", "i32"),
    "integer-dot-trn1": dot("%l", "i64"),
    "power-64-bit": "%r = stablehlo.power %l, %l : tensor<2x4xi64>",
    "arithmetic-shift-narrow": SHIFT
    + "%r = stablehlo.shift_right_arithmetic %n, %n : tensor<2x4xi16>",
    "wide-constant": constant("v", "5000000000", "tensor<ui64>"),
    "scatter-integer": scatter("%i", "i32", "add"),
    "scatter-reduce-integer": scatter("%v", "i1", "or"),
    "scatter-iota": scatter("%x", "f32", "add", COUNTED),
    "gather-iota": gather(COUNTED, "tensor<3x1xi32>"),
    "constant-index": gather(OUTSIDE, "tensor<3x1xi32>"),
    "rng-algorithm": RNG.format("THREE_FRY"),
    "dynamic-dimension": '%v = "stablehlo.abs"(%d) : (tensor<?x2xf32>) -> tensor<?x2xf32>',
    "input-size": "",
    "all-reduce-integer": collective("all_reduce", "%i", "i32"),
    "reduce-scatter-integer": collective(
        "reduce_scatter", "%i", "i32", ", scatter_dimension = 0 : i64", "1x4"
    ),
    "permute-pattern": PERMUTE.format("[[0, 1], [1, 2]]"),
    "all-to-all-size": ALL_TO_ALL.format("[[0, 1]]", 2),
    "topk-integer": custom("AwsNeuronTopK", "%i", "(tensor<2x4xi32>) -> tensor<2x2xi32>"),
    "unknown-target": custom("lapack_sgetrf", "%x", "(tensor<2x4xf32>) -> tensor<2x4xf32>"),
    "mx-before-trn3": quantize(PACKED, GOOD),
    "quantize-config": quantize(PACKED, "{dim"),
    "quantize-operands": quantize(PACKED.replace("(tensor<2x8xbf16>)", "(tensor<2x8xbf16>, "
        "tensor<2x8xbf16>)"), GOOD, "%h, %h"),
    "quantize-results": quantize("(tensor<2x8xbf16>) -> tensor<2x2xui32>", GOOD),
    "quantize-dim": quantize(PACKED, '{"dim": 2}'),
    "quantize-block": quantize(PACKED, '{"dim": 1, "block_size": 16}'),
    "quantize-scale": quantize(PACKED, '{"dim": 1, "scale_method": "AMAX"}'),
    "quantize-input": quantize("(tensor<2x4xf32>) -> (tensor<2x1xui32>, tensor<2x1xui8>)",
        GOOD, "%x"),
    "quantize-output": quantize(PACKED.replace("2x2xui32", "2x8xui8"), GOOD),
    "quantize-divisible": quantize(
        "(tensor<2x6xbf16>) -> (tensor<2x1xui32>, tensor<2x1xui8>)", GOOD, "%g"),
    "scaled-operands": scaled(operands="%a, %b, %s"),
    "scaled-factor": scaled(left="2x8xi32"),
    "scaled-output": scaled(out="2x2xf16"),
    "scaled-lhs-rank": scaled(left="8xui32", out="2xf32"),
    "scaled-rhs-rank": scaled(right="8xui32", out="2xf32"),
    "scaled-batch": scaled(left="3x2x8xui32", right="2x2x8xui32", out="3x2x2xf32"),
    "scaled-config": scaled(config="{dim"),
    "scaled-contracting": scaled(right="2x4xui32"),
}  # fmt: skip
CHIPS = {"sort-comparator": "trn1", "integer-dot-trn1": "trn1"} | {
    name: "trn3" for name in REFUSED if name.startswith(("quantize-", "scaled-"))
}
MORE_INPUTS = {
    "dynamic-dimension": ", %d: tensor<?x2xf32>",
    "input-size": ", %g: tensor<2x600000000xf32>",
}


def program(body: str, inputs: str = "") -> str:
    """Write a module around a body."""
    return (
        f"func.func public @main({HEAD}{inputs}) -> tensor<2x4xf32> {{\n{body}\n"
        "return %x : tensor<2x4xf32>\n}\n"
    )
