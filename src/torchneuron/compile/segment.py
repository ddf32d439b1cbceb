"""A part of a graph that runs as compiled programs: one per set of concrete sizes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from torchneuron.compile import host_calls, metrics, programs
from torchneuron.compile.metrics import ProgramRecord
from torchneuron.device import launching
from torchneuron.lowering.graph import Program, Sizes, lower
from torchneuron.runtime import xla


class Segment:
    """Run a functional ATen graph as programs; called with tensors of the device and sizes.

    Args:
        graph: The graph; each node has `meta["val"]`.
        name: For reports.
    """

    def __init__(self, graph: fx.GraphModule, name: str) -> None:
        self._graph = graph
        self._name = name
        fakes = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
        self._tensor_places = [
            place for place, fake in enumerate(fakes) if isinstance(fake, torch.Tensor)
        ]
        self._symbols = list(_symbols(fakes))
        self._device = _device_of(graph)
        self._launches: dict[tuple[int, ...], _Launch] = {}
        if not self._symbols:
            self._launches[()] = self._compile(())

    def __call__(self, *args: Any) -> Any:
        """Run; compiles first where these sizes are new."""
        sizes = tuple(
            int(args[place] if dim is None else args[place].shape[dim])
            for _, place, dim in self._symbols
        )
        launch = self._launches.get(sizes)
        if launch is None:
            launch = self._launches[sizes] = self._compile(sizes)
        return launch(self._device, [args[place] for place in self._tensor_places])

    def _compile(self, sizes: tuple[int, ...]) -> _Launch:
        bound = {
            symbol: sympy.Integer(size)
            for (symbol, _, _), size in zip(self._symbols, sizes, strict=True)
        }
        # AOTAutograd compiles under its fake mode, in which even a literal would be fake.
        with unset_fake_temporarily():
            begin = time.perf_counter()
            program = lower(self._graph, Sizes(bound), host_calls.RULES)
            lowered = time.perf_counter()
            executable, from_cache = programs.executable(program, self._name)
        num_nodes = sum(node.op == "call_function" for node in self._graph.graph.nodes)
        seconds = lowered - begin, time.perf_counter() - lowered
        metrics.record(ProgramRecord(self._name, num_nodes, *seconds, from_cache))
        return _Launch(program, executable)


class _Launch:
    """Hold one executable, ready to run, and the shape of its answer."""

    def __init__(self, program: Program, executable: xla.Executable) -> None:
        self._launch = launching.launcher(
            xla.import_dlpack,
            executable,
            xla.export_dlpack,
            len(program.inputs),
            executable.temp_bytes + executable.output_bytes,
        )
        self._results = program.results
        self._is_plain = program.results == tuple(range(len(program.outputs)))

    def __call__(self, device: int, tensors: Sequence[torch.Tensor]) -> Any:
        outputs = self._launch(device, tensors)
        if len(self._results) == 1:
            [only] = self._results
            return outputs[0] if isinstance(only, int) else only[0]
        if self._is_plain:
            return outputs
        return [outputs[each] if isinstance(each, int) else each[0] for each in self._results]


def _symbols(fakes: Sequence[Any]) -> list[tuple[sympy.Symbol, int, int | None]]:
    """Return each size symbol with where its value is: an argument, or a dimension of one."""
    found: dict[sympy.Symbol, tuple[int, int | None]] = {}
    for place, fake in enumerate(fakes):
        values: list[tuple[Any, int | None]] = [(fake, None)]
        if isinstance(fake, torch.Tensor):
            values = [(size, dim) for dim, size in enumerate(fake.shape)]
        for value, dim in values:
            if isinstance(value, torch.SymInt) and isinstance(value.node.expr, sympy.Symbol):
                found.setdefault(value.node.expr, (place, dim))
    return [(symbol, place, dim) for symbol, (place, dim) in found.items()]


def _device_of(graph: fx.GraphModule) -> int:
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type == "neuron":
            return value.device.index or 0
    return 0
