#!/usr/bin/env python3
"""Runs bench/trajectories.py on an imitation of a hub, and checks what it finds: check_trajectories.py LMC"""

import hashlib
import http.server
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "bench/trajectories.py"
# A file of torch.save with what a training tool keeps besides weights.
SAVED = ROOT / "testdata/layouts/deepspeed"
OPTIMIZER = (SAVED / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").read_bytes()
NAME, REPO = "pythia-70m", "EleutherAI/neox-ckpt-pythia-70m-v1"
STEPS = (0, 1, 2)


def safetensors(step):
    """Some weights; a step changes every tenth."""
    values = [((i * 7919) % 1000 + (step if i % 10 == 0 else 0)) / 1024 for i in range(10000)]
    raw = struct.pack("<10000f", *values)
    header = json.dumps({"layer.weight": {"dtype": "F32", "shape": [100, 100], "data_offsets": [0, len(raw)]}}).encode()
    return struct.pack("<Q", len(header)) + header + raw


class Hub(http.server.ThreadingHTTPServer):
    """A repository whose branches are steps, in the way of GPT-NeoX's checkpoints."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.trees = {}
        for step in STEPS:
            files = {f"global_step{step}/layer_00-model_00-model_states.pt": safetensors(step)}
            files[f"global_step{step}/zero_pp_rank_0_mp_rank_00_optim_states.pt"] = OPTIMIZER
            self.trees[f"{step:040x}"] = files | {"README.md": b"not asked for"}
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
        api = f"/api/models/{REPO}/"
        if path == api + "refs":
            branches = [{"name": f"step{int(c, 16)}", "targetCommit": c} for c in hub.trees]
            return self.answer({"branches": [{"name": "main", "targetCommit": "f" * 40}, *branches]})
        if path.startswith(api + "tree/"):
            files = sorted(hub.trees[path.removeprefix(api + "tree/")].items())
            entries = [{"type": "directory", "path": "global_step"}] + [entry(*file) for file in files]
            # In pages, as long lists are.
            if "cursor" in parts.query:
                return self.answer(entries[2:])
            return self.answer(entries[:2], {"Link": f'<{self.path}&cursor=2>; rel="next"'})
        if path.startswith(f"/{REPO}/resolve/"):
            if hub.refusals:
                return self.send_error(hub.refusals.pop())
            commit, _, name = path.removeprefix(f"/{REPO}/resolve/").partition("/")
            return self.answer(hub.trees[commit][name])
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
    lfs = {"lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}} if path.endswith(".pt") else {}
    return {"type": "file", "path": path, "size": len(data), **lfs}


def main(lmc):
    with tempfile.TemporaryDirectory() as folder:
        folder, hub = Path(folder), Hub()
        pins, results, work = folder / "pins.json", folder / "results.json", folder / "work"

        def call(*args):
            env = {**os.environ, "HF_ENDPOINT": hub.url, "no_proxy": "127.0.0.1"}
            command = [sys.executable, SCRIPT, *args, "--pins", pins]
            return subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=300)

        def run():
            return call("run", NAME, "--lmc", lmc, "--dir", work, "--json", results)

        done = call("pin", NAME, "--steps", ",".join(map(str, STEPS)))
        assert done.returncode == 0, done.stderr
        pinned = json.loads(pins.read_text())[NAME]["checkpoints"]
        assert [(c["step"], len(c["files"])) for c in pinned] == [(s, 2) for s in STEPS], pinned
        assert "stays" in call("pin", NAME).stderr
        missing = call("pin", "pythia-160m")
        assert missing.returncode != 0 and "404" in missing.stderr, missing

        # Other bytes of the same length.
        tampered = "global_step1/layer_00-model_00-model_states.pt"
        tree = hub.trees[f"{1:040x}"]
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
        # Of 10,000 weights a tenth; the optimizer's file is the same in all steps.
        assert [g["changed"] for g in weights] == [1000, 1000], weights
        raw = sum(len(d) for n, d in hub.trees[f"{0:040x}"].items() if n.endswith(".pt"))
        assert found[0]["raw_size"] == raw and 0 < found[1]["delta_size"] < found[1]["lmc_size"], found
        # The last one stays, for steps that are pinned later.
        assert [p.name for p in sorted(work.rglob("step*")) if p.is_dir()] == ["step000000002"], list(work.rglob("*"))
        assert (work / NAME / "step000000002.html").stat().st_size > 10000
        assert not any(path.endswith("README.md") for path in hub.asked)

        # Nothing is done twice.
        hub.asked.clear()
        before = results.read_text()
        assert run().returncode == 0 and not hub.asked and results.read_text() == before, hub.asked

        # A file that was kept and has other bytes now is fetched again, and so is one from a hub that was too busy.
        changed = next((work / NAME / "step000000002").rglob("*_optim_states.pt"))
        changed.write_bytes(OPTIMIZER[:-1] + bytes([OPTIMIZER[-1] ^ 1]))
        (work / NAME / "step000000002.json").unlink()
        hub.refusals = [408, 429]
        done = run()
        assert done.returncode == 0 and results.read_text() == before, done
        assert "has other bytes than were pinned: downloaded again" in done.stdout and not hub.refusals, done
        assert changed.read_bytes() == OPTIMIZER
        # Layers and the optimizer of step 1 (one was refused twice), and the optimizer of step 2.
        assert len(hub.asked) == 5, hub.asked


if __name__ == "__main__":
    main(sys.argv[1])
