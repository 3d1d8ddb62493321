# SPDX-License-Identifier: MIT
"""Runs Sluice's CSVs in PyTorch's own runtime; see torch_runs.

torch_runs.py SLUICE            the table
torch_runs.py rank R P FOLDER   one rank of P: runs the cases in FOLDER/cases.json
"""
import json
import logging
import os
import queue
import subprocess
import sys
import tempfile
import threading
import warnings

WIDTH, ROWS, SECONDS = 8, 4, 60
SCHEDULES = [("GPipe", 1), ("1F1B", 1), ("LoopedBFS", 2), ("Interleaved1F1B", 2),
             ("InterleavedZeroBubble", 2), ("ZBVZeroBubble", 2), ("DualPipeV", 2)]


# ------------------------------------------------------------------ a rank --

def layer_of(stage):
    import torch
    torch.manual_seed(100 + stage)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())


def batch_of(microbatches):
    import torch
    torch.manual_seed(7)
    shape = (microbatches * ROWS, WIDTH)
    return torch.randn(shape), torch.randn(shape)


def loss_of(y, target):
    return (y - target).square().mean()


def make_schedule(case, stages, own):
    """The runtime with the CSV loaded, or PyTorch's own schedule."""
    from torch.distributed.pipelining import schedules as ts
    m = case["m"]
    if own:
        how = {"defer_pp_recv": True} if case["form"] == "deferred" and \
            hasattr(ts, "_add_wait_send") else {}
        return getattr(ts, "Schedule" + case["name"])(stages, m,
                                                      loss_fn=loss_of, **how)
    made = ts._PipelineScheduleRuntime(stages, m, loss_fn=loss_of)
    made._load_csv(case["csv"], format=case["format"])
    return made


def largest_difference(layers, stages_in_all, microbatches):
    """Of the gradients of a step from those of the uncut model."""
    import torch
    model = torch.nn.Sequential(*map(layer_of, range(stages_in_all)))
    x, target = batch_of(microbatches)
    loss_of(model(x), target).backward()
    worst = 0.0
    for stage, layer in layers.items():
        for mine, whole in zip(layer.parameters(), model[stage].parameters()):
            worst = max(worst, float((mine.grad - whole.grad).norm()
                                     / whole.grad.norm()))
    return worst


def run_case(case, rank, ranks, own):
    import torch
    from torch.distributed.pipelining import PipelineStage
    count = case["stages"]
    layers = {s: layer_of(s) for s in range(count) if case["home"][s] == rank}
    stages = [PipelineStage(layer, s, count, torch.device("cpu"))
              for s, layer in layers.items()]
    schedule = make_schedule(case, stages, own)
    x, target = batch_of(case["m"])
    worst = 0.0
    for _ in range(2):
        # PyTorch divides by the microbatches whatever has piled up.
        for layer in layers.values():
            layer.zero_grad()
        args = [x] if 0 in layers else []
        named = {"target": target} if count - 1 in layers else {}
        schedule.step(*args, **named)
        worst = max(worst, largest_difference(layers, count, case["m"]))
    return worst


def run_rank(rank, ranks, folder):
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    with open(os.path.join(folder, "cases.json")) as file:
        cases = json.load(file)
    dist.init_process_group("gloo", rank=rank, world_size=ranks,
                            init_method="file://" + os.path.join(folder, "store"))
    for at, case in enumerate(cases):
        try:
            worst = torch.tensor([run_case(case, rank, ranks, case["own"])],
                                 dtype=torch.float64)
        except Exception as error:
            words = str(error).strip() or type(error).__name__
            print(json.dumps({"failed": words.splitlines()[0], "at": at}),
                  flush=True)
            os._exit(1)
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        print(json.dumps({"worst": worst.item()}), flush=True)
    os._exit(0)


# --------------------------------------------------------------- the table --

def read_lines(stream, rank, lines):
    for line in stream:
        lines.put((rank, line))
    lines.put((rank, None))


def run_cases(cases, ranks):
    """Results of the first cases, up to the first that fails, which has the
    reason; one at least. A rank that is done with a case may fail in the next
    one, and close its connections, before rank 0 is."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "cases.json"), "w") as file:
            json.dump(cases, file)
        lines = queue.Queue()
        children = []
        for rank in range(ranks):
            child = subprocess.Popen(
                [sys.executable, __file__, "rank", str(rank), str(ranks), folder],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"})
            children.append(child)
            threading.Thread(target=read_lines, daemon=True,
                             args=(child.stdout, rank, lines)).start()
        failed, early = None, False
        while len(results) < len(cases) and failed is None:
            try:
                rank, line = lines.get(timeout=SECONDS)
            except queue.Empty:
                failed = f"hangs for {SECONDS} s"
                break
            result = json.loads(line) if line else {"failed": "a rank ended"}
            if result.get("at", 0) > len(results):
                early = True  # A rank is ahead: the case at hand has no result.
                break
            if "failed" in result:
                failed = result["failed"]
            elif rank == 0:
                results.append(result)
        for child in children:
            child.kill()
            child.wait()
        if failed is not None:
            results.append({"failed": failed})
    if early:  # By itself nobody is ahead of it.
        results += run_cases(cases[len(results):len(results) + 1], ranks)
    return results


def run_all(cases, ranks):
    results = []
    while len(results) < len(cases):
        results += run_cases(cases[len(results):], ranks)
    return results


def write_csv(sluice, folder, name, p, v, m, words):
    path = os.path.join(folder, f"{name}-{p}-{len(os.listdir(folder))}.csv")
    with open(path, "w") as file:
        subprocess.run([sluice, "schedule", name, "-p", str(p), "-v", str(v),
                        "-m", str(m)] + words, stdout=file, check=True)
    return path


def home_of(sluice, name, p, v, m):
    text = subprocess.run([sluice, "schedule", name, "-p", str(p), "-v", str(v),
                           "-m", str(m), "--as", "json"], capture_output=True,
                          text=True, check=True).stdout
    return json.loads(text)["placement"]


def make_cases(sluice, folder, p, new):
    target = ["--for", "torch-2.15" if new else "torch-2.11"]
    forms = [("order", "compute_only", []),
             ("lowered", "compute_comms", ["--as", "lowered"] + target),
             ("deferred", "compute_comms",
              ["--as", "lowered", "--recv", "defer"] + target)]
    if new:
        forms.append(("1 send", "compute_comms",
                      ["--as", "lowered", "--send-budget", "1"]))
    for name, v in SCHEDULES:
        m = 2 * p * v
        home = home_of(sluice, name, p, v, m)
        for form, format, words in forms:
            csv = write_csv(sluice, folder, name, p, v, m, words)
            check = subprocess.run([sluice, "check", csv, "--comm", "per-edge"],
                                   stdout=subprocess.DEVNULL)
            yield {"name": name, "form": form, "format": format, "m": m,
                   "stages": p * v, "home": home, "own": False, "csv": csv,
                   "safe": check.returncode == 0,
                   "has_own": new or form != "deferred"}


def words_of(result):
    return f"{result['worst']:.1e}" if "worst" in result \
        else result["failed"][:60]


def judge(case, result, p):
    """A word for the table, and whether it is a fault of ours. What is wrong is
    not ours where PyTorch's own schedule, its receives deferred likewise, goes
    as wrong; or where PyTorch cannot defer receives, and sluice check says what
    will happen."""
    if result.get("worst", 1) < 1e-5:
        return words_of(result), False
    if case["name"] in ("GPipe", "1F1B"):
        return "WRONG: " + words_of(result), True
    if not case["has_own"] and not case["safe"]:
        return words_of(result) + "; not safe under per-edge, says sluice check", False
    own = run_cases([{**case, "own": True}], p)[0]
    if own.get("worst", 1) < 1e-5:
        return "WRONG: " + words_of(result), True
    why = "" if case["safe"] or "failed" in own else \
        "; not safe under per-edge, says sluice check"
    return f"{words_of(result)}: PyTorch's own too, {words_of(own)}{why}", False


def print_table(sluice):
    import torch
    from torch.distributed.pipelining import schedules as ts
    new = hasattr(ts, "_add_wait_send")
    print(f"PyTorch {torch.__version__} runs what Sluice writes for "
          f"{'2.15' if new else '2.11'}: two steps over gloo, the largest "
          "difference of a\ngradient from the uncut model's, norm-wise\n")
    print(f"{'schedule':<24}{'ranks':>6}  {'form':<10} result")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for p in (2, 3, 4):
            cases = list(make_cases(sluice, folder, p, new))
            for case, result in zip(cases, run_all(cases, p)):
                word, fault = judge(case, result, p)
                wrong += fault
                print(f"{case['name']:<24}{p:>6}  {case['form']:<10} {word}",
                      flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        run_rank(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        print_table(sys.argv[1])
