# SPDX-License-Identifier: MIT
"""One training step of torch.distributed.pipelining over gloo, on this machine.

torch_step.py mlp|gpt2 SCHEDULE RANKS STAGES_PER_RANK MICROBATCHES SIZE THREADS
              WIDTH LAYERS [HEADS LENGTH VOCABULARY]
prints the median seconds of ten steps: forward, backward, plain SGD. The models
are those of `sluice bench step`, GPT-2 with an lm_head of its own. With
AUTOCAST=1 in the environment, under torch.autocast in bfloat16.
"""
import logging
import os
import statistics
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

PORT = "29517"


class MlpLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net1 = nn.Linear(d, 4 * d)
        self.net2 = nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.net2(F.relu(self.net1(x)))


class GptLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.c_fc, self.mlp_proj = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for y in self.c_attn(self.ln_1(x)).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        h = F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")
        return x + self.mlp_proj(h)


class Stage(nn.Module):
    """Layers, with the embedding before the first and the head behind the last."""

    def __init__(self, job, index, stages):
        super().__init__()
        gpt2, d = job["model"] == "gpt2", job["width"]
        layers = job["layers"] // stages
        make = (lambda: GptLayer(d, job["heads"])) if gpt2 else (lambda: MlpLayer(d))
        self.layers = nn.Sequential(*[make() for _ in range(layers)])
        self.embeds = gpt2 and index == 0
        self.ends = gpt2 and index == stages - 1
        if self.embeds:
            self.wte = nn.Embedding(job["vocabulary"], d)
            self.wpe = nn.Embedding(job["length"], d)
        if self.ends:
            self.ln_f = nn.LayerNorm(d)
            self.lm_head = nn.Linear(d, job["vocabulary"], bias=False)

    def forward(self, x):
        if self.embeds:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        x = self.layers(x)
        return self.lm_head(self.ln_f(x)) if self.ends else x


def batch_of(job):
    rows = job["microbatches"] * job["size"]
    if job["model"] == "mlp":
        return torch.randn(rows, job["width"]), torch.randn(rows, job["width"])
    shape = (rows, job["length"])
    return (torch.randint(job["vocabulary"], shape), torch.randint(job["vocabulary"], shape))


def loss_of(model):
    if model == "mlp":
        return F.mse_loss
    return lambda out, labels: F.cross_entropy(out.flatten(0, 1), labels.flatten())


def run(rank, job, results):
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(job["threads"])
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{PORT}", rank=rank, world_size=job["ranks"]
    )
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import (
        PipelineScheduleSingle,
        get_schedule_class,
    )

    stages = job["ranks"] * job["per_rank"]
    own = range(rank, stages, job["ranks"])
    modules = [Stage(job, index, stages) for index in own]
    cpu = torch.device("cpu")
    parts = [PipelineStage(m, i, stages, cpu) for m, i in zip(modules, own)]
    kind = get_schedule_class(job["schedule"])
    single = issubclass(kind, PipelineScheduleSingle)
    schedule = kind(
        parts[0] if single else parts, job["microbatches"], loss_fn=loss_of(job["model"])
    )
    weights = [p for m in modules for p in m.parameters()]
    optimizer = torch.optim.SGD(weights, lr=1e-3)
    x, target = batch_of(job)
    inputs = (x,) if 0 in own else ()
    targets = {"target": target} if stages - 1 in own else {}
    autocast = os.environ.get("AUTOCAST") == "1"
    took = []
    for _ in range(13):
        dist.barrier()
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            schedule.step(*inputs, return_outputs=False, **targets)
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        took.append(time.perf_counter() - start)
    if rank == 0:
        results.put(statistics.median(took[3:]))
    dist.barrier()
    dist.destroy_process_group()


def main():
    names = ["ranks", "per_rank", "microbatches", "size", "threads", "width", "layers"]
    names += ["heads", "length", "vocabulary"]
    job = {"model": sys.argv[1], "schedule": sys.argv[2]}
    job.update(zip(names, map(int, sys.argv[3:])))
    os.environ["OMP_NUM_THREADS"] = str(job["threads"])
    context = mp.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=run, args=(r, job, results)) for r in range(job["ranks"])]
    for rank in ranks:
        rank.start()
    print(results.get(timeout=150))
    for rank in ranks:
        rank.join(30)


if __name__ == "__main__":
    main()
