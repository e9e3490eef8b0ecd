#!/usr/bin/env python3
"""Runs bench/trajectories.py on an imitation of a hub, and checks what it finds: check_trajectories.py LMC"""

import hashlib
import http.server
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import zipfile
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "bench/trajectories.py"
# A file of torch.save with what a training tool keeps besides weights.
SAVED = ROOT / "testdata/layouts/deepspeed"
OPTIMIZER = (SAVED / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").read_bytes()
NAME, REPO = "pythia-70m", "EleutherAI/neox-ckpt-pythia-70m-v1"
STEPS = (0, 1, 2)
NOT_ASKED_FOR = {"README.md": b"text", "config.json": b"{}", "pytorch_model.bin.index.json": b"{}"}


def values(step, seed=0):
    """10,000 weights; a step changes every tenth."""
    return [((i * 7919 + seed) % 1000 + (step if i % 10 == 0 else 0)) / 1024 for i in range(10000)]


def safetensors(step):
    """Some weights."""
    raw = struct.pack("<10000f", *values(step))
    header = json.dumps({"layer.weight": {"dtype": "F32", "shape": [100, 100], "data_offsets": [0, len(raw)]}}).encode()
    return struct.pack("<Q", len(header)) + header + raw


def saved(step, name="layer.weight", seed=0):
    """Some weights as `torch.save` writes them: a pickled dictionary with a tensor, in a zip archive."""
    text = lambda s: b"X" + struct.pack("<I", len(s)) + s.encode()  # noqa: E731
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"M\x10\x27tQ"
    ordered = b"ccollections\nOrderedDict\n)R"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0Kd" + b"Kd\x86KdK\x01\x86\x89" + ordered + b"tR"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}" + text(name) + tensor + b"s.")
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/data/0", struct.pack("<10000f", *values(step, seed)))
        archive.writestr("archive/version", b"3\n")
    return out.getvalue()


def optimizer(step):
    """The saved state of an optimizer, with other numbers in each step."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(OPTIMIZER)) as old, zipfile.ZipFile(out, "w") as new:
        entries = old.infolist()
        largest = max(entries, key=lambda e: e.file_size)
        for e in entries:
            data = bytearray(old.read(e))
            if e is largest:
                data[::40] = bytes(b ^ step for b in data[::40])
            new.writestr(zipfile.ZipInfo(e.filename), bytes(data))
    return out.getvalue()


def neox(step):
    """The files of GPT-NeoX."""
    layer, states = "layer_00-model_00-model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    return {f"global_step{step}/{layer}": saved(step), f"global_step{step}/{states}": optimizer(step)}


def shards(step):
    """Two files with weights."""
    of = "pytorch_model-{:05}-of-00002.bin".format
    return {of(1): saved(step, "a.weight"), of(2): saved(step, "b.weight", seed=77)}


def one_file(step):
    return {"model.safetensors": safetensors(step // 1000)}


# By repository: the branch of a step, and its files.
REPOS = {
    REPO: ("step{}".format, neox, STEPS),
    "LLM360/Amber": ("ckpt_{:03}".format, shards, STEPS),
    "allenai/OLMo-1B": (lambda step: f"step{step}-tokens{step * 4 // 1000}B", one_file, (1000, 2000, 4000)),
}


class Hub(http.server.ThreadingHTTPServer):
    """Repositories whose branches are steps."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        # Files by repository and commit.
        self.trees = {
            repo: {f"{step:040x}": files(step) | NOT_ASKED_FOR for step in steps}
            for repo, (_, files, steps) in REPOS.items()
        }
        self.asked = []
        # The responses that the next requests of files get instead.
        self.refusals = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    """The requests that the script sends to a hub."""

    def do_GET(self):
        hub, parts = self.server, urlsplit(self.path)
        path = unquote(parts.path)
        hub.asked.append(path)
        repo = next((repo for repo in hub.trees if f"/{repo}/" in path), None)
        if repo is None:
            return self.send_error(404)
        trees, api = hub.trees[repo], f"/api/models/{repo}/"
        if path == api + "refs":
            branches = [{"name": REPOS[repo][0](int(c, 16)), "targetCommit": c} for c in trees]
            return self.answer({"branches": [{"name": "main", "targetCommit": "f" * 40}, *branches]})
        if path.startswith(api + "tree/"):
            files = sorted(trees[path.removeprefix(api + "tree/")].items())
            entries = [{"type": "directory", "path": "global_step"}] + [entry(*file) for file in files]
            # In pages, as long lists are.
            if "cursor" in parts.query:
                return self.answer(entries[2:])
            return self.answer(entries[:2], {"Link": f'<{self.path}&cursor=2>; rel="next"'})
        if path.startswith(f"/{repo}/resolve/"):
            if hub.refusals:
                return self.send_error(hub.refusals.pop())
            commit, _, name = path.removeprefix(f"/{repo}/resolve/").partition("/")
            return self.answer(trees[commit][name])
        return self.send_error(404)

    def answer(self, what, headers=()):
        data = what if isinstance(what, bytes) else json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def entry(path, data):
    lfs = {"lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}}
    return {"type": "file", "path": path, "size": len(data), **({} if path in NOT_ASKED_FOR else lfs)}


def main(lmc):
    with tempfile.TemporaryDirectory() as folder:
        folder, hub = Path(folder), Hub()
        pins, results, work = folder / "pins.json", folder / "results.json", folder / "work"

        def call(*args):
            env = {**os.environ, "HF_ENDPOINT": hub.url, "no_proxy": "127.0.0.1"}
            command = [sys.executable, SCRIPT, *args, "--pins", pins]
            return subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=300)

        def run(name=NAME):
            return call("run", name, "--lmc", lmc, "--dir", work, "--json", results)

        done = call("pin", NAME, "--steps", ",".join(map(str, STEPS)))
        assert done.returncode == 0, done.stderr
        pinned = json.loads(pins.read_text())[NAME]["checkpoints"]
        assert [(c["step"], len(c["files"])) for c in pinned] == [(s, 2) for s in STEPS], pinned
        assert "stays" in call("pin", NAME).stderr
        missing = call("pin", "pythia-160m")
        assert missing.returncode != 0 and "404" in missing.stderr, missing

        # Other bytes of the same length.
        tampered = "global_step1/layer_00-model_00-model_states.pt"
        tree = hub.trees[REPO][f"{1:040x}"]
        good, tree[tampered] = tree[tampered], tree[tampered][:-1] + b"x"
        done = run()
        assert done.returncode != 0 and "other bytes than were pinned" in done.stderr, done
        assert not results.exists() and not list(work.rglob("*.part")), list(work.rglob("*"))
        tree[tampered] = good

        done = run()
        assert done.returncode == 0, done.stderr
        found = json.loads(results.read_text())["checkpoints"]
        assert [(c["step"], c["since"]) for c in found] == [(0, None), (1, 1), (2, 1)], found
        weights = [next(g for g in c["groups"] if g["kind"] == "weights" and g["compared"] >= 10000) for c in found[1:]]
        # Of 10,000 weights a tenth.
        assert [g["changed"] for g in weights] == [1000, 1000], weights
        others = [sum(g["changed"] for g in c["groups"] if g["kind"] != "weights") for c in found[1:]]
        assert min(others) > 0, found
        raw = sum(len(d) for n, d in hub.trees[REPO][f"{0:040x}"].items() if n.endswith(".pt"))
        assert found[0]["raw_size"] == raw and 0 < found[1]["delta_size"] < found[1]["lmc_size"], found
        # The last one stays, for steps that are pinned later.
        assert [p.name for p in sorted(work.rglob("step*")) if p.is_dir()] == ["step000000002"], list(work.rglob("*"))
        assert (work / NAME / "step000000002.html").stat().st_size > 10000
        assert not any(path.endswith(name) for path in hub.asked for name in NOT_ASKED_FOR), hub.asked

        # Nothing is done twice.
        hub.asked.clear()
        before = results.read_text()
        assert run().returncode == 0 and not hub.asked and results.read_text() == before, hub.asked

        # A file that was kept and has other bytes now is fetched again, and so is one from a hub that was too busy.
        changed = next((work / NAME / "step000000002").rglob("*_optim_states.pt"))
        good = changed.read_bytes()
        changed.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        (work / NAME / "step000000002.json").unlink()
        hub.refusals = [408, 429]
        done = run()
        assert done.returncode == 0 and results.read_text() == before, done
        assert "has other bytes than were pinned: downloaded again" in done.stdout and not hub.refusals, done
        assert changed.read_bytes() == good
        # Layers and the optimizer of step 1 (one was refused twice), and the optimizer of step 2.
        assert len(hub.asked) == 5, hub.asked

        # The layouts of other runs: files of weights alone, in parts or not, and branches with other names.
        for name, repo, tensors in (("amber", "LLM360/Amber", 2), ("olmo-1b", "allenai/OLMo-1B", 1)):
            steps, trees = REPOS[repo][2], hub.trees[repo]
            done = call("pin", name, "--steps", ",".join(map(str, steps)))
            assert done.returncode == 0, done.stderr
            pinned = json.loads(pins.read_text())[name]["checkpoints"]
            assert [(c["step"], len(c["files"])) for c in pinned] == [(s, tensors) for s in steps], pinned
            done = run(name)
            assert done.returncode == 0, done.stderr
            found = json.loads(results.read_text())
            assert (found["run"], found["repo"]) == (name, repo), found
            found = found["checkpoints"]
            since = [None, *(b - a for a, b in pairwise(steps))]
            assert [(c["step"], c["since"]) for c in found] == list(zip(steps, since, strict=True)), found
            raw = sum(len(d) for n, d in trees[f"{steps[0]:040x}"].items() if n not in NOT_ASKED_FOR)
            assert found[0]["raw_size"] == raw, found
            changed = [sum(g["changed"] for g in c["groups"] if g["kind"] == "weights") for c in found[1:]]
            assert changed == [1000 * tensors] * 2, found
            assert all(0 < c["delta_size"] < c["raw_size"] // 10 for c in found[1:]), found
            assert not any(path.endswith(n) for path in hub.asked for n in NOT_ASKED_FOR), hub.asked


if __name__ == "__main__":
    main(sys.argv[1])
