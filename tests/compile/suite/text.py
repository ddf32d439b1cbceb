"""Rows of text models: decoders, encoders and both together."""

from typing import Any

from compile.suite.inputs import LENGTH, VOCABULARY, pairs, tokens
from compile.suite.row import Row, row

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
TEXT: dict[str, Any] = {**SIZES, **SPECIAL, "vocab_size": VOCABULARY}
GROUPED = {**TEXT, "num_key_value_heads": 2}
PLACES = {"max_position_embeddings": 2 * LENGTH}
SHORT = {**SPECIAL, "vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4}
BOTH_SIDES = {
    **SPECIAL,
    **PLACES,
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "decoder_start_token_id": 1,
    # A layer that is left out at random is a number drawn and looked at on the host.
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}
SMALL_T5 = {
    **SPECIAL,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_heads": 4,
    "vocab_size": VOCABULARY,
    "decoder_start_token_id": 0,
}
# One layer that sees the near past, one that sees everything.
ALTERNATING = ["sliding_attention", "full_attention"]

DECODERS: dict[str, Row] = {
    "gpt2": row("decoder", "GPT2LMHeadModel", tokens, {**SHORT, "n_positions": LENGTH}),
    "gpt_neo": row("decoder", "GPTNeoForCausalLM", tokens, {
        **SPECIAL, **PLACES, "vocab_size": VOCABULARY, "hidden_size": 64, "num_layers": 2,
        "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 16,
    }),
    "gptj": row("decoder", "GPTJForCausalLM", tokens, {
        **SHORT, "n_positions": 2 * LENGTH, "rotary_dim": 8,
    }),
    "gpt_neox": row("decoder", "GPTNeoXForCausalLM", tokens, TEXT),
    "opt": row("decoder", "OPTForCausalLM", tokens, {
        **TEXT, **PLACES, "ffn_dim": 128, "word_embed_proj_dim": 64,
    }),
    "bloom": row("decoder", "BloomForCausalLM", tokens, {
        **SPECIAL, "vocab_size": VOCABULARY, "hidden_size": 64, "n_layer": 2, "n_head": 4,
    }),
    "falcon": row("decoder", "FalconForCausalLM", tokens, TEXT),
    "llama": row("decoder", "LlamaForCausalLM", tokens, GROUPED),
    "mistral": row("decoder", "MistralForCausalLM", tokens, {**GROUPED, "sliding_window": 16}),
    "qwen2": row("decoder", "Qwen2ForCausalLM", tokens, {
        **GROUPED, "use_sliding_window": True, "sliding_window": 16, "layer_types": ALTERNATING,
    }),
    "qwen3": row("decoder", "Qwen3ForCausalLM", tokens, {**GROUPED, "head_dim": 16}),
    "gemma2": row("decoder", "Gemma2ForCausalLM", tokens, {
        **GROUPED, "head_dim": 16, "sliding_window": 16, "layer_types": ALTERNATING,
    }),
    "gemma3": row("decoder", "Gemma3ForCausalLM", tokens, {
        **GROUPED, "head_dim": 16, "sliding_window": 16, "layer_types": ALTERNATING,
    }),
    "phi3": row("decoder", "Phi3ForCausalLM", tokens, GROUPED),
    "olmo2": row("decoder", "Olmo2ForCausalLM", tokens, GROUPED),
    "cohere2": row("decoder", "Cohere2ForCausalLM", tokens, {
        **GROUPED, "sliding_window": 16, "layer_types": ALTERNATING,
    }),
    "glm4": row("decoder", "Glm4ForCausalLM", tokens, {**GROUPED, "head_dim": 16}),
    "smollm3": row("decoder", "SmolLM3ForCausalLM", tokens, {
        **GROUPED, "no_rope_layers": [1, 0],
    }),
    "starcoder2": row("decoder", "Starcoder2ForCausalLM", tokens, GROUPED),
}  # fmt: skip

ENCODERS: dict[str, Row] = {
    "bert": row("encoder", "BertForMaskedLM", tokens, TEXT),
    "roberta": row("encoder", "RobertaForMaskedLM", tokens, {**TEXT, **PLACES}),
    "distilbert": row("encoder", "DistilBertForMaskedLM", tokens, {
        **SPECIAL, "vocab_size": VOCABULARY, "dim": 64, "n_layers": 2, "n_heads": 4,
        "hidden_dim": 128,
    }),
    "albert": row("encoder", "AlbertForMaskedLM", tokens, {
        **TEXT, "embedding_size": 32, "num_hidden_groups": 2,
    }),
    "electra": row("encoder", "ElectraForMaskedLM", tokens, {**TEXT, "embedding_size": 32}),
    "deberta_v2": row("encoder", "DebertaV2ForMaskedLM", tokens, {
        **TEXT, **PLACES, "relative_attention": True, "position_buckets": 16,
        "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "share_att_key": True,
        "conv_kernel_size": 3,
    }),
    "modernbert": row("encoder", "ModernBertForMaskedLM", tokens, {
        **TEXT, "cls_token_id": 1, "sep_token_id": 2, "local_attention": 16,
        "layer_types": ["full_attention", "sliding_attention"],
    }),
    "mpnet": row("encoder", "MPNetForMaskedLM", tokens, {**TEXT, **PLACES}),
    "fnet": row("encoder", "FNetForMaskedLM", lambda: _without_mask(), TEXT),
}  # fmt: skip

PAIRS: dict[str, Row] = {
    "t5": row("encoder-decoder", "T5ForConditionalGeneration", pairs, SMALL_T5),
    "bart": row("encoder-decoder", "BartForConditionalGeneration", pairs, BOTH_SIDES),
    "pegasus": row("encoder-decoder", "PegasusForConditionalGeneration", pairs, BOTH_SIDES),
    "m2m_100": row("encoder-decoder", "M2M100ForConditionalGeneration", pairs, BOTH_SIDES),
    "led": row("encoder-decoder", "LEDForConditionalGeneration", pairs, {
        **BOTH_SIDES, "max_encoder_position_embeddings": 2 * LENGTH,
        "max_decoder_position_embeddings": 2 * LENGTH, "attention_window": 8,
    }),
}  # fmt: skip


def _without_mask() -> dict[str, Any]:
    """Tokens for a model that has no mask: it mixes positions by a Fourier transform."""
    return {name: value for name, value in tokens().items() if name != "attention_mask"}
