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


# Dynamo warns about what it meets in transformers: caches, gradients of inner tensors.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", DOZEN)
def test_compiled_training_equals_the_cpus(name: str) -> None:
    outcome = compare(SUITE[name])
    assert outcome.failures == []
    assert outcome.compiled and outcome.fallbacks == []
    assert outcome.num_programs >= 2
