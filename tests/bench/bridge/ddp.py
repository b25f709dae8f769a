"""The small GPT under plain DistributedDataParallel; ranks wait before the backward pass, in which they sum, until the device that
$MOTLEY_PACE describes would have computed."""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from small_gpt import Text, losses_of, make_gpt
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

STEPS = 12

dist.init_process_group("gloo")
torch.manual_seed(1)
model = make_gpt()
pace = json.loads(os.environ["MOTLEY_PACE"])
sample_seconds = 6 * sum(p.numel() for p in model.parameters()) / (pace["flops"] * pace["speed"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model = DistributedDataParallel(model)
data = Text(sys.argv[1])
batch = int(os.environ["MOTLEY_GLOBAL_BATCH"]) // dist.get_world_size()
loader = DataLoader(data, batch_size=batch, sampler=DistributedSampler(data, drop_last=True), drop_last=True)
backward = 0.0  # of the step before
since = time.monotonic()
for step, (x, y) in zip(range(STEPS), loader):
    until = since + len(x) * sample_seconds
    loss = losses_of(model(x), y).mean()
    optimizer.zero_grad()
    time.sleep(max(0.0, until - backward - time.monotonic()))
    begin = time.monotonic()
    loss.backward()
    backward = time.monotonic() - begin if step == 0 else backward
    optimizer.step()
    now = time.monotonic()
    if dist.get_rank() == 0:
        print(json.dumps({"seconds": now - since, "loss": loss.item()}), flush=True)
    since = now
