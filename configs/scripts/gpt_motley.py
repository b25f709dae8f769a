"""A small GPT learns the text of a directory: gpt_ddp.py on unlike devices. What it has and that has not is marked.

motley run configs/jobs/script.yaml
"""

import os
import sys

import motley_torch as motley  # new
import torch
from small_gpt import Text, losses_of, make_gpt

PASSES = 1

device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
torch.manual_seed(1)
data, model = Text(sys.argv[1]), make_gpt().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job = motley.init(model, optimizer)  # new: instead of init_process_group and DistributedDataParallel
loader = job.loader(data)  # new: instead of DistributedSampler and DataLoader
for number in job.passes(PASSES):  # new: begins with the one that it was stopped in
    for x, y in loader:
        optimizer.zero_grad()
        losses = losses_of(model(x.to(device)), y.to(device))
        job.backward(losses.sum(), len(losses))  # new: instead of losses.mean().backward()
        optimizer.step()
        if os.environ["RANK"] == "0":
            print(f"loss {losses.mean():.4f}", flush=True)
