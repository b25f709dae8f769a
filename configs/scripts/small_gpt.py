"""The model and the data of gpt_ddp.py and gpt_motley.py."""

import pathlib

import torch
import torch.nn.functional as F
from torch import nn

CONTEXT, WIDTH, HEADS, LAYERS, VOCABULARY = 32, 64, 4, 2, 256


class Text(torch.utils.data.Dataset):
    """Stretches of the files in a directory, each a sample: bytes, and the byte that follows each."""

    def __init__(self, directory):
        files = sorted(path for suffix in ("*.py", "*.yaml") for path in pathlib.Path(directory).rglob(suffix))
        self._bytes = torch.tensor(list(b"".join(path.read_bytes() for path in files)), dtype=torch.long)

    def __len__(self):
        return (len(self._bytes) - 1) // CONTEXT

    def __getitem__(self, index):
        begin = index * CONTEXT
        return self._bytes[begin:begin + CONTEXT], self._bytes[begin + 1:begin + CONTEXT + 1]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def attention(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(x).split(WIDTH, dim=2))
        scores = q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=3)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, text):
        x = self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))
        return self.head(self.norm(self.blocks(x)))


def make_gpt():
    return GPT()


def losses_of(logits, targets):
    """Of each sample the mean over its places."""
    return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(dim=1)
