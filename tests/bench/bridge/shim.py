"""The small GPT with motley_torch: seconds and loss of each step, as JSON."""

import json
import sys
import time

import motley_torch as motley
import torch
from small_gpt import Text, losses_of, make_gpt

STEPS = 50

torch.manual_seed(1)
model = make_gpt()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job = motley.init(model, optimizer)
since = time.monotonic()
loader = job.loader(Text(sys.argv[1]))
while job.step < STEPS:
    for x, y in loader:
        losses = losses_of(model(x), y)
        job.backward(losses.sum(), len(losses))
        optimizer.step()
        if job.boundary and job.rank == 0:
            now = time.monotonic()
            print(json.dumps({"seconds": now - since, "loss": job.loss}), flush=True)
            since = now
        if job.boundary and job.step == STEPS:
            sys.exit(0)
