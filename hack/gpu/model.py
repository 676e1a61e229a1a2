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


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.width // HEAD
        self.before_attention, self.before_mlp = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        wide = 4 * size.width
        self.mlp = nn.Sequential(
            nn.Linear(size.width, wide), nn.GELU(), nn.Linear(wide, size.width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        together = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, HEAD)
        q, k, v = together.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        after: torch.Tensor = x + self.mlp(self.before_mlp(x))
        return after


class Gpt(nn.Module):
    """The mean loss of predicting each next token of sequences of shape (batch, length)."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.length, size.width)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        logits = self.head(self.norm(self.blocks(self.tokens(tokens) + self.places(places))))
        return nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten()
        )
