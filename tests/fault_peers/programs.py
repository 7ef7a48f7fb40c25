"""The labelled suite's program (harness/jobs/faults/fault_program.cpp) in Python: three Gloo ranks that train three tensors by hand, each
kind's fault on one rank at one step. It holds what a plain PyTorch program holds: no audit, no guard, no preflight check."""

import datetime
import os
import resource
import signal
import threading
import time

import torch
import torch.distributed as dist

FOR_EVER_S = 3600


def busy(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


class Program:
    def __init__(self, kind, rank, place, folder, world, steps, timeout_s, held_port):
        self.kind, self.rank, self.place, self.folder = kind, rank, place, folder
        self.world, self.steps, self.timeout_s, self.held_port = world, steps, timeout_s, held_port
        self.mine = rank == place[0]
        self.step = -1

    def acts(self, kind, at_meeting=False):
        """This rank, at this step, if the program has this fault; writes down when."""
        does = self.kind == kind and self.mine and (at_meeting or self.step == self.place[1])
        if does and not os.path.exists(self.folder + "/acted"):
            with open(self.folder + "/acted", "w") as file:
                file.write(str(time.monotonic()))
        return does

    def timeout(self):
        return datetime.timedelta(seconds=self.timeout_s)

    # -- how ranks meet

    def meet(self):
        rank, world = self.rank, self.world
        if self.acts("rank_missing", True):
            time.sleep(FOR_EVER_S)
        if self.acts("port_in_use", True):
            dist.TCPStore("127.0.0.1", self.held_port, is_master=True, wait_for_workers=False, timeout=self.timeout())
        for kind in ("half_open", "store_dead"):
            if self.acts(kind, True):
                dist.TCPStore("127.0.0.1", self.held_port, is_master=False, wait_for_workers=False, timeout=self.timeout())
        if self.acts("wrong_world", True):
            world += 1
        if self.acts("duplicate_rank", True):
            rank = (rank + 1) % world
        if self.acts("other_threads", True):
            torch.set_num_threads(8)
        for kind in ("other_library", "other_config", "clock_skew"):
            self.acts(kind, True)  # what a rank has in its own memory: nothing that PyTorch is given differs
        store = dist.FileStore(self.folder + "/store", -1)
        store.set_timeout(self.timeout())
        if self.acts("blocked_in_store", True):
            store.wait(["key"], self.timeout() * 1000)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=self.timeout())
        self.other = dist.new_group(timeout=self.timeout()) if self.kind == "deadlock" else None

    # -- training

    def train(self):
        self.weights = [torch.ones(4, 3), torch.ones(3), torch.ones(3, 2)]
        self.moments = [torch.zeros_like(weight) for weight in self.weights]
        self.random, self.sampler = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
        if self.kind == "killed_in_recovery" and self.rank == (self.place[0] + 1) % self.world:
            self.recovers = True
        steps = self.place[1] if self.kind == "fewer_steps" and self.mine else self.steps
        for self.step in range(steps):
            try:
                self.one_step()
            except RuntimeError:
                if getattr(self, "recovers", False):
                    os.kill(os.getpid(), signal.SIGKILL)
                raise
        if self.kind == "fewer_steps" and self.mine:
            self.step = self.place[1]
            self.acts("fewer_steps")
        dist.barrier()
        if self.acts("blocked_in_teardown", True):
            time.sleep(FOR_EVER_S)
        dist.destroy_process_group()

    def one_step(self):
        if self.acts("loader_stalled"):
            time.sleep(FOR_EVER_S)
        self.load_rows()
        self.end_process()
        self.be_silent()
        if self.acts("step_ahead"):
            self.step_ahead = True  # a number of the rank's own
        target = torch.full((2,), 0.5)
        root = 1 if self.rank != 1 else 2
        dist.broadcast(target, root if self.acts("wrong_root") else 0)
        self.make_gradients()
        if not self.acts("no_gradient_sync"):
            for index in [2, 1, 0] if self.acts("wrong_order") else [0, 1, 2]:
                self.sum(index)
        self.update()
        if self.acts("extra_call"):
            dist.barrier()
        self.save()
        if self.acts("slow_evaluation"):
            time.sleep(4 * self.timeout_s)

    def load_rows(self):
        first = (self.step * self.world + self.rank) * 4
        rows = list(range(first, first + 4))
        if self.acts("exception"):
            raise RuntimeError(f"cannot decode sample {rows[1]}")
        if self.acts("row_dropped"):
            rows.pop(2)
        if self.acts("row_doubled"):
            rows[2] = rows[1]
        if self.acts("rows_reordered"):
            rows[0], rows[3] = rows[3], rows[0]
        self.rows = rows
        self.sampler += 4 * self.world
        self.random.mul_(6364136223846793005).add_(1)

    def end_process(self):
        if self.acts("kill") or self.acts("killed_in_recovery"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.acts("kill_in_collective"):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
            dist.all_reduce(torch.ones(1 << 24))
            time.sleep(1)
        elif self.kind == "kill_in_collective" and self.step == self.place[1]:
            dist.all_reduce(torch.ones(1 << 24))
        if self.acts("exit_early"):
            os._exit(0)
        if self.acts("preempted"):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        if self.acts("crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.acts("out_of_memory"):
            resource.setrlimit(resource.RLIMIT_AS, (1 << 38, resource.RLIM_INFINITY))
            torch.empty(1 << 40, dtype=torch.uint8).fill_(1)

    def be_silent(self):
        if self.acts("stop") or self.acts("continued_late"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.acts("slow"):
            busy(2 * self.timeout_s)
        if self.acts("endless_loop"):
            busy(FOR_EVER_S)
        if self.acts("deadlock"):
            dist.barrier(self.other)

    def make_gradients(self):
        factor = sum(row % 17 for row in self.rows) * 0.01
        self.gradients = [weight * 0.01 + factor for weight in self.weights]
        if self.acts("nan"):
            self.gradients[0].view(-1)[5] = float("nan")
        if self.acts("infinity"):
            self.gradients[2].view(-1)[3] = float("inf")
        if self.acts("flip_gradient"):
            self.flip(self.gradients[0], 6)

    def sum(self, index):
        one, first = self.gradients[index], index == 0
        if first and self.acts("missing_call"):
            return
        if first and self.acts("wrong_op"):
            dist.all_gather([torch.empty_like(one) for _ in range(self.world)], one)
        elif first and self.acts("wrong_reduction"):
            dist.all_reduce(one, op=dist.ReduceOp.MAX)
        elif first and self.acts("wrong_size"):
            dist.all_reduce(one[:, :2].contiguous())
        elif first and self.acts("wrong_shape"):
            dist.all_reduce(one.t().contiguous())
        elif first and self.acts("wrong_type"):
            dist.all_reduce(one.double())
        else:
            dist.all_reduce(one)
        if first and self.acts("flip_payload"):
            self.flip(one, 4)

    @staticmethod
    def flip(tensor, element):
        tensor.view(torch.int32).view(-1)[element] ^= 1 << 12

    def update(self):
        if not self.acts("stale_state"):
            for weight, moment, gradient in zip(self.weights, self.moments, self.gradients):
                moment.mul_(0.9).add_(gradient)
                weight.sub_(0.01 * moment)
        if self.acts("flip_weight"):
            self.flip(self.weights[0], 7)
        if self.acts("flip_moment"):
            self.flip(self.moments[2], 2)
        if self.acts("flip_random_state"):
            self.random ^= 1 << 17
        if self.acts("flip_sampler"):
            self.sampler ^= 4
        dist.all_gather([torch.empty(2) for _ in range(self.world)], torch.ones(2))

    def save(self):
        if self.acts("slow_disk"):
            time.sleep(4 * self.timeout_s)
        late = self.acts("barrier_removed")
        if late:
            time.sleep(self.timeout_s / 2)
        path = f"{self.folder}/state-{self.rank}"
        with open("/dev/full" if self.acts("disk_full") else path + ".new", "wb") as file:
            torch.save(self.weights, file)
        if self.acts("file_cut"):
            os.truncate(path + ".new", 10)
        if self.kind != "disk_full" or not self.mine or self.step != self.place[1]:
            os.rename(path + ".new", path)
        if not (self.kind == "barrier_removed" and self.step == self.place[1]):
            dist.barrier()

