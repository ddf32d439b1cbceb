"""Small models of the usual architectures: compiled loss and gradients equal CPU eager's."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as tf

import torchneuron

LENGTH, VOCABULARY = 32, 128
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
TEXT = {**SIZES, "vocab_size": VOCABULARY}
GROUPED = {**TEXT, "num_key_value_heads": 2}
Inputs = dict[str, torch.Tensor]
# Calls of other packages' own operators, which no lowering of ATen knows.
EAGER = {
    "mixtral": {
        "transformers.grouped_mm_fallback.default",
        "transformers.grouped_mm_fallback_backward.default",
    }
}


def tokens() -> Inputs:
    """Two rows, the second padded at its end."""
    ids = torch.randint(3, VOCABULARY, (2, LENGTH))
    mask = torch.ones_like(ids)
    mask[1, -5:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}


def pictures() -> Inputs:
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([1, 2])}


def pairs() -> Inputs:
    ids = torch.randint(3, VOCABULARY, (2, LENGTH))
    return {"input_ids": ids, "labels": ids.flip(0)}


def sounds() -> Inputs:
    labels = torch.randint(3, VOCABULARY, (2, LENGTH))
    return {"input_features": torch.randn(2, 8, 64), "labels": labels}


def gpt2() -> Any:
    config = tf.GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=VOCABULARY, n_positions=LENGTH,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return tf.GPT2LMHeadModel(config)


def t5() -> Any:
    config = tf.T5Config(
        d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=VOCABULARY,
        dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return tf.T5ForConditionalGeneration(config)


def whisper() -> Any:
    config = tf.WhisperConfig(
        d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128,
        vocab_size=VOCABULARY, num_mel_bins=8, max_source_positions=32,
        max_target_positions=LENGTH, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, dropout=0.0,
    )  # fmt: skip
    return tf.WhisperForConditionalGeneration(config)


def bert() -> Any:
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return tf.BertForMaskedLM(tf.BertConfig(**TEXT, **dropout))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Inputs]]] = {
    "gpt2": (gpt2, tokens),
    "llama": (lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**GROUPED)), tokens),
    "qwen3": (lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**GROUPED, head_dim=16)), tokens),
    "gemma2": (
        lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(**GROUPED, head_dim=16, sliding_window=16)),
        tokens,
    ),
    "mixtral": (
        lambda: tf.MixtralForCausalLM(tf.MixtralConfig(**GROUPED, num_local_experts=4)),
        tokens,
    ),
    "mamba": (
        lambda: tf.MambaForCausalLM(
            tf.MambaConfig(hidden_size=64, num_hidden_layers=2, vocab_size=VOCABULARY, state_size=8)
        ),
        tokens,
    ),
    "bert": (bert, tokens),
    "t5": (t5, pairs),
    "whisper": (whisper, sounds),
    "vit": (
        lambda: tf.ViTForImageClassification(
            tf.ViTConfig(**SIZES, image_size=32, patch_size=8, num_labels=5)
        ),
        pictures,
    ),
    "resnet": (
        lambda: tf.ResNetForImageClassification(
            tf.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[2, 2], num_labels=5)
        ),
        pictures,
    ),
}


# Dynamo warns about what it meets in transformers: caches, gradients of inner tensors.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_equal_the_cpus(name: str) -> None:
    torch.manual_seed(0)
    build, make_inputs = MODELS[name]
    model, inputs = build().train(), make_inputs()
    reference = copy.deepcopy(model)
    expected = reference(**inputs).loss
    expected.backward()
    model.to("neuron")
    with torchneuron.explain() as report:
        call = torch.compile(model, backend="neuron")
        loss = call(**{key: value.to("neuron") for key, value in inputs.items()}).loss
        loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for (path, one), other in zip(model.named_parameters(), reference.parameters(), strict=True):
        if other.grad is not None:
            scale = other.grad.abs().max().item() + 1e-6
            apart = (one.grad.cpu() - other.grad).abs().max().item()
            assert apart < 2e-3 * scale, f"{path}: {apart} of {scale}"
    eager = {record["op"] for record in report.to_dict()["host_fallbacks"]}
    assert eager == EAGER.get(name, set())
