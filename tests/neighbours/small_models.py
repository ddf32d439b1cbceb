"""Models of a few thousand random parameters, made from configurations, and what they learn."""

from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

VOCABULARY = 32
PADDING = 0


def llama(**options: Any) -> LlamaForCausalLM:
    """Make a Llama with grouped queries, rotary positions and no dropout."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            initializer_range=0.2,
            pad_token_id=PADDING,
            bos_token_id=1,
            eos_token_id=None,
            **options,
        )
    )


def gpt2(dropout: float = 0.1) -> GPT2LMHeadModel:
    """Make a GPT-2 with dropout everywhere and the output tied to the embedding."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=4,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            initializer_range=0.2,
            pad_token_id=PADDING,
            bos_token_id=1,
            eos_token_id=None,
        )
    )


def t5() -> T5ForConditionalGeneration:
    """Make a T5: encoder, decoder, cross attention and relative positions."""
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCABULARY,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            initializer_factor=2.0,
            pad_token_id=PADDING,
            eos_token_id=None,
            decoder_start_token_id=PADDING,
        )
    )


class Progressions(Dataset[dict[str, torch.Tensor]]):
    """Sequences that count upwards in steps of one to three, modulo the vocabulary."""

    def __init__(self, size: int = 48, length: int = 12) -> None:
        self.size = size
        self.length = length

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return the ids (length,) of one sequence, which are its labels as well."""
        if not 0 <= index < self.size:
            raise IndexError(index)
        ids = (torch.arange(self.length) * (1 + index % 3) + index) % VOCABULARY
        return {"input_ids": ids, "labels": ids.clone()}


def parameters_of(model: PreTrainedModel | torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copy a model's state to the CPU."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
