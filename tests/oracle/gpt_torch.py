#!/usr/bin/env python3
"""The engine against PyTorch: same random weights and tokens; loss, gradients, and 20 steps of AdamW.

    gpt_torch.py [fp32|bf16] EXPORT...     cases in this precision alone; the command that starts motley_engine_export

The model below is written from the paper's description with torch.nn and differentiated by autograd; it shares no code with
Motley. PyTorch computes in float64, so that what differs is the engine's rounding; its own in float32, or bfloat16 where ours
computes in that, is shown beside it.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    os.execvp("bash", ["bash", str(Path(__file__).parents[1] / "support/missing_capability.sh"), "torch", str(error)])

# Of the loss, of the worst tensor's gradient, of 20 losses. In bf16 what its 8 bits allow: PyTorch's own is shown beside.
TOLERANCES = {"fp32": (1e-5, 1e-4, 1e-4), "bf16": (5e-4, 4e-2, 1e-3)}
LEAST_GRADIENT = {"fp32": 1e-3, "bf16": 1e-2}  # of the whole: what a tensor's is measured against at least

# on one rank or on two stages of two ranks; layers, heads, width, context, vocab, samples, precision
CASES = (("whole", 2, 3, 15, 5, 11, 3, "fp32"), ("whole", 1, 1, 7, 13, 31, 1, "fp32"), ("whole", 3, 5, 40, 37, 101, 6, "fp32"),
         ("whole", 2, 4, 64, 65, 257, 5, "fp32"), ("cut", 2, 3, 15, 5, 257, 3, "fp32"), ("cut", 3, 5, 40, 37, 259, 6, "fp32"),
         ("cut", 2, 4, 64, 65, 257, 5, "fp32"), ("whole", 2, 2, 128, 130, 1003, 3, "bf16"))


class Attention(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (part(x).view(batch, time, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        future = torch.ones(time, time, dtype=torch.bool).triu(1)
        weights = functional.softmax(scores.masked_fill(future, -math.inf), dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(heads, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.block = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def loss(self, samples):
        inputs, targets = samples[:, :-1], samples[:, 1:]
        x = self.token(inputs) + self.position(torch.arange(inputs.shape[1]))
        for block in self.block:
            x = block(x)
        logits = self.norm(x) @ self.token.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def by_name(self, name):
        """The parameter that Motley calls `name`."""
        path = name.replace("embed.", "").replace("mlp.", "").replace("gain", "weight")
        return self.get_parameter(path)


class Case:
    def __init__(self, folder):
        self.about = json.loads((folder / "case.json").read_text())
        self.weights = self.split(torch.frombuffer(bytearray((folder / "weights.f32").read_bytes()), dtype=torch.float32))
        self.gradients = self.split(torch.frombuffer(bytearray((folder / "gradients.f32").read_bytes()), dtype=torch.float32))
        tokens = torch.frombuffer(bytearray((folder / "tokens.i32").read_bytes()), dtype=torch.int32).long()
        self.batches = tokens.view(-1, self.about["samples"], self.about["model"]["context"] + 1)

    def split(self, flat):
        sizes = [math.prod(tensor["shape"]) for tensor in self.about["tensors"]]
        return dict(zip((tensor["name"] for tensor in self.about["tensors"]), flat.split(sizes)))

    def model(self, dtype):
        model = Gpt(**self.about["model"]).to(dtype)
        with torch.no_grad():
            for name, weight in self.weights.items():
                parameter = model.by_name(name)
                parameter.copy_(weight.view_as(parameter))
        named = {id(model.by_name(name)) for name in self.weights}
        assert named == {id(parameter) for parameter in model.parameters()}, "parameters without a counterpart"
        return model


def loss_and_gradients(case, dtype):
    """bfloat16: products in it, weights and their gradients in float32, as the engine has them."""
    mixed = dtype == torch.bfloat16
    model = case.model(torch.float32 if mixed else dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
        loss = model.loss(case.batches[0])
    loss.backward()
    return loss.item(), {name: model.by_name(name).grad.flatten().double() for name in case.weights}


def worst_gradient(ours, truth, least):
    """The largest relative error of a tensor, and its name. A tensor whose gradient is zero but for rounding (key biases:
    softmax ignores a shift of a row) is measured against the share `least` of the whole gradient."""
    whole = math.sqrt(sum(gradient.norm().item() ** 2 for gradient in truth.values()))
    errors = {name: (ours[name].double() - gradient).norm().item() / max(gradient.norm().item(), least * whole)
              for name, gradient in truth.items()}
    return max((error, name) for name, error in errors.items())


def learning_rate(optimizer, step, steps):
    if step <= optimizer["warmup"]:
        return optimizer["lr"] * step / optimizer["warmup"]
    done = (step - optimizer["warmup"]) / (steps - optimizer["warmup"])
    return optimizer["min_lr"] + (optimizer["lr"] - optimizer["min_lr"]) * (1 + math.cos(math.pi * done)) / 2


def train(case, dtype):
    model, about = case.model(dtype), case.about["optimizer"]
    matrices = [parameter for name, parameter in model.named_parameters() if "norm" not in name and name.endswith("weight")]
    others = [parameter for name, parameter in model.named_parameters() if "norm" in name or not name.endswith("weight")]
    groups = [{"params": matrices, "weight_decay": about["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=0.0, betas=(about["beta1"], about["beta2"]), eps=about["eps"])
    losses, clipped = [], 0
    for step, batch in enumerate(case.batches, 1):
        adamw.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        losses.append(loss.item())
        clipped += nn.utils.clip_grad_norm_(model.parameters(), about["clip"]).item() > about["clip"]
        for group in adamw.param_groups:
            group["lr"] = learning_rate(about, step, len(case.batches))
        adamw.step()
    return losses, clipped


def relative(a, b):
    return abs(a - b) / abs(b)


def check(case):
    loss, truth = loss_and_gradients(case, torch.float64)
    peer, name_of_peer = (torch.bfloat16, "bfloat16") if case.about["precision"] == "bf16" else (torch.float32, "float32")
    peer_loss, peer_gradients = loss_and_gradients(case, peer)
    ours, least = case.about["losses"], LEAST_GRADIENT[case.about["precision"]]
    loss_error = relative(ours[0], loss)
    gradient_error, name = worst_gradient(case.gradients, truth, least)
    curve, clipped = train(case, torch.float64)
    curve_error = max(relative(a, b) for a, b in zip(ours, curve))
    assert 0 < clipped, "clipping never acted: the case proves too little"
    print(f"  loss {ours[0]:.6f}: error {loss_error:.1e} (torch's {name_of_peer} {relative(peer_loss, loss):.1e})")
    print(f"  worst gradient {name}: {gradient_error:.1e} (torch's {name_of_peer} {worst_gradient(peer_gradients, truth, least)[0]:.1e})")
    print(f"  {len(curve)} steps of AdamW, {clipped} clipped, to loss {curve[-1]:.6f}: worst error {curve_error:.1e}")
    errors = (loss_error, gradient_error, curve_error)
    return all(error <= tolerance for error, tolerance in zip(errors, TOLERANCES[case.about["precision"]]))


def main():
    torch.set_num_threads(2)
    good, command = True, sys.argv[1:]
    only = command.pop(0) if command[0] in TOLERANCES else None
    for sizes in CASES:
        if only not in (None, sizes[-1]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([*command, *map(str, sizes), folder], check=True)
            print("{}: layers {} heads {} width {} context {} vocab {} samples {}, {}".format(*sizes))
            good &= check(Case(Path(folder)))
    print("agrees with PyTorch" if good else "DIFFERS from PyTorch")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
