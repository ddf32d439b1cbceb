"""A dozen rows of the model suite, one of each kind; `make models` runs all of them."""

import pytest

from compile.suite import SUITE
from compile.suite.compare import compare

DOZEN = (
    "gpt_neo",
    "llama",
    "modernbert",
    "bart",
    "mixtral",
    "lfm2",
    "vit",
    "own_resnet",
    "own_unet",
    "audio_spectrogram_transformer",
    "layoutlm",
    "message_passing",
)
# Eager, transformers counts tokens per expert with `histc` of integers, as it does on CUDA; the
# device has the CPU's kernel, which takes floating point only.
EAGER_FAILURES = {
    "mixtral": ["run_eager: NotImplementedError: \"histogram_cpu\" not implemented for 'Int'"]
}


# Dynamo warns about what it meets in transformers: caches, gradients of inner tensors.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", DOZEN)
def test_compiled_training_equals_the_cpus(name: str) -> None:
    outcome = compare(SUITE[name])
    assert outcome.failures == EAGER_FAILURES.get(name, [])
    assert outcome.compiled and outcome.fallbacks == []
    assert outcome.num_programs >= 2
