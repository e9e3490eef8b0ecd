#!/usr/bin/env python3
"""Fine-tunes all-MiniLM-L6-v2 as its authors do, on text of this machine: finetune.py NUMBER FOLDER

Contrastive learning: of the functions of Python's standard library (every third module, by NUMBER), a signature must be
closer to its own docstring than to the others of the batch. AdamW at a constant learning rate of 2e-5, fp32 masters.
Writes the states of the last two steps: bf16 weights, masters, both moments.
"""

import argparse
import ast
import os
import random
import sysconfig
import warnings
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
warnings.filterwarnings("ignore")

import inputs  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModel, AutoTokenizer  # noqa: E402
from transformers.utils import logging  # noqa: E402

# The layer that is left out is no mistake.
logging.set_verbosity_error()
logging.disable_progress_bar()


def pairs(number: int) -> list[tuple[str, str]]:
    """Signatures and the first paragraphs of their docstrings."""
    found = []
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    for module in modules[number :: inputs.FINE_TUNES]:
        for node in ast.walk(ast.parse(module.read_bytes())):
            if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
                found.append((f"{node.name}({ast.unparse(node.args)})", text.split("\n\n")[0]))
    random.Random(number).shuffle(found)
    return found


def embedded(model: torch.nn.Module, tokens: dict[str, torch.Tensor]) -> torch.Tensor:
    """The mean of the last states of the tokens, of length one."""
    mask = tokens["attention_mask"].unsqueeze(-1)
    states = model(**tokens).last_hidden_state
    return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)


def save(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    tensors = {}
    for name, p in model.named_parameters():
        state = optimizer.state[p]
        tensors[f"model.{name}"] = p.detach().bfloat16()
        tensors[f"master.{name}"] = p.detach().clone()
        tensors[f"exp_avg.{name}"] = state["exp_avg"]
        tensors[f"exp_avg_sq.{name}"] = state["exp_avg_sq"]
    safetensors.torch.save_file(tensors, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.number)
    torch.use_deterministic_algorithms(True)
    source = inputs.minilm().parent
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModel.from_pretrained(source, dtype=torch.float32, add_pooling_layer=False).train()
    # Every parameter has a state from the first step, also the embeddings of words that do not occur.
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    text = pairs(args.number)
    for step in range(1, args.steps + 1):
        batch = [text[(step * args.batch + i) % len(text)] for i in range(args.batch)]
        ends = [
            embedded(model, tokenizer(list(side), padding=True, truncation=True, max_length=48, return_tensors="pt"))
            for side in zip(*batch, strict=True)
        ]
        # As sentence-transformers' MultipleNegativesRankingLoss, whose scale is 20.
        loss = torch.nn.functional.cross_entropy(20 * ends[0] @ ends[1].T, torch.arange(args.batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step > args.steps - 2:
            save(args.folder / f"step{step:03}.safetensors", model, optimizer)
    (args.folder / "done").touch()


if __name__ == "__main__":
    main()
