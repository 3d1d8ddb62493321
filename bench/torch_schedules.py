#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Schedules as the real torch.distributed.pipelining makes them.

  torch_schedules.py time  NAME P V M     seconds to generate, lower and print
  torch_schedules.py rows  N SEED         N random rows of the golden table

The table's columns are described in tests/goldens/README.md.
"""
import hashlib
import logging
import random
import sys
import time

import torch.distributed.pipelining.schedules as ts
from torch.distributed.pipelining.stage import _PipelineStageBase

logging.disable(logging.WARNING)


class Stage(_PipelineStageBase):
    """As much of a stage as a schedule looks at."""

    def __init__(self, ranks, stages, index):
        self.num_stages = stages
        self.group_size = ranks
        self.group_rank = 0
        self.group = None
        self.stage_index = index
        self.submod = None
        self.has_backward = True
        self.stage_index_to_group_rank = {}

    def _create_grad_recv_info(self, *args, **kwargs):
        return None

    def _prepare_forward_infra(self, *args, **kwargs):
        pass

    def _prepare_backward_infra(self, *args, **kwargs):
        pass


def single_order(name, p, m):
    """GPipe's and 1F1B's order; PyTorch 2.11 numbers the last rank's wrongly
    and adds REDUCE_GRAD, so both are put right."""
    order = {}
    for r in range(p):
        warm = p - 1 - r
        f = [ts._Action(r, ts.F, i) for i in range(m)]
        b = [ts._Action(r, ts.B, i) for i in range(m)]
        if name == "GPipe":
            order[r] = f + b
        else:
            row, k = f[:warm], 0
            for i in range(warm, m):
                row += [f[i], b[k]]
                k += 1
            order[r] = row + b[k:]
    return order


def construct(name, p, v, m):
    """The schedule object; it generates and lowers as it is made."""
    cls = getattr(ts, "Schedule" + name)
    return cls([Stage(p, p * v, i * p) for i in range(v)], m)


def make(name, p, v, m):
    """(compute or None, order, stage to rank); ValueError where refused."""
    if name in ("GPipe", "1F1B"):
        if v != 1 or (name == "1F1B" and m < p):
            raise ValueError
        return None, single_order(name, p, m), {s: s for s in range(p)}
    made = construct(name, p, v, m)
    compute = {r: made.pipeline_order[r] for r in range(p)}
    order = {r: [a for a in compute[r] if a is not None] for r in compute}
    return compute, order, made.stage_index_to_group_rank


def csv(rows):
    return "".join(
        ",".join("" if a is None else str(a) for a in rows[r]) + "\n"
        for r in sorted(rows))


def digest(rows):
    return hashlib.sha256(csv(rows).encode()).hexdigest()[:16]


def sort_reshards(row):
    """PyTorch iterates a set there; the table has them by stage."""
    out, run = [], []
    for a in row:
        if a.computation_type == ts.RESHARD:
            run.append(a)
            continue
        out += sorted(run, key=lambda a: a.stage_index) + [a]
        run = []
    return out + sorted(run, key=lambda a: a.stage_index)


def lower(order, to_rank, stages, m, whole):
    rows = {r: list(order[r]) for r in order}
    if whole:
        for r in rows:
            rows[r] = ts._add_unshard_reshard(rows[r])
            rows[r] = ts._add_reduce_grad(sort_reshards(rows[r]), m)
    return ts._add_send_recv(rows, lambda s: to_rank[s], stages)


def row(name, p, v, m):
    head = [name, p, v, m]
    try:
        compute, order, to_rank = make(name, p, v, m)
    except ValueError:
        return head + ["refused"] + ["-"] * 5
    stages = p * v
    comms = lower(order, to_rank, stages, m, False)
    steps = "-"
    if name != "DualPipeV":
        run = ts._simulate_comms_compute(
            {r: list(comms[r]) for r in comms}, lambda s: to_rank[s], stages)
        steps = max(len(run[r]) for r in run)
    return head + ["ok", digest(compute) if compute else "-", digest(order),
                   digest(lower(order, to_rank, stages, m, True)),
                   digest(comms), steps]


def print_rows(count, seed):
    random.seed(seed)
    names = ["GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B",
             "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"]
    print("schedule\tpp\tv\tmb\tstatus\tcompute\torder\tlowered\tcomms\t"
          "sim_steps")
    for i in range(count):
        name = names[i % len(names)]
        p = random.randint(1, 14)
        v = {"GPipe": 1, "1F1B": 1, "ZBVZeroBubble": 2, "DualPipeV": 2}.get(
            name, random.randint(1, 7))
        m = random.randint(1, 70)
        if name.startswith("Interleaved") and random.random() < 0.8:
            m = p * random.randint(1, 8)
        print("\t".join(map(str, row(name, p, v, m))))


def print_time(name, p, v, m):
    start = time.perf_counter()
    text = csv(construct(name, p, v, m).pipeline_order_with_comms)
    print(f"{time.perf_counter() - start:.3f} {len(text)}")


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "rows":
        print_rows(int(rest[0]), int(rest[1]))
    else:
        print_time(rest[0], *map(int, rest[1:]))
