"""A GPT, in the sizes that are measured."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Size:
    layers: int
    width: int
    vocabulary: int
    length: int
    batch: int


SIZES = {
    "tiny": Size(layers=2, width=64, vocabulary=256, length=32, batch=2),
    "120M": Size(layers=12, width=768, vocabulary=50304, length=512, batch=4),
    "1B": Size(layers=24, width=1792, vocabulary=50304, length=512, batch=1),
}
HEAD = 64


class Gpt(nn.Module):
    """The mean loss of predicting each next token of sequences of shape (batch, length)."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Parameter(torch.randn(size.length, size.width))
        block = nn.TransformerEncoderLayer(
            size.width,
            size.width // HEAD,
            4 * size.width,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        norm = nn.LayerNorm(size.width)
        self.blocks = nn.TransformerEncoder(block, size.layers, norm, enable_nested_tensor=False)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seen = self.tokens(tokens) + self.places
        mask = nn.Transformer.generate_square_subsequent_mask(
            len(self.places), seen.device, seen.dtype
        )
        logits = self.head(self.blocks(seen, mask, is_causal=True))
        return nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten()
        )
