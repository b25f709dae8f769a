"""A small GPT learns the text of a directory: a plain DistributedDataParallel script, for torchrun and equal devices.

gpt_motley.py is the same on unlike ones: `diff configs/scripts/gpt_ddp.py configs/scripts/gpt_motley.py`.
"""

import os
import sys

import torch
import torch.distributed as dist
from small_gpt import Text, losses_of, make_gpt
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

PASSES = 1
GLOBAL_BATCH = 32

device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
torch.manual_seed(1)
data, model = Text(sys.argv[1]), make_gpt().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
dist.init_process_group("gloo")
model = DistributedDataParallel(model)
sampler = DistributedSampler(data, drop_last=True)
loader = DataLoader(data, batch_size=GLOBAL_BATCH // dist.get_world_size(), sampler=sampler, drop_last=True)
for number in range(PASSES):
    sampler.set_epoch(number)
    for x, y in loader:
        optimizer.zero_grad()
        losses = losses_of(model(x.to(device)), y.to(device))
        losses.mean().backward()
        optimizer.step()
        if os.environ["RANK"] == "0":
            print(f"loss {losses.mean():.4f}", flush=True)
