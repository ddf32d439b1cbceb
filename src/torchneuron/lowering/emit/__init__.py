"""Write StableHLO: the only code that builds IR.

Rules see `Value`s (PyTorch's shapes and dtypes, broadcasting operators) and these functions; they
name no MLIR type, attribute or operation.
"""

from torchneuron import config

with config.quiet_compiler_log():
    import jaxlib._jax  # noqa: F401 (first, while its log is quiet)

from torchneuron.lowering.emit.compute import *  # noqa: F403
from torchneuron.lowering.emit.movement import *  # noqa: F403
from torchneuron.lowering.emit.value import *  # noqa: F403
