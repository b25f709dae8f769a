"""Motley for a PyTorch script: a few changed lines, and it trains on unlike devices.

    import motley_torch as motley
    job = motley.init(model, optimizer)                   # instead of DistributedDataParallel
    loader = job.loader(dataset)                          # instead of DataLoader and DistributedSampler
    for number in job.passes(3):                          # instead of range(3)
        for x, y in loader:
            loss = loss_of(model(x), y, reduction="sum")  # a sum over samples, not a mean
            job.backward(loss, len(x))                    # instead of loss.backward()
            optimizer.step()

Each pass of a loader is one pass over the data, in one seeded order whatever the number of ranks. The loader yields this rank's micro-
batches of each global batch; between the ranks' last ones gradients are summed over all samples and divided by how many there were, so
any deal of samples trains the same model (but for BatchNorm, which goes by micro-batches, and random numbers like dropout's). Only there,
where `job.boundary` is true, step() of the optimizer and of what else init() was given does something: scripts accumulate nothing
themselves. There a loop may be left, by all ranks after the same job.step; a GradScaler steps and updates (backward() takes the scaler),
and `job.loss` is the mean over the last global batch of what backward() was given.

Started by `motley run` or `motley submit`, from `run:` of a job; by torchrun or alone it trains too, with equal shares. Asked to stop
(SIGTERM), all ranks end after the same step, with a checkpoint; the same script, started again, goes on there on any number of ranks.
Needs torch 1.13 or newer alone. Ranks hold whole copies of the model; buffers, like BatchNorm's averages, are each rank's own until a pass
ends, then rank 0's; what is not in the model, the optimizer or `others` is the script's own to keep. `motley run` first runs the script
alone on a device of each kind to see how long micro-batches take. core/FORMATS.md: "program", "script checkpoint".
"""

import atexit
import collections
import ctypes
import datetime
import functools
import json
import math
import mmap
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import weakref

import torch
import torch.distributed as dist

STOPPED = 75  # the exit status of what has saved and wants to be started again
_MEASURED_VERSION, _STATE_VERSION, _BUCKET_ELEMENTS = 1, 3, 8 << 20
_SHARD, _REST = "s0000.safetensors", "script"  # of a checkpoint: its file, and in that what is no tensor
_NAME = re.compile(r"[A-Za-z0-9._/-]{1,256}")  # of a tensor in it
_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
           torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
_SUMMED_IN = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_DTYPES_BY_NAME = {name: dtype for dtype, name in _DTYPES.items()}


class Error(Exception):
    """What the script, its job or its checkpoint has that this cannot work with."""


def init(model, optimizer, *others, global_batch=None, micro_batch=None, seed=0, save_every=None, flops_per_sample=None,
         timeout=datetime.timedelta(minutes=30)):
    """Joins the other ranks and returns the Job. All ranks have rank 0's weights then, or the newest checkpoint's: copies follow it.

    others: what else has state_dict() and load_state_dict(), like schedulers: kept in checkpoints; its step() works as the optimizer's.
    global_batch: samples; where the job file says nothing (train.global_batch).
    micro_batch: at most so many samples at a time, whatever was planned.
    save_every: steps between checkpoints, where the job file has no checkpoint.every; else they are made only when stopped.
    flops_per_sample: of forward and backward, for emulated devices alone (default: 6 for each parameter)."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise Error("motley.init() takes the model itself: it is in the place of DistributedDataParallel")
    if _Ranks.begun and os.environ.get("MOTLEY_CHECKPOINT_DIR"):
        raise Error("motley.init() is for one training: put its models into one module, or make a job of each (submit has arrays)")
    ranks = _Ranks(next(model.parameters()).device, timeout)
    return Job(ranks, model, optimizer, others, _Settings(global_batch, micro_batch, seed, save_every), flops_per_sample)


def steps_per_pass(dataset, global_batch=None):  # as Job.steps_per_pass, for what is made before init()
    return len(dataset) // (_number("MOTLEY_GLOBAL_BATCH") or global_batch)


class _Settings:  # what the launcher says, else what the script does
    def __init__(self, global_batch, micro_batch, seed, save_every):
        self.global_batch = _number("MOTLEY_GLOBAL_BATCH") or global_batch
        if not self.global_batch:
            raise Error("no global batch: set train.global_batch in the job file, or pass init(global_batch=)")
        self.micro_batch = min((size for size in (_number("MOTLEY_MICRO_BATCH"), micro_batch) if size), default=None)
        self.samples, self.seed, self.epoch = _number("MOTLEY_SAMPLES"), int(seed), _number("MOTLEY_ATTEMPT") or 1
        self.save_every, self.keep = _number("MOTLEY_SAVE_EVERY") or save_every, max(2, _number("MOTLEY_KEEP") or 3)
        self.measure, place = os.environ.get("MOTLEY_MEASURE"), os.environ.get("MOTLEY_CHECKPOINT_DIR")
        self.checkpoints = pathlib.Path(place) if place and not self.measure else None


class _Measurement:
    """Asked how long its micro-batches take ($MOTLEY_MEASURE names the file to tell it in), a script runs steps of one micro-batch
    each: of one sample, two, four and so on up to the global batch. What has been told stays told when one is too large."""
    _REPETITIONS, _LEAST_POINTS, _SECONDS = 3, 4, 30

    def __init__(self, settings, overhead, least):
        self._path, self._most, self._least = pathlib.Path(settings.measure), settings.micro_batch or settings.global_batch, least
        self._path.touch()  # that there will be something to tell
        self._overhead, self._begin = overhead, time.monotonic()
        self.sizes = collections.deque()  # of the batches to come
        self._points, self._updates, self._times, self._to_do = [], [], [], None

    def batches(self, length):
        """Lists of indices, from where an earlier loop was left on; ends when enough is known."""
        if self._to_do is None:
            most = min(length, self._most)
            self._to_do = sorted({min(self._least * 2**i, most) for i in range(most.bit_length() + 1)})
            if len(self._to_do) < self._LEAST_POINTS:
                self._to_do = list(range(min(self._least, most), most + 1))[:self._LEAST_POINTS]
        self.sizes.clear()
        for size in list(self._to_do):
            for _ in range(self._REPETITIONS + 1):
                self.sizes.append(size)
                yield list(range(size))
            if len(self._points) >= self._LEAST_POINTS and time.monotonic() - self._begin > self._SECONDS:
                return

    def took(self, size, computed, updated):  # seconds of forward and backward, and of all that follows; the first of a size warms up
        self._updates.append(updated)
        if self._to_do and size == self._to_do[0]:  # else it is known
            self._times.append(computed)
        if len(self._times) <= self._REPETITIONS:
            return
        del self._to_do[0]
        times, self._times = sorted(self._times[1:]), []
        median = times[len(times) // 2]
        self._points.append({"micro_batch": size, "seconds": median, "spread": (times[-1] - times[0]) / median, "repetitions": len(times)})
        update = sorted(self._updates)[len(self._updates) // 2] + self._overhead
        scratch = self._path.with_suffix(".tmp")
        scratch.write_text(json.dumps({"version": _MEASURED_VERSION, "points": self._points, "update_seconds": update}))
        scratch.rename(self._path)


class Job:
    """One rank of a training. `step`: global batches that have gone through backward(), this one included once at its boundary.
    `rank` of `ranks`: as of torch.distributed."""

    def __init__(self, ranks, model, optimizer, others, settings, flops_per_sample):
        self._ranks, self._settings, self._states = ranks, settings, [model, optimizer, *others]
        self.rank, self.ranks, self.step, self.loss, self.boundary = ranks.rank, ranks.count, 0, None, False
        self._process, self._stop, self._all_stop = os.getpid(), False, False
        self._loader = self._samples = self._random = self._length = self._rates = self._by_passes = None
        self._passes = self._pass = self._pass_step = self._saved = self._tried = self._unused = 0  # unused: steps without an update
        least, tensors = self._least_samples(model), {}
        self._deal = _Deal(ranks, settings, least)
        self._gradients = _Gradients(ranks, model, always_flat=bool(settings.measure))
        self._pacer = _Pacer(flops_per_sample or 6 * sum(p.numel() for p in model.parameters()))
        self._measurement = _Measurement(settings, self._pacer.overhead, least) if settings.measure else None
        self._reports = _Reports(ranks, self._pacer, settings, self._measurement)
        for stepped in (one for one in (optimizer, *others) if callable(getattr(one, "step", None))):
            self._step_at_boundaries(stepped)
        for one in self._states:  # rather now than after hours
            _packed(_state_of(one), type(one).__name__, None)
        found = ranks.from_first(lambda: self._newest(tensors))
        if found is not None:
            state, kinds = found
            tensors = tensors or {name: torch.empty(shape, dtype=dtype) for name, (dtype, shape) in kinds.items()}
            ranks.spread(tensors.values())
            self._go_on({key: _unpacked(value, tensors) for key, value in state.items()})
        ranks.spread([*model.parameters(), *model.buffers()])
        atexit.register(self._check_end)
        self._handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
        for number in self._handlers:
            signal.signal(number, self._ask_to_stop)

    def loader(self, dataset, **options):
        """An iterable over this rank's micro-batches; each `for` over it is a pass over the whole dataset. What does not fill
        a global batch is left out, other samples in each pass; len() are this rank's micro-batches, job.steps_per_pass the steps.
        options: of torch's DataLoader, without those that say which samples go together. A script that goes on skips the
        steps it has done, but not what it does between passes (but see passes()); workers' random numbers begin anew."""
        if isinstance(dataset, torch.utils.data.IterableDataset):
            raise Error("job.loader(): samples are dealt by their numbers, which an IterableDataset has not")
        for name in ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"):
            if name in options:
                raise Error(f"job.loader(): {name}= is not for the script to choose: samples are dealt by the plan")
        if self._loader is not None:
            raise Error("job.loader() is for the data that is trained on, once; read other data with a DataLoader")
        self._loader = _Loader(self, self._deal, dataset, options)
        self.steps_per_pass = self._deal.steps(len(dataset))
        return self._loader

    def passes(self, count):
        """Numbers of passes up to `count`: a script that goes on begins with the one that it was stopped in, and does nothing twice."""
        self._by_passes = True
        for self._passes in range(max(self._pass, self._passes), count):
            yield self._passes

    def backward(self, loss_sum, count, scaler=None):
        """Of the sum of the losses of `count` samples (or tokens, or whatever they are to be divided by). On a step's last
        micro-batch the parameters' gradients are afterwards those of the mean over the global batch, scaled by a GradScaler."""
        if self._samples is None:
            raise Error("job.backward() is for what job.loader() yields, once for each")
        rates = [float(group.get("lr") or 0) for group in getattr(self._states[1], "param_groups", [])]
        if self.step and self._rates not in (None, rates):  # the first may be what the optimizer was made with
            raise Error("a learning rate has changed within a step: give its scheduler to motley.init(), or step it at job.boundary")
        self._rates = rates
        self._gradients.look()
        (scaler.scale(loss_sum) if scaler else loss_sum).backward()
        self._pacer.charge(self._samples)
        self._samples, self._count = None, self._count + float(count)
        self._loss_sum = self._loss_sum + loss_sum.detach().double()
        if not self.boundary:
            self._gradients.keep()
            return
        place = self._pass * self.steps_per_pass + self._pass_step
        given, loss_sum, rate = self._gradients.complete(), float(self._loss_sum), sum(rates)  # a GPU is through with it then
        self._pacer.wait()
        self._reports.spent("compute")
        pieces, works = self._gradients.add_up()  # beside the numbers, as each round between hosts takes its time
        loss, total, stop, steps, rates, squares, unused, unused_squared, *given = self._ranks.sum(
            [loss_sum, self._count, float(self._stop), place, rate, rate**2, self._unused, self._unused**2, *given], works)
        if steps != place * self.ranks:
            raise Error("the ranks are at different steps: a loop over job.loader() is left only where job.boundary is true")
        if self.step and self.ranks * squares - rates**2 > 1e-9 * rates**2:
            raise Error("the ranks have different learning rates: go by job.step or what is summed over ranks, not by len(job.loader())")
        if self.ranks * unused_squared != unused**2:
            raise Error("the ranks have made different numbers of updates: call optimizer.step() after each backward(), or at job.boundary")
        if self._unused == 20 and self.step < 80 and self.rank == 0:  # more than a GradScaler leaves out
            print("motley: optimizer.step() was called after few of the steps, the gradients of the others are lost: call it after each "
                  "backward(); a larger train.global_batch accumulates more", file=sys.stderr, flush=True)
        if not total:
            raise Error("job.backward(): the counts of a global batch are all 0")
        self._gradients.divide(pieces, total, given)
        self.loss, self._all_stop, self._unused = loss / total, stop > 0, self._unused + 1
        self.step, self._pass_step = 1 if self._measurement else self.step + 1, self._pass_step + 1  # measured, none is the last
        self._reports.spent("wait")
        self._reports.step(self)

    def _begin_batch(self, samples, first, last):
        self._reports.spent("input", samples, first)
        if first:
            self._gradients.clear()
            self._loss_sum, self._count, self._rates = 0.0, 0.0, None
            self._pacer.begin(with_overhead=not self._measurement)
        self._samples, self.boundary = samples, last

    def _check_end(self):
        if self._rates and (self._samples is not None or not self.boundary) and not hasattr(sys, "last_value"):
            print(f"motley: the script has ended within step {self.step + 1}: loops end by job.step, at job.boundary", file=sys.stderr)
            os._exit(1)

    def _end_batch(self):
        if self._samples is not None:
            raise Error("job.backward() was not called for what job.loader() yielded")
        self._reports.spent("other" if self.boundary else "compute")
        if self.boundary:
            self._end_step()

    def _end_step(self):
        every = self._settings.save_every
        if self._all_stop or (every and self.step // every > self._tried // every):
            self._save()
        if self._all_stop:
            if self._settings.checkpoints is None and self.rank == 0:
                print("motley: stopped without a checkpoint: MOTLEY_CHECKPOINT_DIR is not set", file=sys.stderr, flush=True)
            self._ranks.leave()
            sys.exit(STOPPED)

    def _ask_to_stop(self, number, frame):
        if os.getpid() != self._process:  # a worker of the loader
            return os._exit(128 + number) if number == signal.SIGTERM else None
        self._stop = True
        if callable(self._handlers[number]):
            self._handlers[number](number, frame)

    def _least_samples(self, model):  # of a micro-batch
        norms = [part for part in model.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)]
        if torch.nn.SyncBatchNorm in map(type, norms):
            raise Error("SyncBatchNorm wants as many micro-batches of every rank, which unlike devices do not have: use BatchNorm")
        if norms and self.rank == 0 and self.ranks > 1:
            print("motley: BatchNorm goes by micro-batches: what is learnt depends on how they are dealt", file=sys.stderr, flush=True)
        return 2 if norms else 1

    def _check_parameters(self):
        mine = {id(parameter) for parameter in self._gradients.all}
        groups = [group for other in self._states[1:] for group in getattr(other, "param_groups", [])]
        if any(id(one) not in mine for group in groups for one in group["params"]):
            raise Error("an optimizer has parameters that the model has not, or had not at motley.init(): nobody sums their gradients")

    def _step_at_boundaries(self, stepped):
        step = stepped.step

        @functools.wraps(step)
        def at_boundary(_, *arguments, **options):
            if self.boundary and not (self._measurement and hasattr(stepped, "last_epoch")):  # schedulers may end, measuring goes on
                self._unused -= stepped is self._states[1]
                result = step(*arguments, **options)
                self._reports.spent("update" if isinstance(stepped, torch.optim.Optimizer) else "other")
                return result
        if isinstance(stepped, torch.optim.Optimizer):
            stepped.step = at_boundary.__get__(stepped)  # as schedulers expect to find it
        else:  # whose state_dict() may be all that they have, and is loaded where this is not known
            kind = type(stepped)
            plain = lambda one, _: (object.__new__, (kind,), one.__dict__)  # noqa: E731
            stepped.__class__ = type(kind.__name__, (kind,), {"step": at_boundary, "__reduce_ex__": plain})

    def _newest(self, tensors):
        """Of the newest that is whole what _read_state() returns, or None."""
        place, every = self._settings.checkpoints, self._settings.save_every
        if path := place and _checkpoint_program("newest", place):
            return _read_state(pathlib.Path(path) / _SHARD, tensors)
        if place and every and (_number("MOTLEY_TRAINED_STEPS") or 0) > every:
            raise Error(f"the run was to save checkpoints, but none is in {place} on {socket.gethostname()}: if rank 0 was elsewhere, "
                        "copy them here or share checkpoint.dir between hosts; else start anew (--fresh)")

    def _go_on(self, state):
        saved = [state["weight"], state["optimizer"], *state["other"]]
        if len(saved) != len(self._states):
            raise Error(f"the checkpoint has {len(saved)} states (model, optimizer and others), the script {len(self._states)}")
        if state["seed"] != self._settings.seed or state["global_batch"] != self._settings.global_batch:
            raise Error(f"the checkpoint is of seed {state['seed']} and a global batch of {state['global_batch']}, not of "
                        f"{self._settings.seed} and {self._settings.global_batch}: go on with those, or start anew (--fresh)")
        for mine, theirs in zip(self._states, saved):
            mine.load_state_dict(theirs)
        self._saved = self._tried = self.step = state["step"]
        self.loss, self._pass, self._pass_step = state["loss"], state["pass"], state["pass_step"]
        self._passes = self._pass if state["by_passes"] else 0  # no loops before it
        self._length, self._random = state["length"], state["random"]
        if self.rank == 0:
            print(f"motley: going on after step {self.step}", file=sys.stderr, flush=True)

    def _restore_random(self):  # as the loop goes on, whatever the script has drawn until then
        for name, (_, set_state, seed) in _generators(self._ranks.on_gpu).items() if self._random else ():
            if len(self._random) != self.ranks:  # no rank's own state fits; only that ranks differ, and do so again
                seed(hash((self._settings.seed, self.step, self.rank)) % 2**63)
            elif name in self._random[self.rank]:
                set_state(self._random[self.rank][name])
        self._random = None

    def _save(self):
        if self._settings.checkpoints is None or self.step == self._saved:
            return
        self._tried = self.step
        everyones = self._ranks.gather({name: read() for name, (read, *_) in _generators(self._ranks.on_gpu).items()})
        failure = None
        if self.rank == 0:
            model, optimizer, *others = [_state_of(one) for one in self._states]
            state = {"step": self.step, "loss": self.loss, "pass": self._pass, "pass_step": self._pass_step, "random": everyones,
                     "by_passes": bool(self._by_passes), "seed": self._settings.seed, "global_batch": self._settings.global_batch,
                     "length": self._loader.length, "weight": model, "optimizer": optimizer, "other": others}
            try:
                for name, parameter in self._states[0].named_parameters():
                    if not torch.isfinite(parameter).all():
                        raise Error(f"{name} holds values that are not finite, which no training mends: older checkpoints stay")
                _write_checkpoint(state, self._settings)
            except Exception as error:  # whatever it is, the others wait for a word
                failure = f"cannot save step {self.step}: {error}"
                print(f"motley: {failure}", file=sys.stderr, flush=True)
        failure = self._ranks.from_first(lambda: failure)
        if failure and self._all_stop:
            raise Error(failure)
        self._saved = self._saved if failure else self.step
        self._reports.spent("other")


def _generators(on_gpu):
    """What a script may draw random numbers from: how to read its state, to set it, and to seed it."""
    found = {"torch": (torch.get_rng_state, torch.set_rng_state, torch.manual_seed),
             "python": (random.getstate, random.setstate, random.seed)}
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"].random
        found["numpy"] = (lambda: [part.tolist() if hasattr(part, "tolist") else part for part in numpy.get_state()],
                          numpy.set_state, lambda seed: numpy.seed(seed % 2**32))
    if on_gpu:
        found["device"] = (torch.cuda.get_rng_state, torch.cuda.set_rng_state, torch.cuda.manual_seed)
    return found


def _state_of(one):
    """Schedulers list all that they have, also functions and the step() that we have given them."""
    def plain(value):
        if isinstance(value, dict) and not isinstance(value, collections.Counter):
            return {key: plain(part) for key, part in value.items() if not callable(part) and not isinstance(part, weakref.ref)}
        return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
    return plain(one.state_dict())


class _Deal:  # who gets which samples of a global batch
    def __init__(self, ranks, settings, least):
        self.global_batch, self.seed = settings.global_batch, settings.seed
        equal = self.global_batch // ranks.count + (ranks.rank < self.global_batch % ranks.count)
        mine = equal if settings.samples is None else settings.samples
        all_ranks = ranks.gather(mine)
        if sum(all_ranks) != self.global_batch or min(all_ranks) < 1:
            raise Error(f"the ranks' samples {all_ranks} do not make up a global batch of {self.global_batch}, at least one for each")
        self.first, self.samples = sum(all_ranks[:ranks.rank]), mine
        self.micro_batch = min(settings.micro_batch or mine, mine)
        self.batches = min(-(-mine // self.micro_batch), max(1, mine // least))  # of a step

    def steps(self, length):
        if length < self.global_batch:
            raise Error(f"the dataset has {length} samples, fewer than a global batch of {self.global_batch}")
        return length // self.global_batch

    def indices(self, length, number, from_step):  # the micro-batches of pass `number`
        random_numbers = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        order = torch.randperm(length, generator=random_numbers).tolist()
        for step in range(from_step, self.steps(length)):
            first = step * self.global_batch + self.first
            for i in range(self.batches):  # as equal as they can be: none is of a single sample without need
                yield order[first + self.samples * i // self.batches:first + self.samples * (i + 1) // self.batches]


class _Loader:
    def __init__(self, job, deal, dataset, options):
        self._job, self._deal, self._dataset, self._options, self.length = job, deal, dataset, options, len(dataset)
        lengths = job._ranks.gather(self.length)
        if set(lengths) != {self.length}:
            raise Error(f"the ranks' datasets have {lengths} samples: each wants all of the data, samples are dealt by the plan")
        if job._length not in (None, self.length):
            raise Error(f"the checkpoint is of {job._length} samples of data, not {self.length}: go on with those, or start anew (--fresh)")

    def __len__(self):
        return self._deal.steps(self.length) * self._deal.batches

    def _measured(self):
        sizes, batches = self._job._measurement.sizes, self._job._measurement.batches(self.length)
        for batch in torch.utils.data.DataLoader(self._dataset, batch_sampler=batches, **self._options):
            self._job._begin_batch(sizes.popleft(), True, True)
            yield batch
            self._job._end_batch()
        sys.exit(0)

    def __iter__(self):
        self._job._check_parameters()
        if self._job._measurement:
            yield from self._measured()
        job, number = self._job, self._job._passes
        if job._samples is not None or (job._rates and not job.boundary):
            raise Error("the loop over job.loader() was left before job.backward(), or where job.boundary is false")
        job._passes += 1
        if number < job._pass:
            return
        if number != job._pass:
            job._pass, job._pass_step = number, 0
            job._end_step()  # what was due where the last loop was left
        batches = list(self._deal.indices(self.length, number, job._pass_step))
        job.boundary = not batches  # of a pass that was saved at its end, what the script does after it is still to be done
        job._restore_random()
        job._reports.training_after(job.step)
        # Its own numbers: it draws some for its workers, and not as often in a run that goes on.
        self._options.setdefault("generator", torch.Generator()).manual_seed(number * job.ranks + job.rank)
        loader = torch.utils.data.DataLoader(self._dataset, batch_sampler=batches, **self._options)
        for i, batch in enumerate(loader):
            place = i % self._deal.batches
            job._begin_batch(len(batches[i]), place == 0, place == self._deal.batches - 1)
            try:
                yield batch
            except GeneratorExit:  # left, before a step's first backward() at a boundary as well
                if place == 0 and job._samples is not None:
                    job._samples, job.boundary = None, True
                    job._passes -= i == 0  # it was only looked at
                raise
            job._end_batch()
        job._ranks.spread(job._states[0].buffers())  # so that all find the same when they look how well it does


class _Ranks:  # torch.distributed as far as it is needed
    begun = False

    def __init__(self, device, timeout):
        _Ranks.begun, self.on_gpu = True, device.type == "cuda"
        if self.on_gpu:
            torch.cuda.set_device(device)
        self._own = not dist.is_initialized()
        if self._own:  # for a rank alone, too: scripts ask it who they are
            alone = {} if (_number("WORLD_SIZE") or 1) > 1 else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
            dist.init_process_group("gloo", timeout=timeout, **alone)
        self.count, self.rank = dist.get_world_size(), dist.get_rank()
        self._of_host = self._of_devices = dist.new_group(backend="gloo", timeout=timeout)
        if set(self.gather(device.type)) == {"cuda"} and dist.is_nccl_available():
            self._of_devices = dist.new_group(backend="nccl", timeout=timeout)
        atexit.register(self._end)

    def sum(self, numbers, beside):  # when what is under way beside it is done, too
        numbers = torch.tensor(numbers, dtype=torch.float64)
        self._with_others(dist.all_reduce, numbers, group=self._of_host)
        for work in beside:
            self._with_others(work.wait)
        return numbers.tolist()

    def _with_others(self, collective, *arguments, **options):
        try:
            collective(*arguments, **options)
        except RuntimeError as error:
            raise Error("another rank does not answer: it has failed (see its log), or left its loop at another job.step") from error

    def add_up(self, tensor):  # in place, where it lies; returns what to wait for
        return dist.all_reduce(tensor, async_op=True, group=self._of_devices if tensor.is_cuda else self._of_host)

    def gather(self, value):
        values = [None] * self.count
        self._with_others(dist.all_gather_object, values, value, group=self._of_host)
        return values

    def from_first(self, make):  # what rank 0 makes, or raises, for all
        made = [None, None]
        if self.rank == 0:
            try:
                made[0] = make()
            except (Error, OSError, ValueError) as error:
                made[1] = str(error)
        self._with_others(dist.broadcast_object_list, made, src=0, group=self._of_host)
        if made[1] is not None:
            raise Error(made[1])
        return made[0]

    def spread(self, tensors):  # rank 0's in the place of every rank's
        for tensor in (one for one in tensors if self.count > 1 and one.numel()):
            flat = tensor.detach().reshape(-1).contiguous()
            dist.broadcast(flat.view(torch.uint8), src=0, group=self._of_devices if tensor.is_cuda else self._of_host)  # bytes
            if flat.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(flat.view_as(tensor))

    def _end(self):
        if hasattr(sys, "last_value"):  # that it has failed others should see by its end, not before; torch's threads may abort then
            sys.stdout.flush()
            os._exit(1)
        self.leave()

    def leave(self):  # before the interpreter takes its threads away under it
        if self._own and dist.is_initialized():
            self._of_host = self._of_devices = None
            dist.destroy_process_group()


class _Reports:
    """Of each step what this rank's time went on, to `motley run` where it listens ($MOTLEY_CONTROL; core/FORMATS.md, "wire").
    Nothing depends on it and nothing waits for it: what is not taken in is left out."""
    _HELLO, _PHASE, _STEP, _MOST_BYTES = 1, 2, 3, 1 << 20

    def __init__(self, ranks, pacer, settings, measurement):
        self._ranks, self._pacer, self._epoch, self._measurement = ranks, pacer, settings.epoch, measurement
        self._begin(time.monotonic())
        self._socket, self._unsent, self._usual, control = None, b"", 0.0, os.environ.get("MOTLEY_CONTROL")
        if not control or settings.measure:
            return
        try:
            key = pathlib.Path(os.environ["MOTLEY_KEY_FILE"]).read_text()
            self._socket = self._connected(*control.split(":", 1))
            self._send(self._HELLO, {"host": socket.gethostname(), "pid": os.getpid(), "key": key})
        except (KeyError, OSError, ValueError, TypeError) as error:
            print(f"motley: steps are not reported: {error!r}", file=sys.stderr, flush=True)

    def spent(self, what, samples=0, first=False):  # what the time since the last call went on; `other` is no part of an ordinary step
        if what == "input" and self._ranks.on_gpu and not torch.cuda.current_stream().query():
            what = "compute"  # samples came while a GPU still was at the last ones
        if self._ranks.on_gpu and (what == "wait" or self._measurement):
            torch.cuda.synchronize()  # sums that it was only told of
        now = time.monotonic()
        self._seconds[what] += now - self._since
        self._since, self._samples = now, samples if first else self._samples + samples

    def training_after(self, step):
        self.spent("other")
        self._send(self._PHASE, {"phase": "training", "detail": "", "step": step})

    def step(self, job):  # from the end of one reduction to that of the next: an update counts in the step that follows it
        whole, other = sum(self._seconds.values()), self._seconds.pop("other")
        if self._measurement:
            self._measurement.took(self._samples, self._seconds["compute"], self._seconds["wait"] + self._seconds["update"] + other)
        special, self._usual = other - 2 * self._usual > whole / 20, other  # what each step does is part of a step
        self._seconds["update"] += 0 if special else other
        report = {f"{what}_seconds": seconds for what, seconds in self._seconds.items()}
        memory = torch.cuda.max_memory_allocated() if self._ranks.on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        group = next(iter(getattr(job._states[1], "param_groups", [])), {})
        report.update(step=job.step, step_seconds=whole, samples=self._samples, special=special, memory_bytes=memory,
                      overruns=self._pacer.overruns, sections=self._pacer.sections, learning_rate=_finite(group.get("lr")) or 0.0,
                      loss=_finite(job.loss), loss_bits=struct.pack(">d", job.loss).hex(), gradient_norm=None)
        self._send(self._STEP, report)
        self._begin(self._since)

    def _begin(self, now):
        self._since, self._samples = now, 0
        self._seconds = dict.fromkeys(("input", "compute", "wait", "update", "other"), 0.0)

    def _connected(self, kind, address):
        host, _, port = address.rpartition(":")
        connection = socket.create_connection((host, int(port)), 5) if kind == "tcp" else socket.socket(socket.AF_UNIX)
        if kind == "unix":
            connection.connect(address)
        connection.setblocking(False)
        return connection

    def _send(self, kind, payload):
        if self._socket is None:
            return
        if len(self._unsent) < self._MOST_BYTES:
            text = json.dumps({"rank": self._ranks.rank, **payload}).encode()
            self._unsent += struct.pack("<4sHHII", b"MTLY", 1, kind, self._epoch, len(text)) + text
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent):]
        except BlockingIOError:
            pass
        except OSError:
            self._socket = None


class _Gradients:
    """Sums of a step's gradients, each dtype and device in one flat tensor. Between boundaries parameters have none: what looks
    at them there (clipping, an optimizer) finds nothing to do. A parameter that no rank has used has none at a boundary, either."""

    def __init__(self, ranks, model, always_flat):
        self._ranks, self._always_flat = ranks, always_flat
        self.all, self._trained, self._given = list(model.parameters()), None, []
        self.look()

    def look(self):
        """At what is trained, before each backward pass: scripts freeze and unfreeze."""
        trained = [parameter.requires_grad for parameter in self.all]
        if trained != self._trained:
            if any(self._given):
                raise Error("parameters were frozen or unfrozen within a step")
            self._parameters = [parameter for parameter in self.all if parameter.requires_grad]
            self._flat, self._places, self._trained, self._given = {}, [], trained, [False] * len(self._parameters)

    def clear(self):
        self._given = [False] * len(self._parameters)
        for parameter in self._parameters:
            parameter.grad = None

    def keep(self):  # what backward has left in the parameters is added to the sums
        if not self._places:
            self._make_places()
        for i, (parameter, place) in enumerate(zip(self._parameters, self._places)):
            if parameter.grad is None:
                continue
            (place.add_ if self._given[i] else place.copy_)(parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad)
            self._given[i], parameter.grad = True, None

    def complete(self):  # a step's, to be summed; returns of each parameter whether this rank has a gradient for it
        given = [float(given or parameter.grad is not None) for given, parameter in zip(self._given, self._parameters)]
        if self._ranks.count > 1 or self._always_flat or any(self._given):
            self.keep()
            for place in (place for place, mine in zip(self._places, self._given) if not mine):
                place.zero_()
        return given

    def add_up(self):  # returns what is summed and what to wait for: nothing where a rank alone left them in its parameters
        flats = self._flat.values() if self._ranks.count > 1 or any(self._given) else ()
        pieces = [piece for flat in flats for piece in flat.split(_BUCKET_ELEMENTS)]
        return pieces, [self._ranks.add_up(piece) for piece in pieces]

    def divide(self, pieces, count, given):  # given: by how many ranks, of each parameter
        for tensor in pieces or [one.grad for one in self._parameters if one.grad is not None]:
            tensor.div_(count)
        for parameter, place, of_ranks in zip(self._parameters, self._places if pieces else (), given):
            parameter.grad = place.to(parameter.dtype) if of_ranks else None

    def _make_places(self):
        sizes, begins = collections.Counter(), []
        for parameter in self._parameters:
            group = (_SUMMED_IN.get(parameter.dtype, parameter.dtype), parameter.device)
            begins.append((group, sizes[group]))
            sizes[group] += parameter.numel()
        self._flat = {group: torch.empty(size, dtype=group[0], device=group[1]) for group, size in sizes.items()}
        self._places = [self._flat[group][begin:begin + parameter.numel()].view_as(parameter)
                        for parameter, (group, begin) in zip(self._parameters, begins)]


class _Pacer:  # an emulated device waits until its step would be over: overhead + FLOPs / (flops * speed * b / (b + half_batch))
    def __init__(self, flops_per_sample):
        self._pace = json.loads(os.environ.get("MOTLEY_PACE", "null"))
        self.overhead = self._pace["overhead_seconds"] if self._pace else 0.0  # seconds of a step, whatever its micro-batches
        self._flops_per_sample = flops_per_sample
        self.sections = self.overruns = 0  # steps, and those that took longer than they stand for

    def begin(self, with_overhead=True):
        self._until = time.monotonic() + (self.overhead if with_overhead else 0)

    def charge(self, samples):
        if self._pace:
            rate = self._pace["flops"] * self._pace["speed"] * samples / (samples + self._pace["half_batch"])
            self._until += samples * self._flops_per_sample / rate

    def wait(self):
        if self._pace:
            left = self._until - time.monotonic()
            self.sections += 1
            self.overruns += left < 0
            time.sleep(max(0.0, left))


def _write_checkpoint(state, settings):
    """A directory `step-N.eATTEMPT`, of rank 0. motley-worker writes its manifest."""
    for left in settings.checkpoints.glob(".tmp-step-*"):  # by one who was killed
        shutil.rmtree(left, ignore_errors=True)
    scratch = settings.checkpoints / f".tmp-step-{state['step']:08d}.e{settings.epoch}"
    scratch.mkdir(parents=True)
    try:
        _write_state(scratch / _SHARD, state)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    _checkpoint_program("commit", "--job", os.environ.get("MOTLEY_JOB", "script"), "--seed", settings.seed % 2**64, "--next-sample",
                        state["step"] * settings.global_batch, "--arithmetic", f"torch {torch.__version__}", "--keep", settings.keep,
                        scratch)


def _checkpoint_program(*arguments):
    """What `motley-worker script-checkpoint` prints."""
    program = os.environ.get("MOTLEY_WORKER") or shutil.which("motley-worker")
    if program is None:
        raise Error("checkpoints need motley-worker: put it on PATH, or unset MOTLEY_CHECKPOINT_DIR")
    # Its own session: what stops the script must not stop a checkpoint half-way.
    ended = subprocess.run([program, "script-checkpoint", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, errors="replace", start_new_session=True)
    print(ended.stderr, file=sys.stderr, end="", flush=True)
    if ended.returncode:
        raise Error(ended.stderr.strip().rpartition("motley-worker: ")[2] or f"{program} ended with {ended.returncode}")
    return ended.stdout.strip()


def _packed(value, name, tensors):
    """JSON of nested state; tensors are named instead and go into `tensors` (None: it is only seen whether that can be)."""
    if isinstance(value, torch.Tensor):
        if value.dtype not in _DTYPES:
            raise ValueError(f"a checkpoint cannot keep {name}: {value.dtype}")
        if value.numel() == 0:
            return {"empty": [_DTYPES[value.dtype], list(value.shape)]}
        if tensors is not None:
            name = name if name not in tensors and _NAME.fullmatch(name) else f"tensor/{len(tensors)}"
            tensors[name] = value.detach().cpu().contiguous()
        return {"tensor": name}
    if isinstance(value, dict):
        if not all(key is None or isinstance(key, (bool, int, float, str)) for key in value):
            raise ValueError(f"a checkpoint cannot keep {name}: its keys are not all numbers and texts")
        kind = "counter" if isinstance(value, collections.Counter) else "dict"  # schedulers ask it for more than a dictionary
        return {kind: [[key, _packed(one, f"{name}/{key}", tensors)] for key, one in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"tuple" if isinstance(value, tuple) else "list": [_packed(one, f"{name}/{i}", tensors) for i, one in enumerate(value)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"a checkpoint cannot keep {name}: a {type(value).__name__}")


def _unpacked(value, tensors):
    if not isinstance(value, dict):
        return value
    (kind, content), = value.items()
    makers = {"tensor": lambda: tensors[content], "empty": lambda: torch.empty(content[1], dtype=_DTYPES_BY_NAME[content[0]]),
              "dict": lambda: {key: _unpacked(one, tensors) for key, one in content}, "counter": lambda: collections.Counter(dict(content)),
              "list": lambda: [_unpacked(one, tensors) for one in content], "tuple": lambda: tuple(makers["list"]())}
    return makers[kind]()


def _write_state(path, state):  # a durable safetensors file: tensors by themselves, all else as the bytes of a JSON text
    tensors = {}
    packed = {key: _packed(value, key, tensors) for key, value in state.items()}
    text = json.dumps({"version": _STATE_VERSION, "state": packed}).encode()
    tensors[_REST] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())  # so that each lies aligned
    for name, tensor in ordered:
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            file.write((ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr()))
        file.flush()
        os.fsync(file.fileno())


def _read_state(path, tensors):
    """The state with its tensors left in the file until they are used, by name, in `tensors`; and the types and shapes of those."""
    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    first, last = header.pop(_REST)["data_offsets"]
    document = json.loads(content[begin + first:begin + last])
    if document["version"] != _STATE_VERSION:
        raise Error(f"{path} is of version {document['version']}, this reads {_STATE_VERSION}")
    for name in header.keys() - {"__metadata__"}:
        dtype, first, last = _DTYPES_BY_NAME[header[name]["dtype"]], *header[name]["data_offsets"]
        flat = torch.frombuffer(content, dtype=torch.uint8, count=last - first, offset=begin + first)
        tensors[name] = flat.view(dtype).reshape(header[name]["shape"])
    return document["state"], {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}


def _finite(number):
    return float(number) if isinstance(number, (int, float, torch.Tensor)) and math.isfinite(number) else None


def _number(name):
    text = os.environ.get(name, "")
    if text and not text.isdecimal():
        raise Error(f"{name} is no number: {text!r}")
    return int(text) if text else None
