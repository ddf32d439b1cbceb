"""Random numbers of the device.

Each device has one default generator. It yields the CPU generator's numbers for the same seed, and
its state has the CPU generator's form (a ByteTensor of 5056 bytes on the CPU).

`torch.manual_seed` calls `manual_seed_all` in every program, also in one that only uses the CPU;
so seeding never uses the device and never raises.
"""

from collections.abc import Iterable

import torch

from torchneuron import _C
from torchneuron.device.index import DeviceLike, device_index


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device.

    Does nothing where no device is visible. Source: torch/cuda/random.py. Stability: S.

    Args:
        seed: The seed, -2**63 to 2**64 - 1; negative ones count from 2**64.
    """
    if _C.device_count() > 0:
        _C.default_generator(_C.current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices.

    Takes effect at first use where the device has not been used yet. Never raises for a bad
    setting. Source: torch/cuda/random.py, torch/random.py. Stability: S.

    Args:
        seed: The seed, -2**63 to 2**64 - 1; negative ones count from 2**64.

    Raises:
        RuntimeError: The seed is outside that range.
    """
    # The CPU generator says which seeds there are, and how negative ones count.
    _C.manual_seed_all(torch.Generator().manual_seed(int(seed)).initial_seed())


def seed() -> None:
    """Seed the generator of the current device from the system's randomness.

    Does nothing where no device is visible. Source: torch/cuda/random.py. Stability: S.
    """
    if _C.device_count() > 0:
        _C.default_generator(_C.current_device()).seed()


def seed_all() -> None:
    """Seed the generators of all devices alike from the system's randomness.

    Source: torch/cuda/random.py. Stability: S.
    """
    _C.manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    """Return the seed that the current device's generator was last seeded with.

    Raises:
        ConfigError: A setting does not make sense.

    Source: torch/cuda/random.py. Stability: S.
    """
    return _C.default_generator(device_index(None)).initial_seed()


def get_rng_state(device: DeviceLike = "neuron") -> torch.Tensor:
    """Return the state of a device's generator as a ByteTensor on the CPU.

    Raises:
        DeviceIndexError: There is no such device.

    Source: torch/cuda/random.py. Stability: S.
    """
    return _C.default_generator(device_index(device)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all devices' generators, in the order of the devices.

    Source: torch/cuda/random.py. Stability: S.
    """
    return [get_rng_state(index) for index in range(_C.device_count())]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "neuron") -> None:
    """Put back a state that `get_rng_state` returned.

    Args:
        new_state: ByteTensor of 5056 bytes.
        device: The device, the current one if it has no index.

    Raises:
        DeviceIndexError: There is no such device.
        RuntimeError: The state is not one of a generator.

    Source: torch/cuda/random.py. Stability: S.
    """
    _C.default_generator(device_index(device)).set_state(new_state.cpu())


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Put back the states that `get_rng_state_all` returned.

    Source: torch/cuda/random.py. Stability: S.
    """
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def default_generators() -> tuple[torch.Generator, ...]:
    """Return the default generators of all devices, none where no device is visible."""
    return tuple(_C.default_generator(index) for index in range(_C.device_count()))


def _get_generator(device: torch.device) -> torch.Generator:
    """Return the default generator of a device, for torch's graph-safe random operators."""
    return _C.default_generator(device_index(device))


def _is_in_bad_fork() -> bool:
    """Return False: the emulated device works in a forked child."""
    return False
