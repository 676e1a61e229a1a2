"""A small GPT over characters: what the example trains.

Nothing in it knows about processes or groups.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention to the characters before, then a feed-forward layer; each adds to what came in."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_feed_forward = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended: Tensor = self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return attended

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm_attention(x)))
        fed_forward: Tensor = self.dropout(self.feed_forward(self.norm_feed_forward(x)))
        return x + fed_forward


class CharLM(nn.Module):
    """Gives every character that may come next a score, at every position of a text."""

    def __init__(
        self,
        vocabulary: int,
        context: int,
        *,
        width: int = 96,
        heads: int = 4,
        layers: int = 3,
        dropout: float = 0.05,
    ) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, vocabulary)
        for embedding in (self.characters, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        positions = torch.arange(text.shape[1], device=text.device)
        scores: Tensor = self.scores(
            self.norm(self.blocks(self.characters(text) + self.positions(positions)))
        )
        return scores
