"""A first model on `neuron`: move it there, call it, compare it with the CPU.

What it shows: `.to("neuron")` is the only change that a model needs in eager mode.
"""

import argparse

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    """A small text classifier: embedding, two transformer layers, mean, linear layer."""

    def __init__(self, num_words: int = 500, width: int = 64, num_classes: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(num_words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(width, num_classes)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores float32 [batch, num_classes] of words int64 [batch, time]."""
        scores: Tensor = self.head(self.encoder(self.embed(words)).mean(dim=1))
        return scores


def main() -> None:
    """Run one forward pass on the device and on the CPU with the same weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="neuron")
    device = torch.device(parser.parse_args().device)

    torch.manual_seed(0)
    model = Classifier().eval()
    words = torch.randint(500, (8, 32))

    with torch.no_grad():
        expected = model(words)
        model.to(device)
        scores = model(words.to(device))

    if device.type != "cpu":
        name = torch.get_device_module(device).get_device_name()
        print(f"device {device}: {name}")
    print(f"scores: shape {tuple(scores.shape)}, dtype {scores.dtype}, on {scores.device}")
    print(f"classes: {scores.argmax(dim=1).tolist()}")
    difference = (scores.cpu() - expected).abs().max().item()
    print(f"first_model: the model ran on {device}; largest difference from the CPU {difference:g}")


if __name__ == "__main__":
    main()
