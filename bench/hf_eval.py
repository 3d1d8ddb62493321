# SPDX-License-Identifier: MIT
"""The mean loss of an exported model over sequential windows of a file's bytes,
by Hugging Face's own GPT-2, computed in f32 whatever the weights are stored in:
beside it, `sluice eval FOLDER FILE --max N`.

    python3 bench/hf_eval.py run/latest README.md 16
"""
import sys


def main():
    if len(sys.argv) != 4 or not sys.argv[3].isdigit():
        sys.exit("usage: hf_eval.py MODEL_FOLDER TEXT_FILE SEQUENCES")
    import torch
    from transformers import GPT2LMHeadModel
    folder, path, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
    model, found = GPT2LMHeadModel.from_pretrained(
        folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if found[kind]:
            sys.exit(f"{kind}: {sorted(found[kind])}")
    model.eval().float()
    data = open(path, "rb").read()
    length = model.config.n_positions
    count = min(most, (len(data) - 1) // length)
    loss = 0.0
    with torch.no_grad():
        for i in range(count):
            ids = torch.tensor(list(data[i * length:(i + 1) * length + 1]))
            logits = model(ids[None, :-1]).logits[0]
            loss += torch.nn.functional.cross_entropy(logits, ids[1:]).item()
    print(f"loss {loss / count:.6f}, over {count} sequences of {length} tokens")


main()
