#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Schedules as the real torch.distributed.pipelining makes them.

  torch_schedules.py time  NAME P V M       seconds to generate, lower and print
  torch_schedules.py rows  N SEED           N random rows of the golden table of
                                            the version that is importable
  torch_schedules.py orders SLUICE N SEED   N random orders through the passes of
                                            2.15 and through `sluice lower`: the
                                            text must be the same

The tables' columns are described in tests/goldens/README.md.
"""
import hashlib
import json
import logging
import random
import subprocess
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


NEW = hasattr(ts, "_add_wait_send")  # 2.15's passes


def lower(order, to_rank, stages, m, whole):
    """As PyTorch up to 2.14; with `whole`, sharding and reduction too."""
    rows = {r: list(order[r]) for r in order}
    if whole:
        for r in rows:
            rows[r] = ts._add_unshard_reshard(rows[r])
            rows[r] = ts._add_reduce_grad(sort_reshards(rows[r]), m)
    return ts._add_send_recv(rows, lambda s: to_rank[s], stages)


def lower_new(order, to_rank, stages, m, window=3, ahead=None, late=False,
              defer=False, budget=None):
    """As PyTorch from 2.15 on; `ahead` is a list by rank."""
    rows = {}
    for r in order:
        rows[r] = ts._add_unshard_reshard(
            list(order[r]), max_active_stages=window,
            unshard_lookahead=ahead[r] if ahead else window)
        rows[r] = ts._add_reduce_grad(
            sort_reshards(rows[r]), m, defer_reduce_grad_wait=late)
    rank_of = lambda s: to_rank[s]
    rows = ts._add_wait_send(ts._add_send_recv(rows, rank_of, stages))
    if defer:
        rows = ts._defer_recv_ops(rows, rank_of)
    if budget is not None:
        rows = ts._add_wait_send_budget(rows, rank_of, budget)
    return rows


def row_old(name, p, v, m):
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


def row_new(name, p, v, m):
    try:
        _, order, to_rank = make(name, p, v, m)
    except ValueError:
        return None
    made = lambda **options: digest(
        lower_new(order, to_rank, p * v, m, **options))
    auto = [min(r + 2, 3) for r in range(p)]
    return [name, p, v, m, digest(order), made(), made(defer=True),
            made(budget=1), made(budget=4), made(ahead=auto), made(late=True)]


def print_rows(count, seed):
    random.seed(seed)
    names = ["LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble",
             "ZBVZeroBubble", "DualPipeV"]
    if NEW:
        print("schedule\tpp\tv\tmb\torder\tlowered\tdeferred\tsends1\t"
              "sends4\tauto\tlatereduce")
    else:
        names = ["GPipe", "1F1B"] + names
        print("schedule\tpp\tv\tmb\tstatus\tcompute\torder\tlowered\t"
              "comms\tsim_steps")
    for i in range(count):
        name = names[i % len(names)]
        p = random.randint(1, 14)
        v = {"GPipe": 1, "1F1B": 1, "ZBVZeroBubble": 2, "DualPipeV": 2}.get(
            name, random.randint(1, 7))
        m = random.randint(1, 70)
        if name.startswith("Interleaved") and random.random() < 0.8:
            m = p * random.randint(1, 8)
        if NEW:
            # Its send budget takes minutes for more.
            m = min(m, max(1, 240 // (p * v)))
        made = row_new(name, p, v, m) if NEW else row_old(name, p, v, m)
        if made:
            print("\t".join(map(str, made)), flush=True)


# ---------------------------------------------------------- random orders --

def random_order(overlaps):
    """An order that can run: stages anywhere, each microbatch in B or in I and
    W, ready actions drawn at random, some as overlapped pairs."""
    ranks = random.randint(1, 5)
    stages = ranks + random.randint(0, 6)
    m = random.randint(1, 6)
    home = [s if s < ranks else random.randrange(ranks) for s in range(stages)]
    random.shuffle(home)
    split = {(s, b): random.random() < 0.5
             for s in range(stages) for b in range(m)}
    rows = {r: [] for r in range(ranks)}
    f, back, w = set(), set(), set()

    def ready():
        out = []
        for s in range(stages):
            for b in range(m):
                if (s, b) not in f:
                    if s == 0 or (s - 1, b) in f:
                        out.append(("F", s, b))
                elif (s, b) not in back:
                    if s == stages - 1 or (s + 1, b) in back:
                        out.append(("B", s, b))
                elif split[s, b] and (s, b) not in w:
                    out.append(("W", s, b))
        return out

    def action(kind, s, b):
        if kind == "B" and split[s, b]:
            kind = "I"
        return ts._Action(s, getattr(ts, kind), b)

    def note(kind, s, b):
        {"F": f, "B": back, "W": w}[kind].add((s, b))

    while True:
        drawn = ready()
        if not drawn:
            return rows, dict(enumerate(home)), stages, m
        kind, s, b = random.choice(drawn)
        r = home[s]
        pairs = [one for one in drawn if one[0] == "B" and home[one[1]] == r]
        if overlaps and kind == "F" and pairs and random.random() < 0.5:
            other = random.choice(pairs)
            rows[r].append(ts._Action(
                -1, ts.OVERLAP_F_B, None,
                (action(kind, s, b), action(*other))))
            note(*other)
        else:
            rows[r].append(action(kind, s, b))
        note(kind, s, b)


def slots_of(rows, to_rank, m):
    """Activation slots by rank, as 2.15 counts them."""
    made = object.__new__(ts._PipelineScheduleRuntime)
    made.pipeline_order_with_comms = rows
    made._n_microbatches = m
    return [ts.analyze_pipeline_activation_liveness(
        made, pp_rank=r, granularity="stage_microbatch",
        stage_indices=[s for s in to_rank if to_rank[s] == r]).num_slots
        for r in sorted(rows)]


def sluice(program, words, text):
    done = subprocess.run([program] + words, input=text, text=True,
                          capture_output=True, timeout=60)
    return done.returncode, done.stdout


def check_order(program):
    """One random order under random options; what differs, or None."""
    overlaps = random.random() < 0.3
    order, to_rank, stages, m = random_order(overlaps)
    ranks = len(order)
    window = random.randint(2 if overlaps else 1, 5)
    ahead = random.choice([None, "auto", "list"])
    late, defer = random.random() < 0.5, random.random() < 0.5
    budget = random.choice([None, 0, 1, 2, 3, 4, 6])
    words = ["lower", "--unshard-window", str(window)]
    numbers = None
    if ahead == "auto":
        numbers = [min(r + 2, window) for r in range(ranks)]
        words += ["--unshard-lookahead", "auto"]
    elif ahead == "list":
        numbers = [random.randint(1, window) for _ in range(ranks)]
        words += ["--unshard-lookahead", ",".join(map(str, numbers))]
    words += ["--reduce-wait", "late"] if late else []
    words += ["--recv", "defer"] if defer else []
    words += ["--send-budget", str(budget)] if budget is not None else []
    status, found = sluice(program, words, csv(order))
    try:
        made = lower_new(order, to_rank, stages, m, window, numbers, late,
                         defer, budget)
    except ValueError:
        made = None
    what = " ".join(words) + "\n" + csv(order)
    if made is None:
        # 2.15 refuses 0 wherever there is a send; here it means waiting at once.
        return what if status == 0 and budget != 0 else None
    if status != 0 or found != csv(made):
        return what + "2.15:\n" + csv(made) + "sluice:\n" + found
    status, text = sluice(program, ["simulate", "--json"], found)
    slots = slots_of(made, to_rank, m)
    counted = [r["activation_slots"] for r in json.loads(text)["ranks"]]
    if status or counted != slots:
        return f"{what}slots: 2.15 {slots}, sluice {counted}\n"
    return None


def check_orders(program, count, seed):
    if not NEW:
        sys.exit("torch_schedules.py: this PyTorch is older than 2.15")
    random.seed(seed)
    for i in range(count):
        wrong = check_order(program)
        if wrong:
            sys.exit(f"order {i} of seed {seed} differs:\n{wrong}")
    print(f"{count} random orders: the same text, and the same slots")


def print_time(name, p, v, m):
    start = time.perf_counter()
    text = csv(construct(name, p, v, m).pipeline_order_with_comms)
    print(f"{time.perf_counter() - start:.3f} {len(text)}")


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "rows":
        print_rows(int(rest[0]), int(rest[1]))
    elif verb == "orders":
        check_orders(rest[0], int(rest[1]), int(rest[2]))
    else:
        print_time(rest[0], *map(int, rest[1:]))
