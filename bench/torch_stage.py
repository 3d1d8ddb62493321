#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Forward and backward of the blocks of `sluice bench stage`, in PyTorch.

  torch_stage.py MODEL THREADS SECONDS    (MODEL is mlp or gpt2)

Prints the best milliseconds of forward with backward, gradients accumulating.
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class MLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net1 = nn.Linear(d, 4 * d)
        self.net2 = nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.net2(F.relu(self.net1(x)))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.c_fc, self.m_proj = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (u.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for u in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.m_proj(F.gelu(self.c_fc(self.ln_2(x)),
                                      approximate="tanh"))


def main():
    model, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if model == "mlp":
        block, shape = MLP(512), (16, 512)
    else:
        block, shape = Block(512, 8), (2, 256, 512)
    x = torch.randn(shape, requires_grad=True)
    dy = torch.randn(shape)
    best, start, tries = 1e9, time.perf_counter(), 0
    while tries < 5 or time.perf_counter() - start < seconds:
        began = time.perf_counter()
        block(x).backward(dy)
        best = min(best, time.perf_counter() - began)
        tries += 1
    print("%.4f" % (best * 1e3))


main()
