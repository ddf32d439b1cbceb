"""Rows of models that see and hear: vision, audio, and both beside text."""

from typing import Any

from compile.suite import inputs
from compile.suite.inputs import IMAGE_TOKEN, LENGTH, NUM_LABELS, VOCABULARY
from compile.suite.row import Row, row
from compile.suite.text import BOTH_SIDES, GROUPED, PLACES, SIZES, TEXT

LABELS = {"num_labels": NUM_LABELS}
PATCHES: dict[str, Any] = {**SIZES, "image_size": 32, "patch_size": 4}
SIXTEEN_PATCHES = {**PATCHES, "patch_size": 8}


def _vision(
    name: str, arguments: dict[str, Any], make: Any = inputs.large_pictures, **options: Any
) -> Row:
    return row("vision", name, make, {**arguments, **LABELS}, **options)


VISION: dict[str, Row] = {
    "vit": _vision("ViTForImageClassification", PATCHES, inputs.pictures),
    "deit": _vision("DeiTForImageClassification", PATCHES, inputs.pictures),
    "beit": _vision("BeitForImageClassification", {
        **PATCHES, "use_relative_position_bias": True, "use_shared_relative_position_bias": False,
    }, inputs.pictures),
    "dinov2": _vision("Dinov2ForImageClassification", PATCHES, inputs.pictures),
    "swin": _vision("SwinForImageClassification", {
        "image_size": 64, "patch_size": 4, "embed_dim": 64, "depths": [2, 2], "num_heads": [2, 4],
        "window_size": 4,
    }),
    "convnext": _vision("ConvNextForImageClassification", {
        "depths": [2, 2, 2, 2], "hidden_sizes": [64, 64, 96, 128],
    }),
    "resnet": _vision("ResNetForImageClassification", {
        "embedding_size": 64, "hidden_sizes": [64, 96], "depths": [2, 2],
    }),
    "regnet": _vision("RegNetForImageClassification", {
        "embedding_size": 64, "hidden_sizes": [64, 96], "depths": [2, 2], "groups_width": 16,
    }),
    "mobilenet_v2": _vision("MobileNetV2ForImageClassification", {
        "image_size": 64, "depth_multiplier": 0.5,
    }, learning_rate=1e-4),
    "efficientnet": _vision("EfficientNetForImageClassification", {
        "image_size": 64, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280,
        "in_channels": [32, 16, 24], "out_channels": [16, 24, 40], "kernel_sizes": [3, 3, 5],
        "strides": [1, 2, 2], "num_block_repeats": [1, 2, 2], "expand_ratios": [1, 6, 6],
        "depthwise_padding": [], "drop_connect_rate": 0.2,
    }),
    "segformer": _vision("SegformerForSemanticSegmentation", {
        "hidden_sizes": [64, 64, 64, 64], "depths": [2, 2, 2, 2], "decoder_hidden_size": 64,
        "num_attention_heads": [1, 2, 2, 4],
    }, inputs.segmented_pictures),
    "poolformer": _vision("PoolFormerForImageClassification", {
        "hidden_sizes": [64, 64, 64, 64], "depths": [2, 2, 2, 2],
    }),
}  # fmt: skip

WAVES: dict[str, Any] = {
    **TEXT,
    "conv_dim": [32] * 7,
    "num_feat_extract_layers": 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 32,
    # Masks of training are drawn on the host, with numpy.
    "apply_spec_augment": False,
    "layerdrop": 0.0,
}
AUDIO: dict[str, Row] = {
    "whisper": row("audio", "WhisperForConditionalGeneration", inputs.spectrograms, {
        **BOTH_SIDES, "num_mel_bins": 8, "max_source_positions": 32,
        "max_target_positions": LENGTH,
    }),
    "speech_to_text": row(
        "audio", "Speech2TextForConditionalGeneration", inputs.masked_spectrograms, {
            **BOTH_SIDES, "input_feat_per_channel": 16, "conv_channels": 64,
            "max_source_positions": 64, "max_target_positions": 64,
        },
    ),
    "audio_spectrogram_transformer": row(
        "audio", "ASTForAudioClassification", inputs.spectral_pictures, {
            **SIZES, **LABELS, "patch_size": 8, "frequency_stride": 6, "time_stride": 6,
            "max_length": 64, "num_mel_bins": 32,
        },
    ),
    "wav2vec2": row("audio", "Wav2Vec2ForSequenceClassification", inputs.waves, {
        **WAVES, **LABELS,
    }),
    "hubert": row("audio", "HubertForSequenceClassification", inputs.waves, {**WAVES, **LABELS}),
    "wavlm": row("audio", "WavLMForSequenceClassification", inputs.waves, {
        **WAVES, **LABELS,
    }),
    "wav2vec2_ctc": row("audio", "Wav2Vec2ForCTC", inputs.transcribed_waves, {
        **WAVES, "ctc_loss_reduction": "mean",
    }),
}  # fmt: skip

TWO_TOWERS = {"text_config": {**TEXT, **PLACES}, "vision_config": PATCHES, "projection_dim": 64}
MULTIMODAL: dict[str, Row] = {
    "clip": row("multimodal", "CLIPModel", inputs.captioned_pictures, TWO_TOWERS),
    "siglip": row("multimodal", "SiglipModel", inputs.captioned_pictures, {
        name: value for name, value in TWO_TOWERS.items() if name != "projection_dim"
    }),
    "llava": row("multimodal", "LlavaForConditionalGeneration", inputs.pictures_in_text, {
        "text_config": {"model_type": "llama", **GROUPED},
        "vision_config": {"model_type": "clip_vision_model", **SIXTEEN_PATCHES},
        "image_token_id": IMAGE_TOKEN, "vision_feature_layer": -1,
    }),
    "paligemma": row("multimodal", "PaliGemmaForConditionalGeneration",
        inputs.typed_pictures_in_text, {
        "text_config": {"model_type": "gemma", **GROUPED, "head_dim": 16},
        "vision_config": {"model_type": "siglip_vision_model", **SIXTEEN_PATCHES},
        "image_token_id": IMAGE_TOKEN, "projection_dim": 64,
    }),
    "qwen2_vl": row("multimodal", "Qwen2VLForConditionalGeneration", inputs.patches_in_text, {
        "text_config": {
            **GROUPED,
            "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]},
        },
        "vision_config": {
            "depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 4, "mlp_ratio": 2,
            "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
        "image_token_id": IMAGE_TOKEN, "video_token_id": 121, "vision_start_token_id": 122,
        "vision_end_token_id": 123,
    }),
    "vilt": row("multimodal", "ViltForQuestionAnswering", inputs.picture_questions, {
        **TEXT, **PATCHES, **LABELS,
    }),
    "layoutlm": row("multimodal", "LayoutLMForMaskedLM", inputs.written_pages, {
        **TEXT, **PLACES, "max_2d_position_embeddings": VOCABULARY,
    }),
}  # fmt: skip
