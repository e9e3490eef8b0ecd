"""What loads models loads them from `lmc mount`: equal tensors, without a line of code."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import lmc
import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from conftest import weights
from torch_tensors import assert_same
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

pytestmark = pytest.mark.mount


@contextmanager
def mounted(*args, at):
    """A mounted directory, or store; fails where FUSE is missing."""
    at.mkdir()
    process = subprocess.Popen([sys.executable, "-m", "lmc", "mount", *map(str, args), str(at)])
    try:
        while not os.path.ismount(at):
            assert process.poll() is None, "it was not mounted"
            time.sleep(0.02)
        yield at
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
        assert not os.path.ismount(at)


def compressed(folder):
    """Compresses each file in a folder that has weights, and removes it."""
    subprocess.run([sys.executable, "-m", "lmc", "compress", "-q", "-r", "--rm", str(folder)], check=True)


@pytest.mark.parametrize("shard", ["50GB", "100KB"])
def test_from_pretrained(tmp_path, shard):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=500, n_positions=16, n_embd=64, n_layer=4, n_head=2)).eval()
    model.save_pretrained(tmp_path / "model", max_shard_size=shard)
    tokens = torch.arange(16)[None]
    expected = model(tokens).logits
    compressed(tmp_path / "model")
    assert not list((tmp_path / "model").glob("*.safetensors"))
    with mounted(tmp_path / "model", at=tmp_path / "mnt") as at:
        found = AutoModelForCausalLM.from_pretrained(at).eval()
        assert torch.equal(found(tokens).logits, expected)
        assert_same(found.state_dict(), model.state_dict())
        del found


def test_files_of_many_kinds_are_mapped(tmp_path):
    tensors = {"a": torch.from_numpy(weights(1 << 20)), "b": torch.from_numpy(weights(1000, 1)).bfloat16()}
    (tmp_path / "d").mkdir()
    safetensors.torch.save_file(tensors, tmp_path / "d/m.safetensors")
    torch.save(tensors, tmp_path / "d/m.pt")
    np.save(tmp_path / "d/m.npy", tensors["a"].numpy().reshape(1024, 1024))
    compressed(tmp_path / "d")
    with mounted(tmp_path / "d", at=tmp_path / "mnt") as at:
        assert sorted(os.listdir(at)) == ["m.npy", "m.pt", "m.safetensors"]
        assert_same(safetensors.torch.load_file(at / "m.safetensors"), tensors)
        with safetensors.safe_open(at / "m.safetensors", "pt") as f:
            assert torch.equal(f.get_slice("a")[1000:2000], tensors["a"][1000:2000])
        assert_same(torch.load(at / "m.pt", mmap=True), tensors)
        assert_same(torch.load(at / "m.pt"), tensors)
        array = np.load(at / "m.npy", mmap_mode="r")
        assert np.array_equal(array[::-7], tensors["a"].numpy().reshape(1024, 1024)[::-7])
        del array


def test_gguf_is_read(tmp_path):
    import gguf

    array = weights(1 << 20).reshape(1024, 1024)
    (tmp_path / "d").mkdir()
    writer = gguf.GGUFWriter(tmp_path / "d/m.gguf", "llama")
    writer.add_tensor("w", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    compressed(tmp_path / "d")
    with mounted(tmp_path / "d", at=tmp_path / "mnt") as at:
        reader = gguf.GGUFReader(at / "m.gguf")
        assert np.array_equal(reader.tensors[0].data, array)
        del reader


def test_snapshots_of_a_store(tmp_path):
    store = lmc.Store.create(tmp_path / "s")
    states = [{"w": torch.from_numpy(weights(1 << 18)) * (1 + step / 1000)} for step in range(3)]
    for step, state in enumerate(states):
        safetensors.torch.save_file(state, tmp_path / "m.safetensors")
        store.save_files([tmp_path / "m.safetensors"], step=step)
    with mounted(tmp_path / "s", at=tmp_path / "mnt") as at:
        for step, state in enumerate(states):
            assert_same(safetensors.torch.load_file(at / str(step) / "m.safetensors"), state)
        assert_same(safetensors.torch.load_file(at / "latest/m.safetensors"), states[-1])


def test_a_daemon_of_the_package(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "mnt").mkdir()
    safetensors.torch.save_file({"a": torch.ones(1000)}, tmp_path / "d/m.safetensors")
    compressed(tmp_path / "d")
    command = [sys.executable, "-m", "lmc", "mount", "--daemon", str(tmp_path / "d"), str(tmp_path / "mnt")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert_same(safetensors.torch.load_file(tmp_path / "mnt/m.safetensors"), {"a": torch.ones(1000)})
    subprocess.run([shutil.which("fusermount3"), "-u", tmp_path / "mnt"], check=True)
