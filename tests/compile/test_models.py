"""A dozen rows of the model suite, one of each kind; `make models` runs all of them."""

import pytest

from compile.suite import SUITE
from compile.suite.compare import compare

DOZEN = (
    "gpt2",
    "llama",
    "bert",
    "t5",
    "mixtral",
    "lfm2",
    "vit",
    "own_resnet",
    "whisper",
    "clip",
    "diffusion_unet",
    "message_passing",
)


# Dynamo warns about what it meets in transformers: caches, gradients of inner tensors.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", DOZEN)
def test_compiled_training_equals_the_cpus(name: str) -> None:
    outcome = compare(SUITE[name])
    compiled = [each for each in outcome.failures if not each.startswith(("eager", "run_eager"))]
    assert compiled == []
    assert outcome.fallbacks == []
    assert outcome.num_programs >= 2
