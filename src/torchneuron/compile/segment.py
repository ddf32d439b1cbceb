"""A part of a graph that runs as compiled programs: one per set of concrete sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from torchneuron import ledger
from torchneuron.compile import artifacts, failures, host_calls, metrics, programs
from torchneuron.compile.failures import RefusedProgramError
from torchneuron.compile.metrics import ProgramRecord
from torchneuron.compile.options import Options
from torchneuron.device import launching
from torchneuron.ledger import Recompiled
from torchneuron.lowering.graph import LoweringError, Sizes, TensorSpec, lower, source_line
from torchneuron.runtime import xla

Launch = Callable[[Sequence[torch.Tensor]], list[Any]]
SizeAtCall = Callable[[sympy.Symbol, int], int]


@dataclass(frozen=True, slots=True)
class KeptProgram:
    """Describe a compiled program of fixed sizes, for a cache: all but the executable.

    Attributes:
        name: For reports.
        key: Its name in the program cache.
        device: Index of the device it runs on.
        places: Which arguments are its inputs; None for all.
        num_nodes: ATen calls in it.
        inputs: See `Program`.
        outputs: See `Program`.
        results: See `Program`.
    """

    name: str
    key: str
    device: int
    places: tuple[int, ...] | None
    num_nodes: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    results: tuple[int | tuple[Any], ...]

    def runnable(self, executable: xla.Executable) -> Callable[..., Any]:
        """Return what takes the arguments and gives the results."""
        return _function(_launch(self, executable), self)


class Segment:
    """Run a functional ATen graph as programs; called with tensors of the device and sizes.

    The program for the sizes that the graph was traced with is made at once, so that what cannot be
    compiled is known while the caller can still cut the graph in another way.

    Args:
        graph: The graph; each node has `meta["val"]`.
        name: For reports.
        settings: Of the compilation.
        size_at_call: Gives the size of a call for one of the trace, where padding changes it.

    Raises:
        LoweringError: A call cannot be written.
        RefusedProgramError: The compiler refused the program.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        name: str,
        settings: Options,
        size_at_call: SizeAtCall | None = None,
    ) -> None:
        self._graph = graph
        self._name = name
        self._settings = settings
        fakes = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
        self._tensor_places = [
            place for place, fake in enumerate(fakes) if isinstance(fake, torch.Tensor)
        ]
        self._is_all_tensors = len(self._tensor_places) == len(fakes)
        self._symbols = _symbols(fakes)
        self._device = _device_of(graph)
        self._launches: dict[tuple[int, ...], Launch] = {}
        self._eager_sizes: set[tuple[int, ...]] = set()
        self._last_sizes: tuple[int, ...] | None = None
        self.kept: KeptProgram | None = None  # where the sizes are fixed
        traced = tuple(
            each.traced if size_at_call is None else size_at_call(each.symbol, each.traced)
            for each in self._symbols
            if each.traced is not None
        )
        if len(traced) == len(self._symbols):
            self._launches[traced] = self._compile(traced)

    def __call__(self, *args: Any) -> Any:
        """Run; compiles first where these sizes are new.

        Raises:
            CompileError: These sizes cannot be compiled, and `fallback_execution` does not allow
                that they run eagerly.
        """
        sizes = tuple(
            int(args[each.place] if each.dim is None else args[each.place].shape[each.dim])
            for each in self._symbols
        )
        launch = self._launches.get(sizes)
        if launch is None:
            launch = self._compile_late(sizes)
            if launch is None:
                return self._graph(*args)
            self._launches[sizes] = launch
        return _result(launch([args[place] for place in self._tensor_places]))

    def function(self) -> Callable[..., Any]:
        """Return what a graph is to call: less than this object where the sizes are fixed."""
        if self.kept is None:
            return lambda *args: self(*args)
        return _function(self._launches[()], self.kept)

    def _compile_late(self, sizes: tuple[int, ...]) -> Launch | None:
        """Compile for sizes that a call brought; None where they run eagerly, which is counted."""
        if sizes in self._eager_sizes:
            return None
        try:
            return self._compile(sizes)
        except LoweringError as error:
            if failures.is_refusal(error):
                failures.report_eager(error.node, None, self._settings)
            else:
                failures.settle(error, self._settings)
        except RefusedProgramError as error:
            failures.settle(error, self._settings)
        self._eager_sizes.add(sizes)
        return None

    def _compile(self, sizes: tuple[int, ...]) -> Launch:
        bound = {
            each.symbol: sympy.Integer(size)
            for each, size in zip(self._symbols, sizes, strict=True)
        }
        # AOTAutograd compiles under its fake mode, in which even a literal would be fake.
        with unset_fake_temporarily():
            begin = time.perf_counter()
            program = lower(self._graph, Sizes(bound), host_calls.RULES)
            lowered = time.perf_counter()
            try:
                executable, from_cache, key = programs.executable(program, self._name)
            except xla.CompilerError as error:
                raise RefusedProgramError(self._graph, str(error)) from error
            if self._settings.preserve_artifacts:
                artifacts.preserve(self._graph, Sizes(bound), self._name, key)
        num_nodes = sum(node.op == "call_function" for node in self._graph.graph.nodes)
        seconds = lowered - begin, time.perf_counter() - lowered
        metrics.record(ProgramRecord(self._name, num_nodes, *seconds, from_cache))
        self._report_sizes(sizes, sum(seconds))
        made = KeptProgram(
            self._name,
            key,
            self._device,
            None if self._is_all_tensors else tuple(self._tensor_places),
            num_nodes,
            program.inputs,
            program.outputs,
            program.results,
        )
        self.kept = None if self._symbols else made
        return _launch(made, executable)

    def _report_sizes(self, sizes: tuple[int, ...], seconds: float) -> None:
        """Tell the ledger where sizes are not those of the program made before."""
        last, self._last_sizes = self._last_sizes, sizes
        if last is None:
            return
        changed = [each for each, size in enumerate(sizes) if size != last[each]]
        file, line = next(
            (place for place in map(source_line, self._graph.graph.nodes) if place[0]), ("", 0)
        )
        ledger.emit(
            Recompiled(
                self._name,
                ", ".join(self._symbols[each].source for each in changed),
                "size",
                ", ".join(str(last[each]) for each in changed),
                ", ".join(str(sizes[each]) for each in changed),
                seconds,
                file,
                line,
            )
        )


def _function(launch: Launch, program: KeptProgram) -> Callable[..., Any]:
    """Return what takes the arguments of a part of a graph.

    Where these are the program's inputs, its attribute `launch` takes them in a list and gives the
    results in one.
    """
    places = program.places
    if places is not None:
        return lambda *args: _result(launch([args[place] for place in places]))

    def run(*args: Any) -> Any:
        return _result(launch(args))

    run.launch = launch  # type: ignore[attr-defined]
    return run


def _result(results: list[Any]) -> Any:
    """Return what a call in a graph gives: one result as it is, several in a list."""
    return results[0] if len(results) == 1 else results


def _launch(program: KeptProgram, executable: xla.Executable) -> Launch:
    """Return what runs a program on its inputs and gives the results of its part of a graph."""
    run = launching.launcher(
        launching.Runtime(
            xla.import_dlpack, executable.execute, xla.take, executable.handlers, xla.address
        ),
        program.device,
        len(program.inputs),
        [launching.Output(each.shape, each.strides, each.dtype) for each in program.outputs],
        executable.temp_bytes + executable.output_bytes,
    )
    permuted = [
        (place, spec.order)
        for place, spec in enumerate(program.inputs)
        if spec.order != tuple(range(len(spec.order)))
    ]
    if not permuted and program.results == tuple(range(len(program.outputs))):
        return run  # without what the others need: it is time of every call

    def run_any(tensors: Sequence[torch.Tensor]) -> list[Any]:
        given = list(tensors)
        for place, order in permuted:
            given[place] = given[place].permute(order)
        outputs = run(given)
        return [outputs[each] if isinstance(each, int) else each[0] for each in program.results]

    return run_any


class _Symbol(NamedTuple):
    """Say where the value of a size symbol is at a call: an argument, or a dimension of one.

    `source` is what the user calls it, such as `L['x'].size()[1]`; `traced` is its value when the
    graph was traced, None where only the data knows it.
    """

    symbol: sympy.Symbol
    place: int
    dim: int | None
    source: str
    traced: int | None


def _symbols(fakes: Sequence[Any]) -> list[_Symbol]:
    """Find the size symbols among the arguments, each at its first place."""
    found: dict[sympy.Symbol, _Symbol] = {}
    for place, fake in enumerate(fakes):
        values: list[tuple[Any, int | None]] = [(fake, None)]
        if isinstance(fake, torch.Tensor):
            values = [(size, dim) for dim, size in enumerate(fake.shape)]
        for value, dim in values:
            if isinstance(value, torch.SymInt) and isinstance(value.node.expr, sympy.Symbol):
                symbol = value.node.expr
                sources = value.node.shape_env.var_to_sources.get(symbol, ())
                name = sources[0].name if sources else str(symbol)
                traced = int(value.node.hint) if value.node.has_hint() else None
                found.setdefault(symbol, _Symbol(symbol, place, dim, name, traced))
    return list(found.values())


def _device_of(graph: fx.GraphModule) -> int:
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type == "neuron":
            return value.device.index or 0
    return 0
