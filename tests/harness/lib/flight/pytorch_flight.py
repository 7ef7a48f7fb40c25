"""Three Gloo ranks of PyTorch's own, and their flight records: python pytorch_flight.py FOLDER KIND ...

Writes FOLDER/KIND. good: four sums; wrong_size: rank 1's third sum is of one column less; missing: it leaves the third sum out."""

import datetime
import os
import sys
import time

os.environ["TORCH_FR_BUFFER_SIZE"] = "200"
os.environ["TORCH_CPP_LOG_LEVEL"] = "FATAL"

import torch
import torch.distributed as dist


def be_rank(folder, kind, rank):
    store = dist.FileStore(folder + "-store", 3)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=3, timeout=datetime.timedelta(seconds=1))
    try:
        for number in range(4):
            acts = rank == 1 and number == 2
            if acts and kind == "missing":
                continue
            dist.all_reduce(torch.ones(4, 2 if acts and kind == "wrong_size" else 3))
    except RuntimeError:
        pass
    time.sleep(0.3)  # a sum that is done is noted as such a moment later
    with open(f"{folder}/rank_{rank}", "wb") as file:
        file.write(torch._C._distributed_c10d._dump_fr_trace(True, False, False))
    os._exit(0)


for kind in sys.argv[2:]:
    folder = f"{sys.argv[1]}/{kind}"
    os.makedirs(folder)
    children = []
    for rank in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            be_rank(folder, kind, rank)
    for child in children:
        os.waitpid(child, 0)
