"""Compiled graphs as torch's cache keeps them: a new process skips AOTAutograd and the lowering.

What the backend gives AOTAutograd is a `CompiledGraph`. Torch's own `AOTAutogradCache` writes it,
with what AOTAutograd found out, to the directory of `TORCHINDUCTOR_CACHE_DIR`; a graph of the same
key is then not traced again. The programs stay where they are, in the program cache: a graph names
them. Graphs with size symbols, and such that count a fallback, are not kept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import operator
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import fx
from torch._functorch import config as functorch
from torch._functorch._aot_autograd.autograd_cache import (
    BypassAOTAutogradCache,
    FXGraphCacheMiss,
)
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._inductor.output_code import OutputCode
from torch._ops import OpOverload
from torch.fx.graph import _BoxedCodeGen

import torchneuron
from torchneuron import config, ledger
from torchneuron.compile import metrics, programs
from torchneuron.compile.metrics import ProgramRecord
from torchneuron.compile.options import Options
from torchneuron.compile.segment import KeptProgram
from torchneuron.ledger import CacheHit
from torchneuron.lowering.registry import resolve

_KEY = "_torchneuron_key"


class Step(NamedTuple):
    """Describe one call of a graph that is made of calls of Python functions and of programs.

    Attributes:
        name: Of its result.
        target: A function that can be imported, an operator, or a program.
        args: Its arguments; results of other steps and the graph's inputs are `Ref`.
        kwargs: Likewise.
    """

    name: str
    target: Callable[..., Any] | KeptProgram | Operator
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Ref(NamedTuple):
    """Name a value of the graph."""

    name: str


class Operator(NamedTuple):
    """Name an overload, which cannot be written itself, as `namespace.operator.overload`."""

    name: str


@dataclass(frozen=True, slots=True)
class Steps:
    """Hold a whole graph: the names of its inputs, its calls in order, and what it returns."""

    inputs: tuple[str, ...]
    calls: tuple[Step, ...]
    output: Any


class CompiledGraph(OutputCode):
    """Run a compiled graph; called with a list of its arguments, which is emptied.

    Args:
        graph: Runs it.
        steps: What the cache keeps; None for a graph that cannot be kept.
    """

    def __init__(self, graph: fx.GraphModule, steps: Steps | None) -> None:
        super().__init__()
        self._run: Callable[[list[Any]], Any] | None = _runnable(graph)
        self._steps = steps
        self._boxed_call = True

    def __call__(self, inputs: Any) -> Any:
        """Run."""
        return self._run(inputs)  # type: ignore[misc]

    def prepare_for_serialization(self) -> None:
        """Leave only what can be written; torch calls this on a copy.

        Raises:
            BypassAOTAutogradCache: The graph cannot be kept.
        """
        if self._steps is None:
            raise BypassAOTAutogradCache("the graph has size symbols, or falls back")
        self._run = None

    def post_compile(self, *_: Any) -> None:
        """Load the programs of a graph that the cache gave.

        Raises:
            FXGraphCacheMiss: The program cache has dropped one.
        """
        if self._steps is None:
            raise FXGraphCacheMiss
        self._run = _runnable(_written(self._steps))

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Do nothing: there are no Triton kernels."""


def compiler(
    compile_one: Callable[..., CompiledGraph],
) -> SerializableAOTDispatchCompiler:
    """Mark a compiler for AOTAutograd as one whose graphs can be kept."""
    return SerializableAOTDispatchCompiler(CompiledGraph, compile_one)


@contextlib.contextmanager
def kept(graph: fx.GraphModule, settings: Options) -> Iterator[None]:
    """Have AOTAutograd look for Dynamo's graph in the cache, under a key that is also ours.

    Args:
        graph: Dynamo's.
        settings: Of the compilation.
    """
    setattr(graph, _KEY, f"{_sources()} {programs.environment()} {settings} {config.load()}")
    try:
        with functorch.patch(bundled_autograd_cache=True):
            yield
    finally:
        delattr(graph, _KEY)


def steps(
    parts: fx.GraphModule, calls: dict[Callable[..., Any], KeptProgram | None]
) -> Steps | None:
    """Return what the cache keeps of a graph, None where something cannot be kept.

    Args:
        parts: Calls of programs and of Python functions.
        calls: The programs behind the functions that run one.
    """
    made = []
    inputs: list[str] = []
    output: Any = None
    for node in parts.graph.nodes:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: Ref(each.name))
        if node.op == "placeholder":
            inputs.append(node.name)
        elif node.op == "output":
            [output] = args
        elif node.op == "call_function":
            target = calls.get(node.target, node.target)
            if target is None:
                return None
            target = Operator(str(target)) if isinstance(target, OpOverload) else target
            made.append(Step(node.name, target, tuple(args), dict(kwargs)))
        else:
            return None
    return Steps(tuple(inputs), tuple(made), output)


def _runnable(graph: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """Return what runs a graph on its arguments in a list, which they may be taken out of."""
    alone = _launch_of(graph.graph)
    if alone is not None:
        return alone
    graph.graph.set_codegen(_BoxedCodeGen())
    graph.recompile()
    run: Callable[[list[Any]], Any] = graph.forward
    return run


def _launch_of(graph: fx.Graph) -> Callable[[list[Any]], Any] | None:
    """Return the launch of the one program that a graph consists of; None where it has more.

    The graph's own code would be time of every call.
    """
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    first, *others = [node for node in graph.nodes if node.op != "placeholder"]
    launch: Callable[[list[Any]], Any] | None = getattr(first.target, "launch", None)
    if launch is None:
        return None
    items = [(node.target, node.args) for node in others[:-1]]
    results = [first] if others[0].op == "output" else others[:-1]
    is_whole = items == [(operator.getitem, (first, place)) for place in range(len(items))]
    if not is_whole or list(others[-1].args[0]) != results:
        return None
    order = [inputs.index(each) for each in first.args]
    if order == list(range(len(inputs))):
        return launch
    return lambda given: launch([given[place] for place in order])


def _written(kept: Steps) -> fx.GraphModule:
    """Write the graph's code again, with its programs loaded."""
    graph = fx.Graph()
    values = {name: graph.placeholder(name) for name in kept.inputs}

    def filled(args: Any) -> Any:
        if isinstance(args, Ref):
            return values[args.name]
        if isinstance(args, dict):
            return {key: filled(each) for key, each in args.items()}
        if isinstance(args, list) or type(args) is tuple:
            return type(args)(map(filled, args))
        return args

    for step in kept.calls:
        target = _callable(step.target)
        values[step.name] = graph.call_function(target, filled(step.args), filled(step.kwargs))
    graph.output(filled(kept.output))
    return fx.GraphModule({}, graph)


def _callable(target: Callable[..., Any] | KeptProgram | Operator) -> Callable[..., Any]:
    if isinstance(target, KeptProgram):
        return _loaded(target)
    return resolve(target.name) if isinstance(target, Operator) else target


def _loaded(program: KeptProgram) -> Callable[..., Any]:
    begin = time.perf_counter()
    executable = programs.kept(program.key)
    if executable is None:
        raise FXGraphCacheMiss
    seconds = time.perf_counter() - begin
    ledger.emit(CacheHit(program.name, program.key, seconds))
    metrics.record(ProgramRecord(program.name, program.num_nodes, 0.0, seconds, from_cache=True))
    return program.runnable(executable)


@functools.cache
def _sources() -> str:
    """Return the hash of this package's code, which decides what a graph becomes."""
    found = hashlib.sha256()
    for path in sorted(Path(torchneuron.__file__).parent.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()
