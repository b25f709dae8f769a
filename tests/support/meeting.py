"""A program for `run:` whose ranks meet as torch's do: at rank 0's address. Then it ends, fails or waits, as it is told."""

import os
import pathlib
import signal
import socket
import sys
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place, mode = pathlib.Path(os.environ["MOTLEY_CHECKPOINT_DIR"]), sys.argv[1]
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if mode == "wait":
    def stop(*_):
        (place / f"saved-{rank}").write_text("")
        sys.exit(75)
    signal.signal(signal.SIGTERM, stop)
if rank == 0:
    with socket.create_server(("", address[1])) as server:
        met = sorted(int(server.accept()[0].recv(10)) for _ in range(size - 1))
    print("met", met, flush=True)
else:
    for _ in range(600):
        try:
            socket.create_connection(address, timeout=5).sendall(str(rank).encode())
            break
        except OSError:
            time.sleep(0.05)
(place / f"here-{rank}").write_text(f"{socket.gethostname()} {os.environ['LOCAL_RANK']} {os.environ['GROUP_RANK']}")
if mode == "fail" and rank == 2:
    print("no luck here", flush=True)
    sys.exit(3)
if mode != "meet":
    time.sleep(60)
