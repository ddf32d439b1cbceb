"""`generate` of transformers with a static cache is compiled once and then only runs."""

import copy
from typing import Any

import pytest
import torch
from transformers import CompileConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.generation.streamers import BaseStreamer

import torchneuron

NEW_TOKENS, VOCABULARY = 64, 96
SPECIAL = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}


def llama() -> Any:
    config = LlamaConfig(
        **SPECIAL, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.2,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def gpt2() -> Any:
    config = GPT2Config(
        **SPECIAL, n_embd=64, n_layer=2, n_head=4, n_positions=128, initializer_range=0.2
    )
    return GPT2LMHeadModel(config)


class Watch(BaseStreamer):
    """Note how many programs there are whenever a token comes; the prompt comes first."""

    def __init__(self) -> None:
        self.programs: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.programs.append(torchneuron.compile_stats()["programs"])

    def end(self) -> None:
        pass


def generate(model: Any, ids: torch.Tensor, mask: torch.Tensor, **options: Any) -> torch.Tensor:
    return model.generate(
        ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, **options
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", [llama, gpt2], ids=["llama", "gpt2"])
def test_no_program_is_made_after_the_second_token(make: Any) -> None:
    model = make().eval()
    ids = torch.randint(2, VOCABULARY, (1, 7))
    mask = torch.ones_like(ids)
    expected = generate(copy.deepcopy(model), ids, mask, cache_implementation="static")
    model.to("neuron")
    watch = Watch()
    static = {
        "cache_implementation": "static",
        "compile_config": CompileConfig(backend="neuron", mode=None),
    }
    with torchneuron.explain() as report:
        found = generate(model, ids.to("neuron"), mask.to("neuron"), streamer=watch, **static)
    assert found.tolist() == expected.tolist() and len(expected.unique()) > 3
    # One note for the prompt, one for each token.
    assert len(watch.programs) == 1 + NEW_TOKENS
    before, second, last = watch.programs[0], watch.programs[2], watch.programs[-1]
    assert second > before, "nothing was compiled"
    assert last == second, "something was compiled after the second token"
    made = report.to_dict()
    assert len(made["compiles"]) + len(made["cache_hits"]) == last - before
    report.assert_no("recompile")
    report.assert_no("host_fallback")
