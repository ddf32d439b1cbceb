"""`generate` of transformers picks on the device the tokens that it picks on the CPU."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache, GenerationConfig, PreTrainedModel

from behaviour.subject import DEVICE, FIRST, SECOND
from neighbours.small_models import PADDING, VOCABULARY, gpt2, llama, t5

NEW_TOKENS = 16
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama_sdpa": llama,
    "llama_eager": lambda: llama(attn_implementation="eager"),
    "gpt2": gpt2,
}


def padded_prompts(lengths: tuple[int, ...], side: str) -> dict[str, torch.Tensor]:
    """Make prompts of several lengths, padded on one side, with their mask."""
    width = max(lengths)
    ids = torch.full((len(lengths), width), PADDING)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        part = slice(width - length, None) if side == "left" else slice(length)
        ids[row, part] = torch.randint(2, VOCABULARY, (length,))
        mask[row, part] = 1
    return {"input_ids": ids, "attention_mask": mask}


def run(
    model: PreTrainedModel,
    inputs: dict[str, torch.Tensor],
    device: str,
    length: int = NEW_TOKENS,
    **options: Any,
) -> Any:
    """Generate on a device from a fixed seed and return everything that generate returns."""
    model = copy.deepcopy(model).eval().to(device)
    torch.manual_seed(17)
    return model.generate(
        **{name: value.to(device) for name, value in inputs.items()},
        generation_config=GenerationConfig(
            max_new_tokens=length,
            pad_token_id=PADDING,
            decoder_start_token_id=PADDING,
            return_dict_in_generate=True,
            output_logits=True,
            **options,
        ),
    )


def assert_generates_the_same(
    model: PreTrainedModel, inputs: dict[str, torch.Tensor], **options: Any
) -> torch.Tensor:
    """Check that tokens and logits equal the CPU's bit for bit, and return the tokens."""
    actual = run(model, inputs, DEVICE, **options)
    expected = run(model, inputs, "cpu", **options)
    assert str(actual.sequences.device) == FIRST
    assert torch.equal(actual.sequences.cpu(), expected.sequences)
    assert len(actual.logits) == len(expected.logits)
    for step, (got, want) in enumerate(zip(actual.logits, expected.logits, strict=True)):
        assert torch.equal(got.cpu(), want), f"the logits of step {step} differ"
    return actual.sequences.cpu()


STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "temperature": 1.3, "top_k": 12, "top_p": 0.9},
    "beams": {"do_sample": False, "num_beams": 3, "num_return_sequences": 2},
    "penalties": {"do_sample": False, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
    "without_cache": {"do_sample": False, "use_cache": False},
    "ends_early": {"do_sample": True, "eos_token_id": [7, 11, 19, 23]},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", MODELS)
def test_left_padded_prompts_continue_as_on_the_cpu(name: str, strategy: str) -> None:
    inputs = padded_prompts((7, 3, 5), side="left")
    tokens = assert_generates_the_same(MODELS[name](), inputs, **STRATEGIES[strategy])
    assert len(tokens[:, 7:].unique()) > 3


def test_sampling_repeats_with_the_seed_and_changes_without() -> None:
    inputs = padded_prompts((4, 4), side="left")
    model = llama()
    first = run(model, inputs, DEVICE, do_sample=True).sequences
    assert torch.equal(run(model, inputs, DEVICE, do_sample=True).sequences, first)
    on_device = model.to(DEVICE)
    moved = {name: value.to(DEVICE) for name, value in inputs.items()}
    torch.manual_seed(18)
    options = {"do_sample": True, "max_new_tokens": NEW_TOKENS}
    assert not torch.equal(on_device.generate(**moved, **options), first)


def test_the_cache_lies_on_the_device_and_changes_nothing() -> None:
    inputs = padded_prompts((6, 2), side="left")
    model = llama()
    cached = run(model, inputs, DEVICE, do_sample=False)
    assert type(cached.past_key_values) is DynamicCache
    for layer in cached.past_key_values.layers:
        assert str(layer.keys.device) == str(layer.values.device) == FIRST
        assert layer.keys.shape[-2] == 6 + NEW_TOKENS - 1
    plain = run(model, inputs, DEVICE, do_sample=False, use_cache=False)
    assert torch.equal(cached.sequences, plain.sequences)


def test_a_given_cache_continues_a_conversation() -> None:
    def talk(model: PreTrainedModel, device: str) -> list[Any]:
        model = copy.deepcopy(model).eval().to(device)
        cache = DynamicCache(config=model.config)
        ids = torch.arange(2, 7, device=device)[None]
        turns = []
        for _ in range(3):
            mask = torch.ones_like(ids)
            options = {"max_new_tokens": 4, "do_sample": False, "cache": cache}
            ids = model.generate(input_ids=ids, attention_mask=mask, **options)
            turns.append(ids.tolist())
            ids = torch.cat([ids, ids[:, :2]], dim=1)
            cache.crop(-1)
        return turns

    model = llama()
    assert talk(model, DEVICE) == talk(model, "cpu")


@pytest.mark.parametrize("strategy", ["greedy", "sampling", "beams"])
def test_padded_encoder_decoder_generates_as_on_the_cpu(strategy: str) -> None:
    """aws-neuron/aws-neuron-sdk #672: padded generation picked other tokens than the CPU."""
    inputs = padded_prompts((9, 2, 5), side="right")
    tokens = assert_generates_the_same(t5(), inputs, length=32, **STRATEGIES[strategy])
    assert tokens.shape[1] == 1 + 32
    assert len(tokens.unique()) > 3


def test_padding_does_not_change_what_a_source_generates() -> None:
    """aws-neuron/aws-neuron-sdk #672: padded generation picked other tokens."""
    inputs = padded_prompts((9, 2, 5), side="right")
    model = t5()
    together = run(model, inputs, DEVICE, length=32, do_sample=False).sequences
    alone = {name: value[1:2, :2] for name, value in inputs.items()}
    expected = run(model, alone, DEVICE, length=32, do_sample=False).sequences
    assert together[1:2].tolist() == expected.tolist()


def test_bfloat16_generates_as_on_the_cpu() -> None:
    inputs = padded_prompts((5, 4), side="left")
    assert_generates_the_same(llama().bfloat16(), inputs, do_sample=False)


def test_a_model_spread_over_devices_generates_the_same(tmp_path: Path) -> None:
    model = llama().eval()
    model.save_pretrained(tmp_path)
    places = {
        "model.embed_tokens": FIRST,
        "model.rotary_emb": FIRST,
        "model.layers.0": FIRST,
        "model.layers.1": SECOND,
        "model.norm": SECOND,
        "lm_head": SECOND,
    }
    spread = type(model).from_pretrained(tmp_path, device_map=places).eval()
    assert str(spread.lm_head.weight.device) == SECOND
    ids = torch.arange(2, 8)[None]
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False}
    tokens = spread.generate(
        ids.to(FIRST), attention_mask=torch.ones_like(ids).to(FIRST), **options
    )
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    assert tokens.tolist() == expected.tolist()
