"""What the compile layer registers with torch.

Its programs among the artifacts of a cache: `torch.compiler.save_cache_artifacts()` then returns
this process's programs too, and `load_cache_artifacts()` puts them on disk elsewhere, where they
serve a machine of the same kind. And how sparse gradients of embeddings are traced.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C import DispatchKey
from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager
from typing_extensions import override

from torchneuron.lowering import sparse_gradients
from torchneuron.runtime.cache import user_cache

_TYPE = "torchneuron"


class ProgramArtifact(CacheArtifact):
    """Hold one compiled program under its name in the cache."""

    @override
    def populate_cache(self) -> None:
        """Put the program on disk."""
        user_cache().put(self.key, self.content)

    @override
    @staticmethod
    def type() -> str:
        """Return the name of artifacts of this kind."""
        return _TYPE


def record(name: str, blob: bytes) -> None:
    """Add a program that this process made or loaded to what `save_cache_artifacts` returns."""
    CacheArtifactManager.record_artifact(_TYPE, name, blob)


if _TYPE not in CacheArtifactFactory._artifact_types:
    CacheArtifactFactory.register(ProgramArtifact)


_SPARSE_BACKWARD = torch.ops.aten.embedding_sparse_backward.default
_COMPOSITE = DispatchKey.CompositeImplicitAutograd


# Decompositions come too late for a composite: this is asked while AOTAutograd traces.
@_SPARSE_BACKWARD.py_impl(_COMPOSITE)
def _embedding_sparse_backward(gradient: torch.Tensor, *args: Any) -> torch.Tensor:
    """Trace in a static form on neuron; elsewhere as ever."""
    if gradient.device.type == "neuron":
        return sparse_gradients.of_embedding(gradient, *args)
    made: torch.Tensor = _SPARSE_BACKWARD._op_dk(_COMPOSITE, gradient, *args)
    return made
