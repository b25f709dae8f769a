"""A GPT-2 in PyTorch as its users run it fastest, beside ours: compiled, scaled_dot_product_attention, fused AdamW, bf16 autocast
over fp32 weights, TF32 for what is left, one product for q, k and v, the vocabulary padded.

    gpt_torch_speed.py train DEVICE LAYERS HEADS WIDTH CONTEXT VOCAB BATCH MICRO_BATCH whole|blocks|plain
    gpt_torch_speed.py limits DEVICE

`train` compiles the whole model, its blocks, or nothing, says {"ready": …} and then obeys: for each number of steps on stdin, a list
of their seconds. `limits` prints the bandwidth of a large copy and the rate of the largest product. One JSON object a line. It
shares no code with Motley.
"""

import contextlib
import json
import math
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

PAD = 128  # the vocabulary becomes a multiple of it


def say(**what):
    print(json.dumps(what), flush=True)


def attend(q, k, v):
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])  # before PyTorch 2
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return functional.softmax(scores.masked_fill(future, -math.inf), dim=-1) @ v


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(width, dim=2))
        x = x + self.out(attend(q, k, v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        padded = (vocab + PAD - 1) // PAD * PAD
        self.token, self.position = nn.Embedding(padded, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, padded, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.token.weight

    def forward(self, inputs, targets):
        x = self.token(inputs) + self.position(torch.arange(inputs.shape[1], device=inputs.device))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Trainee:
    def __init__(self, device, shape, batch, micro_batch, compiled):
        self.device, self.context, self.micro_batch = device, shape[3], micro_batch
        self.pieces = batch // micro_batch
        with torch.device(device) if hasattr(torch, "compile") else contextlib.nullcontext():
            self.model = Gpt(*shape).to(device)
        weights = list(self.model.parameters())
        groups = [{"params": [w for w in weights if w.dim() > 1], "weight_decay": 0.1},
                  {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0}]
        fused = {"fused": True} if device == "cuda" else {}
        self.adamw = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), **fused)
        self.loss = self.compile(compiled)

    def compile(self, what):
        if what == "whole":
            return torch.compile(self.model)
        if what == "blocks":
            for block in self.model.blocks:
                block.compile()
        return self.model

    def step(self):
        # Bytes, like the text that ours reads: the same few rows of the embedding.
        samples = torch.randint(256, (self.pieces, self.micro_batch, self.context + 1), device=self.device)
        for sample in samples:
            with torch.autocast(self.device, dtype=torch.bfloat16):
                loss = self.loss(sample[:, :-1].contiguous(), sample[:, 1:].contiguous()) / self.pieces
            loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        return loss.item()

    def seconds_of_steps(self, count):
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - start)
        return seconds


def train(device, shape, batch, micro_batch, compiled):
    torch.set_float32_matmul_precision("high")
    start = time.perf_counter()
    trainee = Trainee(device, shape, batch, micro_batch, compiled)
    built = time.perf_counter()
    trainee.step()
    compiled_in = time.perf_counter() - built
    trainee.step()
    peak = torch.cuda.max_memory_reserved() if device == "cuda" else None
    say(ready=True, build_seconds=built - start, compile_seconds=compiled_in, peak_bytes=peak, version=torch.__version__)
    for line in sys.stdin:
        say(seconds=trainee.seconds_of_steps(int(line)))


def median_seconds(device, work, rounds=10):
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    seconds = []
    for _ in range(rounds + 2):
        wait()
        start = time.perf_counter()
        for _ in range(5):
            work()
        wait()
        seconds.append((time.perf_counter() - start) / 5)
    return statistics.median(seconds[2:])


def limits(device):
    size, side = (1 << 30, 8192) if device == "cuda" else (1 << 20, 64)
    a, b = (torch.randn(size // 2, device=device).bfloat16() for _ in range(2))
    say(bytes_per_second=2 * size / median_seconds(device, lambda: b.copy_(a)))
    del a, b
    for rows in (side, 2 * side):
        a, b = (torch.randn(n, side, device=device).bfloat16() for n in (rows, side))
        say(flops_per_second=2 * rows * side * side / median_seconds(device, lambda a=a, b=b: a @ b.T))


def main():
    mode, device, *numbers = sys.argv[1:]
    if mode == "limits":
        return limits(device)
    *sizes, compiled = numbers
    layers, heads, width, context, vocab, batch, micro_batch = map(int, sizes)
    return train(device, (layers, heads, width, context, vocab), batch, micro_batch, compiled)


if __name__ == "__main__":
    main()
