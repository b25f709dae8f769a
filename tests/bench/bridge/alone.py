"""On one rank, in one process: steps of the plain loop and of the same with motley_torch, turn by turn; and gradients of 3 + 1 samples
by plain averaging over ranks and by sums."""

import json
import multiprocessing
import os
import pathlib
import socket
import statistics
import sys
import tempfile
import time

import motley_torch as motley
import torch
from small_gpt import Text, losses_of, make_gpt

BATCH, TURNS = 32, 160


def plain(data):
    model = make_gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True):
        optimizer.zero_grad(set_to_none=True)
        losses_of(model(x), y).mean().backward()
        optimizer.step()
        yield


def with_shim(data):
    model = make_gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    job = motley.init(model, optimizer, global_batch=BATCH)
    loader = job.loader(data)
    while True:
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            losses = losses_of(model(x), y)
            job.backward(losses.sum(), len(losses))
            optimizer.step()
            yield


def endless(make, data):
    while True:
        yield from make(data)


def listen():
    """In the place of `motley run`: whatever is told of steps is taken."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="motley-bridge-"))
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(place / "control"))
    server.listen()

    def take():
        while True:
            connection, _ = server.accept()
            while connection.recv(65536):
                pass
    multiprocessing.Process(target=take, daemon=True).start()
    (place / "key").write_text("")
    os.environ.update(MOTLEY_CONTROL=f"unix:{place / 'control'}", MOTLEY_KEY_FILE=str(place / "key"))


def overhead(data):
    listen()
    loops = [endless(plain, data), with_shim(data)]
    times = [[], []]
    for _ in range(TURNS):
        for loop, spent in zip(loops, times):
            begin = time.perf_counter()
            next(loop)
            spent.append(time.perf_counter() - begin)
    return statistics.median(times[1][20:]) / statistics.median(times[0][20:]) - 1


def gradient(model, total):
    return torch.cat([g.flatten() for g in torch.autograd.grad(total, list(model.parameters()))])


def gradient_errors(data):
    model = make_gpt()
    x, y = (torch.stack(part) for part in zip(*(data[i] for i in range(4))))
    wanted = gradient(model, losses_of(model(x), y).mean())
    averaged = sum(gradient(model, one.mean()) for one in [losses_of(model(x[:3]), y[:3]), losses_of(model(x[3:]), y[3:])]) / 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    job = motley.init(model, optimizer, global_batch=4, micro_batch=3)
    for some_x, some_y in job.loader(torch.utils.data.TensorDataset(x, y)):
        losses = losses_of(model(some_x), some_y)
        job.backward(losses.sum(), len(losses))
    summed = torch.cat([p.grad.flatten() for p in model.parameters()])
    worst = wanted.abs().max()
    return float((averaged - wanted).abs().max() / worst), float((summed - wanted).abs().max() / worst)


torch.manual_seed(1)
text = Text(sys.argv[1])
unweighted, weighted = gradient_errors(text)
print(json.dumps({"overhead": overhead(text), "unweighted": unweighted, "weighted": weighted}))
