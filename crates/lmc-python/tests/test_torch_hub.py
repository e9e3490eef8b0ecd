"""huggingface_hub and its cache, once `lmc hub compress` was there."""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import lmc.hf
import lmc.torch
import pytest
import torch
from huggingface_hub import hf_hub_download, scan_cache_dir, try_to_load_from_cache
from safetensors.torch import save
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

BASE, TUNED, NEWER = (character * 40 for character in "abc")


def model(seed, change=0.0):
    generator = torch.Generator().manual_seed(seed)
    state = {f"{i}.weight": (torch.randn(200, 200, generator=generator) * 0.02) for i in range(4)}
    for tensor in state.values():
        tensor += torch.randn(200, 200, generator=generator) * change
    return {name: tensor.bfloat16() for name, tensor in state.items()}


#: The models of the hub, and of each revision the files.
MODELS = {
    "org/base": {BASE: {"config.json": b"{}", "model.safetensors": save(model(1))}},
    "user/tuned": {
        TUNED: {"config.json": b"{}", "model.safetensors": save(model(1, 1e-4))},
        NEWER: {"config.json": b"{}", "unet/model.safetensors": save(model(1, 2e-4))},
    },
}
FILES = [(m, r, name) for m, revisions in MODELS.items() for r, files in revisions.items() for name in files]


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download of a file needs."""

    downloads = 0

    def do_HEAD(self):
        organisation, name, _, revision, path = self.path.lstrip("/").split("/", 4)
        revisions = MODELS[f"{organisation}/{name}"]
        commit = next(reversed(revisions)) if revision == "main" else revision
        data = revisions[commit][path]
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", commit)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        return data

    def do_GET(self):
        Hub.downloads += 1
        self.wfile.write(self.do_HEAD())

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def endpoint():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    # All other tests are to fail rather than to download something.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def hub(cache, *args):
    command = [sys.executable, "-m", "lmc", "hub", *args, "--cache-dir", str(cache), "-q"]
    subprocess.run(command, check=True)


def test_the_hub_finds_everything_and_downloads_nothing_again(tmp_path, endpoint):
    def download(model, revision, name, **options):
        return hf_hub_download(model, name, revision=revision, cache_dir=tmp_path, endpoint=endpoint, **options)

    paths = {file: download(*file) for file in FILES}
    download("user/tuned", "main", "config.json")
    before, downloads = scan_cache_dir(tmp_path), Hub.downloads
    assert downloads == len(set(FILES)) - 1, "both revisions have one configuration"
    hub(tmp_path, "compress")
    # Nothing is missed, by name or by revision, with the hub or without it.
    for (name, revision, file), path in paths.items():
        assert download(name, revision, file) == path
        assert download(name, revision, file, local_files_only=True) == path
        assert try_to_load_from_cache(name, file, cache_dir=tmp_path, revision=revision) == path
    assert (
        download("user/tuned", "main", "unet/model.safetensors") == paths["user/tuned", NEWER, "unet/model.safetensors"]
    )
    assert Hub.downloads == downloads
    # What it says of its cache is what is on disk.
    after = scan_cache_dir(tmp_path)
    assert not after.warnings
    for old, new in zip(sorted(before.repos, key=str), sorted(after.repos, key=str), strict=True):
        assert (old.repo_id, old.nb_files, old.refs.keys()) == (new.repo_id, new.nb_files, new.refs.keys())
        assert new.size_on_disk < 0.8 * old.size_on_disk
    assert after.size_on_disk < 0.6 * before.size_on_disk
    # Any file is loaded from where it is.
    expected = {file: lmc.torch.load(MODELS[file[0]][file[1]][file[2]]) for file in FILES if "safetensors" in file[2]}
    for file, state in expected.items():
        found = lmc.torch.load_file(paths[file])
        assert found.keys() == state.keys() and all(torch.equal(found[name], state[name]) for name in state)
    # Deleting one model, or revision, as the hub does leaves the others whole.
    after.delete_revisions(BASE, NEWER).execute()
    assert not os.path.exists(paths["org/base", BASE, "model.safetensors"])
    left = ("user/tuned", TUNED, "model.safetensors")
    found = lmc.torch.load_file(paths[left])
    assert all(torch.equal(found[name], expected[left][name]) for name in expected[left])
    hub(tmp_path, "restore")
    assert Path(paths[left]).read_bytes() == MODELS["user/tuned"][TUNED]["model.safetensors"]
    assert not list(tmp_path.rglob("*.lmc"))
    download("org/base", BASE, "model.safetensors")
    assert Hub.downloads == downloads + 1


def families():
    """Three families of models, one with a fine-tune in several files: a model, and inputs of it."""
    torch.manual_seed(0)
    tokens = torch.arange(16)[None]
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=500, n_positions=16, n_embd=64, n_layer=4, n_head=2)).eval()
    yield "org/gpt", gpt, tokens, {}
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter += torch.randn_like(parameter) * 1e-5
    yield "user/tuned", gpt, tokens, {"max_shard_size": "200KB"}
    sizes = dict(vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2)
    yield "org/llama", LlamaForCausalLM(LlamaConfig(**sizes)).bfloat16().eval(), tokens, {}
    yield "org/bert", BertModel(BertConfig(**sizes)).eval(), tokens, {}


def put(cache, repository, folder):
    """Files of a folder as a revision of a model in the cache."""
    model = cache / f"models--{repository.replace('/', '--')}"
    for name in ("refs", "blobs", f"snapshots/{BASE}"):
        (model / name).mkdir(parents=True)
    (model / "refs/main").write_text(BASE)
    for file in folder.iterdir():
        blob = hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.move(file, model / "blobs" / blob)
        (model / "snapshots" / BASE / file.name).symlink_to(f"../../blobs/{blob}")


def test_models_are_loaded_from_the_cache_with_transformers(tmp_path):
    cache, expected = tmp_path / "cache", {}

    def logits(repository, kind, tokens):
        with torch.no_grad():
            return kind.from_pretrained(repository, cache_dir=cache, local_files_only=True).eval()(tokens)[0]

    for repository, model, tokens, options in families():
        model.save_pretrained(tmp_path / "m", **options)
        put(cache, repository, tmp_path / "m")
        expected[repository, type(model), tokens] = logits(repository, type(model), tokens)

    def size():
        # A base has a second name beside its deltas.
        found = [file.lstat() for file in cache.rglob("blobs/*")]
        return sum({(status.st_dev, status.st_ino): status.st_size for status in found}.values())

    before = size()
    hub(cache, "compress")
    assert len(list(cache.glob("models--user--tuned/blobs/*.lmc"))) >= 3
    assert size() < 0.8 * before
    for loaded, before in expected.items():
        assert torch.equal(logits(*loaded), before), loaded[0]


def test_restored_it_is_what_was_downloaded(tmp_path, endpoint):
    for model_name, revision, name in FILES:
        hf_hub_download(model_name, name, revision=revision, cache_dir=tmp_path, endpoint=endpoint)

    def state():
        found = {path: path.lstat() for path in sorted(tmp_path.rglob("*"))}
        return {
            path: (s.st_mode, s.st_mtime_ns if not path.is_dir() else 0, path.read_bytes() if path.is_file() else b"")
            for path, s in found.items()
        }

    before = state()
    hub(tmp_path, "compress")
    assert state() != before
    hub(tmp_path, "restore")
    assert state() == before
