"""Inputs of the model suite: batches of two, thirty-two positions or more, one row padded."""

import torch

from compile.suite.row import Inputs

BATCH, LENGTH, VOCABULARY, NUM_LABELS = 2, 32, 128, 5
PADDED = 5
IGNORED = -100


def _ids() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, LENGTH))


def _mask(length: int = LENGTH, padded: int = PADDED) -> torch.Tensor:
    mask = torch.ones(BATCH, length, dtype=torch.long)
    mask[1, -padded:] = 0
    return mask


def tokens() -> Inputs:
    """Ids that are their own labels, where they are no padding."""
    ids, mask = _ids(), _mask()
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": ids.masked_fill(mask == 0, IGNORED),
    }


def pairs() -> Inputs:
    """A source, and a target that is the source backwards."""
    ids = _ids()
    return {"input_ids": ids, "attention_mask": _mask(), "labels": ids.flip(0)}


def _labels() -> torch.Tensor:
    return torch.tensor([1, 2])


def pictures() -> Inputs:
    """Pictures of 64 patches of 4 by 4."""
    return {"pixel_values": torch.randn(BATCH, 3, 32, 32), "labels": _labels()}


def large_pictures() -> Inputs:
    """Pictures for networks that halve their sides five times."""
    return {"pixel_values": torch.randn(BATCH, 3, 64, 64), "labels": _labels()}


def segmented_pictures() -> Inputs:
    """Pictures with a class for each pixel."""
    labels = torch.randint(NUM_LABELS, (BATCH, 64, 64))
    return {"pixel_values": torch.randn(BATCH, 3, 64, 64), "labels": labels}


def spectrograms() -> Inputs:
    """Spectra for an encoder, and the text they stand for."""
    return {"input_features": torch.randn(BATCH, 8, 64), "labels": _ids()}


def masked_spectrograms() -> Inputs:
    """Spectra with time first, one row padded."""
    features = torch.randn(BATCH, 128, 16)
    return {"input_features": features, "attention_mask": _mask(128, 20), "labels": _ids()}


def spectral_pictures() -> Inputs:
    """Spectra that a vision transformer reads, with a label each."""
    return {"input_values": torch.randn(BATCH, 64, 32), "labels": _labels()}


def waves() -> Inputs:
    """Sound waves, one row padded, with a label each."""
    mask = _mask(12000, 2000)
    return {
        "input_values": torch.randn(BATCH, 12000) * mask,
        "attention_mask": mask,
        "labels": _labels(),
    }


def transcribed_waves() -> Inputs:
    """Sound waves, one row padded, and a text that is shorter."""
    labels = torch.randint(3, VOCABULARY, (BATCH, 10))
    labels[1, -3:] = IGNORED
    return {**waves(), "labels": labels}


def captioned_pictures() -> Inputs:
    """Pictures beside the text that describes them."""
    return {
        "input_ids": _ids(),
        "attention_mask": _mask(),
        "pixel_values": torch.randn(BATCH, 3, 32, 32),
        "return_loss": True,
    }


IMAGE_TOKEN, NUM_IMAGE_TOKENS = 120, 16


def _text_with_places() -> Inputs:
    """Text that begins with the places of a picture of sixteen patches."""
    found = tokens()
    ids = found["input_ids"] % (IMAGE_TOKEN - 3) + 1
    ids[:, :NUM_IMAGE_TOKENS] = IMAGE_TOKEN
    labels = ids.masked_fill((found["attention_mask"] == 0) | (ids == IMAGE_TOKEN), IGNORED)
    return {"input_ids": ids, "attention_mask": found["attention_mask"], "labels": labels}


def pictures_in_text() -> Inputs:
    """Text in which the patches of a picture take places of tokens."""
    return {**_text_with_places(), "pixel_values": torch.randn(BATCH, 3, 32, 32)}


def typed_pictures_in_text() -> Inputs:
    """The same, with a type per place."""
    found = pictures_in_text()
    return {**found, "token_type_ids": (found["input_ids"] == IMAGE_TOKEN).long()}


def patches_in_text() -> Inputs:
    """The same with pictures cut into patches of 2 by 3 by 4 by 4, of which four are merged."""
    found = _text_with_places()
    return {
        **found,
        "pixel_values": torch.randn(BATCH * NUM_IMAGE_TOKENS * 4, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 8, 8]] * BATCH),
        "mm_token_type_ids": (found["input_ids"] == IMAGE_TOKEN).int(),
    }


def picture_questions() -> Inputs:
    """Text and a picture side by side in one encoder, with a label each."""
    labels = torch.nn.functional.one_hot(_labels(), NUM_LABELS).float()
    return {
        "input_ids": _ids(),
        "attention_mask": _mask(),
        "pixel_values": torch.randn(BATCH, 3, 32, 32),
        "pixel_mask": torch.ones(BATCH, 32, 32, dtype=torch.long),
        "labels": labels,
    }


def written_pages() -> Inputs:
    """Text with the box of each word on its page."""
    corners = torch.randint(0, 60, (BATCH, LENGTH, 2))
    boxes = torch.cat([corners, corners + torch.randint(1, 60, (BATCH, LENGTH, 2))], -1)
    return {**tokens(), "bbox": boxes}
