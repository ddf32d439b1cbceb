"""What `torch.amp` asks of the device.

The op lists are CUDA's and live in the extension. The default dtype is bfloat16, which Trainium
computes fastest; torch starts each thread with float16 for outside devices, see `patches`.
"""

import torch

from torchneuron.device.current import is_available

DEFAULT_AUTOCAST_DTYPE = torch.bfloat16


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that `torch.autocast("neuron")` takes, the default first.

    Source: torch/amp/autocast_mode.py. Stability: S.
    """
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether bfloat16 can be used, which is so wherever a device is visible.

    Args:
        including_emulation: Accepted as in `torch.cuda`; Trainium has bfloat16 natively.

    Source: torch/cuda/__init__.py. Stability: S.
    """
    return is_available()
