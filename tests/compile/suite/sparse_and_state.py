"""Rows of text models with experts, and of models with a state: state spaces, recurrences."""

from typing import Any

from compile.suite.inputs import VOCABULARY, pairs, tokens
from compile.suite.row import Row, row
from compile.suite.text import ALTERNATING, GROUPED, SMALL_T5, SPECIAL, TEXT

SPARSE = {**GROUPED, "num_experts_per_tok": 2}
STATE: dict[str, Any] = {
    **SPECIAL, "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2,
    "state_size": 8,
}  # fmt: skip


COUNTING = "eager counts tokens per expert with `histc` of integers, which the device refuses"


def _experts(
    name: str, arguments: dict[str, Any], inputs: Any = tokens, known: str = COUNTING
) -> Row:
    return row("experts", name, inputs, arguments, has_experts=True, known=known)


EXPERTS: dict[str, Row] = {
    "mixtral": _experts("MixtralForCausalLM", {**SPARSE, "num_local_experts": 4}),
    "qwen2_moe": _experts("Qwen2MoeForCausalLM", {
        **SPARSE, "num_experts": 4, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 64,
    }),
    "qwen3_moe": _experts("Qwen3MoeForCausalLM", {
        **SPARSE, "head_dim": 16, "num_experts": 4, "moe_intermediate_size": 32,
        "decoder_sparse_step": 1, "norm_topk_prob": True,
    }),
    "olmoe": _experts("OlmoeForCausalLM", {**SPARSE, "num_experts": 4}),
    "granitemoe": _experts("GraniteMoeForCausalLM", {**SPARSE, "num_local_experts": 4}),
    "deepseek_v3": _experts("DeepseekV3ForCausalLM", {
        **TEXT, "num_key_value_heads": 4, "num_hidden_layers": 3, "first_k_dense_replace": 1,
        "moe_intermediate_size": 32, "n_routed_experts": 8, "n_group": 2, "topk_group": 1,
        "num_experts_per_tok": 2, "n_shared_experts": 1, "kv_lora_rank": 16,
        "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    }),
    "gpt_oss": _experts("GptOssForCausalLM", {
        **SPARSE, "head_dim": 16, "num_local_experts": 4, "sliding_window": 16,
        "layer_types": ALTERNATING,
    }),
    "switch_transformers": _experts("SwitchTransformersForConditionalGeneration", {
        **SMALL_T5, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1,
        "num_decoder_layers": 2, "num_experts": 4, "expert_capacity": 64,
    }, pairs, known=""),
}  # fmt: skip

STATES: dict[str, Row] = {
    "mamba": row("state-space", "MambaForCausalLM", tokens, STATE),
    "falcon_mamba": row("state-space", "FalconMambaForCausalLM", tokens, STATE),
    "mamba2": row("state-space", "Mamba2ForCausalLM", tokens, {
        **STATE, "num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 16,
    }),
    "jamba": row("state-space", "JambaForCausalLM", tokens, {
        **SPARSE, "num_experts": 4, "num_hidden_layers": 4, "attn_layer_period": 2,
        "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "mamba_d_state": 8, "mamba_dt_rank": 4, "use_mamba_kernels": False,
    }, has_experts=True, known=COUNTING),
    "bamba": row("state-space", "BambaForCausalLM", tokens, {
        **GROUPED, "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 16,
        "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_chunk_size": 16,
    }),
    "recurrent_gemma": row("state-space", "RecurrentGemmaForCausalLM", tokens, {
        **GROUPED, "num_hidden_layers": 3, "lru_width": 64, "attention_window_size": 16,
        "block_types": ["recurrent", "recurrent", "attention"],
    }),
    "rwkv": row("state-space", "RwkvForCausalLM", lambda: _without_mask(), {
        **SPECIAL, "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2,
        "attention_hidden_size": 64, "intermediate_size": 128,
    }),
    "lfm2": row("state-space", "Lfm2ForCausalLM", tokens, {
        **GROUPED, "layer_types": ["conv", "full_attention"],
    }),
    "qwen3_next": row("state-space", "Qwen3NextForCausalLM", tokens, {
        **SPARSE, "head_dim": 16, "num_experts": 4, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    }, has_experts=True, known=COUNTING),
}  # fmt: skip


def _without_mask() -> dict[str, Any]:
    """Tokens for a recurrence that has no mask."""
    return {name: value for name, value in tokens().items() if name != "attention_mask"}
