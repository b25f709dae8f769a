"""What a program of a job may look like: it goes on where its checkpoint is, and saves when it is asked to stop."""

import os
import pathlib
import signal
import sys
import time

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CHECKPOINT = pathlib.Path(os.environ["MOTLEY_CHECKPOINT_DIR"]) / f"rank-{RANK}.txt"
STEPS = 20

asked_to_stop = []
signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.append(True))

step = int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
print(f"{os.environ['GREETING']} from rank {RANK} of {RANKS} on {os.environ['MOTLEY_DEVICE']}: "
      f"{os.environ['MOTLEY_SAMPLES']} of {os.environ['MOTLEY_GLOBAL_BATCH']} samples, from step {step}", flush=True)
while step < STEPS and not asked_to_stop:
    time.sleep(0.1)
    step += 1
CHECKPOINT.with_suffix(".new").write_text(str(step))
CHECKPOINT.with_suffix(".new").rename(CHECKPOINT)
sys.exit(75 if step < STEPS else 0)
