"""A running vLLM that gets versions of a store: tokens after an update are those of an engine started on the files."""

import json
import os
import pickle
import signal
import statistics
import subprocess
import sys
import time
import types
import weakref
from pathlib import Path

import lmc
import lmc.sync
import lmc.torch
import lmc.vllm._copy
import pytest
import torch
import vllm_engine
from lmc import _errors
from vllm_engine import changed, configure, engine, save, tokens, update, weights
from vllm_server import RequestError, Server

PROGRAM = Path(vllm_engine.__file__)


class Run:
    """A store with versions, and the tokens that an engine generates which was started on the files of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = configure(folder / "config")
        self.location = str(folder / "store")
        self.publisher = lmc.sync.Publisher(self.location)
        self.versions = [weights(0)]
        self.versions.append(changed(self.versions[-1], 1))
        for step, tensors in enumerate(self.versions, 1):
            self.publisher.publish(tensors, step=step)
        self.files = [save(tensors, folder / f"step{n}") for n, tensors in enumerate(self.versions, 1)]
        started = [start(directory, 1) for directory in self.files]
        self.expected = [end(process)[0] for process in started]

    def publish(self, tensors):
        """Another version. Returns its step."""
        self.versions.append(tensors)
        return self.publisher.publish(tensors).step


def start(*arguments):
    """The program `vllm_engine.py`, running."""
    command = [sys.executable, PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(process):
    """Its output."""
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return [json.loads(line.removeprefix("tokens ")) for line in said.splitlines() if line.startswith("tokens ")]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def llm(run):
    extra = {"store": run.location, "step": 1}
    return engine(
        run.config, load_format="lmc", model_loader_extra_config=extra, weight_transfer_config={"backend": "lmc"}
    )


@pytest.fixture
def at_step_2(run, llm):
    """The engine, which holds step 2, whatever a test before did."""
    llm.init_weight_transfer_engine({"init_info": {}})
    update(llm, store=run.location, step=2, full=True)
    assert tokens(llm) == run.expected[1]
    return llm


def model_of(llm):
    return llm.collective_rpc(lambda worker: worker.model_runner.get_model())[0]


def set_load_format(llm, name, extra):
    config = {"load_config": {"load_format": name, "model_loader_extra_config": extra}}
    llm.collective_rpc("update_config", args=(config,))


def test_versions_differ(run):
    assert run.expected[0] != run.expected[1]


def test_it_starts_from_a_store_and_gets_a_version(run, llm):
    assert tokens(llm) == run.expected[0]
    update(llm, stage=True)
    # A version that is ready changes nothing.
    assert tokens(llm) == run.expected[0]
    update(llm, step=2)
    assert tokens(llm) == run.expected[1]
    update(llm)  # it is the newest one
    assert tokens(llm) == run.expected[1]


def test_changes_and_whole_weights_are_equal(run, at_step_2):
    update(at_step_2, step=1, full=True)
    assert tokens(at_step_2) == run.expected[0]
    update(at_step_2, step=2)
    assert tokens(at_step_2) == run.expected[1]


def test_reload_weights_gets_the_newest_or_a_given_version(run, at_step_2):
    set_load_format(at_step_2, "lmc", {"store": run.location, "step": 1})
    at_step_2.collective_rpc("reload_weights")
    assert tokens(at_step_2) == run.expected[0]
    set_load_format(at_step_2, "lmc", {"store": run.location, "step": 2})
    at_step_2.collective_rpc("reload_weights")
    assert tokens(at_step_2) == run.expected[1]
    # And an update goes on from there.
    with pytest.raises(lmc.UsageError, match="an earlier one"):
        update(at_step_2, step=1)
    assert tokens(at_step_2) == run.expected[1]


def test_pauses(run, at_step_2, capsys):
    """The times of the calls that get an engine to a version, in turn. They are printed, and the tokens compared."""
    store = {"store": run.location}

    def wait_for_stage(worker):
        worker.weight_transfer_engine._staged[1].result()

    def prepare():
        update(at_step_2, step=2, stage=True)
        at_step_2.collective_rpc(wait_for_stage)

    # For each: the step before the call, and the call.
    ways = {
        "update_weights, prepared": (prepare, lambda: update(at_step_2, step=2)),
        "update_weights": (None, lambda: update(at_step_2, step=2)),
        "update_weights, full": (None, lambda: update(at_step_2, step=2, full=True)),
        "reload_weights of a store": (
            lambda: set_load_format(at_step_2, "lmc", {**store, "step": 2}),
            lambda: at_step_2.collective_rpc("reload_weights"),
        ),
        "reload_weights of files": (
            lambda: set_load_format(at_step_2, "auto", {}),
            lambda: at_step_2.collective_rpc("reload_weights", kwargs={"weights_path": str(run.files[1])}),
        ),
    }
    pauses = {way: [] for way in ways}
    for _ in range(5):
        for way, (before, call) in ways.items():
            # Every way begins with step 1 in memory: except for `full`, only changes are fetched from the store.
            update(at_step_2, **store, step=1, full=True)
            if before:
                before()
            started = time.monotonic()
            call()
            pauses[way].append(time.monotonic() - started)
            assert tokens(at_step_2) == run.expected[1]
    set_load_format(at_step_2, "lmc", store)
    with capsys.disabled():
        size = sum(tensor.nbytes for tensor in run.versions[1].values()) / 1e6
        print(f"\npause of each way to a version of {size:.1f} MB, median and range of 5, in ms:")
        for way, seconds in pauses.items():
            low, *_, high = sorted(seconds)
            values = (statistics.median(seconds), low, high)
            print("pause of {}: {:.1f} ({:.1f} to {:.1f})".format(way, *(value * 1000 for value in values)))


@pytest.mark.parametrize("every", [50, 1])
@pytest.mark.parametrize("stage", [False, True])
def test_a_damaged_version_is_not_written(run, at_step_2, every, stage):
    data = Path(run.location, "data")
    before = set(data.rglob("*"))
    # Weights of its own: those that an earlier version has are not stored again.
    step = run.publish(changed(run.versions[1], 10 + 2 * every + stage, every))
    (damaged,) = (path for path in set(data.rglob("*")) - before if path.is_file())
    whole = damaged.read_bytes()
    os.chmod(damaged, 0o600)
    damaged.write_bytes(whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :])
    try:
        if stage:
            update(at_step_2, step=step, stage=True)
        with pytest.raises(lmc.Error):
            update(at_step_2, step=step)
        assert tokens(at_step_2) == run.expected[1]
    finally:
        # Later versions are made from it.
        damaged.write_bytes(whole)
    update(at_step_2, step=step)
    assert tokens(at_step_2) != run.expected[1]


def test_another_base_is_refused(run, at_step_2, tmp_path):
    other = str(tmp_path / "other")
    lmc.sync.Publisher(other).publish(run.versions[0], step=9)
    with pytest.raises(lmc.UsageError, match="the model holds step 2 of"):
        update(at_step_2, store=other, step=9)
    assert tokens(at_step_2) == run.expected[1]


def test_files_are_compared_with_the_step_that_they_are_said_to_be(run, at_step_2, monkeypatch):
    update(at_step_2, step=1, full=True)
    # As if it was started on files.
    monkeypatch.setattr("lmc.vllm._engine.written", weakref.WeakSet())
    holder = at_step_2.collective_rpc(lambda worker: worker.weight_transfer_engine.model_config)[0]
    monkeypatch.setattr(holder, "model", str(run.files[0]))
    with pytest.raises(lmc.BaseMismatchError, match="does not hold step 2"):
        at_step_2.init_weight_transfer_engine({"init_info": {"store": run.location, "step": 2}})
    for _ in range(2):
        at_step_2.init_weight_transfer_engine({"init_info": {"store": run.location, "step": 1}})
    update(at_step_2, step=2)
    assert tokens(at_step_2) == run.expected[1]
    # The files say nothing about the model now.
    with pytest.raises(lmc.UsageError, match='"full": true'):
        at_step_2.init_weight_transfer_engine({"init_info": {"store": run.location, "step": 1}})
    with pytest.raises(lmc.UsageError, match="the model holds step 2"):
        update(at_step_2, step=1)


def test_files_say_nothing_about_a_model_that_the_load_format_has_written(run, at_step_2):
    with pytest.raises(lmc.UsageError, match='"full": true'):
        at_step_2.init_weight_transfer_engine({"init_info": {"store": run.location, "step": 2}})


def test_workers_that_disagree_know_nothing(run, at_step_2, monkeypatch):
    def another(value):
        return [value, None]

    step = run.publish(changed(run.versions[1], 7))
    monkeypatch.setattr("lmc.vllm._copy.gather", another)
    with pytest.raises(lmc.UsageError, match="it is not known which version"):
        update(at_step_2, store=run.location, step=step)
    monkeypatch.undo()
    # And so it stays, until all have loaded one.
    with pytest.raises(lmc.UsageError, match="it is not known which version"):
        update(at_step_2, store=run.location, step=step)
    assert tokens(at_step_2) == run.expected[1]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (lmc.NotFoundError("no step 3"), lmc.NotFoundError),
        (_errors.MissingFileError("no file"), _errors.MissingFileError),
        (lmc.torch.TensorError("too small"), lmc.UsageError),
        (RuntimeError("of vLLM"), lmc.Error),
    ],
)
def test_a_failure_of_another_worker_is_of_its_kind(monkeypatch, error, kind):
    def fails():
        raise error

    from lmc.vllm import _ranks

    sent = []
    monkeypatch.setattr(_ranks, "gather", lambda value: sent.append(pickle.dumps(value)) or [value])
    with pytest.raises(type(error), match=str(error)):
        _ranks.together("finding the version", fails)
    monkeypatch.setattr(_ranks, "gather", lambda value: [value, pickle.loads(sent[0])])
    with pytest.raises(lmc.Error) as raised:
        _ranks.together("finding the version", lambda: None)
    assert type(raised.value) is kind
    assert str(raised.value) == f"finding the version failed on worker 1: {type(error).__name__}: {error}"


def test_options_of_a_copy_are_set(run, at_step_2):
    """Also of one that the load format made, or an update; what is not named stays."""

    def copy():
        return lmc.vllm._copy.held[model_of(at_step_2)]

    assert not copy().verify
    tensors = run.versions[-1]
    for options in ({"verify": True}, {}, {"threads": 1}):
        at_step_2.init_weight_transfer_engine({"init_info": options})
        # Another program writes to the copy: whoever verifies it corrects that.
        next(iter(copy().tensors.values())).view(-1)[-1] += 1
        tensors = changed(tensors, 5)
        update(at_step_2, store=run.location, step=run.publish(tensors))
        assert all(torch.equal(copy().tensors[name], tensor) for name, tensor in tensors.items())
    assert (copy().verify, copy().threads) == (True, 1)
    update(at_step_2, store=run.location, full=True)
    assert (copy().verify, copy().threads) == (True, 1)
    at_step_2.init_weight_transfer_engine({"init_info": {"verify": False}})
    assert (copy().verify, copy().threads) == (False, 1)


def test_a_version_that_not_all_workers_have_staged_is_decoded(run, at_step_2, monkeypatch):
    step = run.publish(changed(run.versions[1], 8))
    update(at_step_2, step=step, stage=True)
    engine = at_step_2.collective_rpc(lambda worker: worker.weight_transfer_engine)[0]
    decode, decoded = engine._decode, []
    monkeypatch.setattr(engine, "_decode", lambda *arguments: decoded.append(None) or decode(*arguments))
    monkeypatch.setattr("lmc.vllm._engine.gather", lambda value: [value, False])
    update(at_step_2, step=step)
    assert len(decoded) == 1
    assert tokens(at_step_2) != run.expected[1]


def test_replicas_in_one_group_are_refused(at_step_2):
    kind = at_step_2.collective_rpc(lambda worker: type(worker.weight_transfer_engine))[0]
    config = types.SimpleNamespace(parallel_config=types.SimpleNamespace(data_parallel_size=2))
    with pytest.raises(lmc.UsageError, match="data_parallel_size is 2"):
        kind(None, config, None, None)


def test_a_store_that_is_lost_changes_nothing(run, at_step_2):
    away = Path(run.location).rename(run.folder / "away")
    with pytest.raises(lmc.Error):
        update(at_step_2)
    away.rename(run.location)
    assert tokens(at_step_2) == run.expected[1]


def test_what_a_killed_publisher_saved_is_no_version(run, at_step_2, tmp_path):
    location = str(tmp_path / "store")
    lmc.sync.Publisher(location).publish(run.versions[0], step=1)
    update(at_step_2, store=location, full=True)
    before = set(Path(location, "data").rglob("*"))
    killed = start(run.files[1], "publish", location)
    assert killed.stdout.readline() == "saved\n"
    killed.kill()
    killed.wait()
    assert set(Path(location, "data").rglob("*")) > before
    update(at_step_2)
    assert tokens(at_step_2) == run.expected[0]
    lmc.sync.Publisher(location).publish(run.versions[1], step=2)
    update(at_step_2)
    assert tokens(at_step_2) == run.expected[1]


@pytest.mark.parametrize("every", [50, 1])
def test_an_update_that_is_interrupted_while_it_is_decoded_is_not_written(run, at_step_2, monkeypatch, every):
    step = run.publish(changed(run.versions[1], 300 + every, every))
    stage = lmc.sync.Follower.stage

    def interrupted(follower, snapshot):
        # As Ctrl-C and `kill -INT` do.
        signal.raise_signal(signal.SIGINT)
        return stage(follower, snapshot)

    monkeypatch.setattr("lmc.sync.Follower.stage", interrupted)
    with pytest.raises(KeyboardInterrupt):
        update(at_step_2, step=step)
    monkeypatch.undo()
    assert tokens(at_step_2) == run.expected[1]
    update(at_step_2, step=step)
    assert tokens(at_step_2) != run.expected[1]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_update_that_ends_halfway_is_taken_back(run, at_step_2, monkeypatch, error):
    step = run.publish(changed(run.versions[1], 5))
    model = model_of(at_step_2)
    load, calls = model.load_weights, []

    def half(tensors):
        calls.append(None)
        if len(calls) > 1:
            return load(tensors)
        tensors = list(tensors)
        load(tensors[: len(tensors) // 2])
        raise error

    monkeypatch.setattr(model, "load_weights", half)
    with pytest.raises(error):
        update(at_step_2, step=step)
    assert len(calls) == 2
    assert tokens(at_step_2) == run.expected[1]
    update(at_step_2, step=step)
    assert tokens(at_step_2) != run.expected[1]


def test_after_a_reload_that_does_not_complete_there_is_no_other(run, at_step_2, monkeypatch):
    step = run.publish(changed(run.versions[1], 6))

    def fails(*_arguments):
        raise RuntimeError("as asked")

    monkeypatch.setattr("lmc.vllm._write.finalize_layerwise_reload", fails)
    with pytest.raises(lmc.UsageError, match="start the engine again.*as asked"):
        update(at_step_2, step=step)
    monkeypatch.undo()
    for info in ({"step": step}, {"store": run.location, "full": True}):
        with pytest.raises(lmc.UsageError, match="start the engine again"):
            update(at_step_2, **info)
    with pytest.raises(lmc.UsageError, match="start the engine again"):
        at_step_2.collective_rpc("reload_weights")
    # For the tests after this one.
    at_step_2.collective_rpc(finalize)
    with pytest.raises(lmc.UsageError, match="it is not known which version"):
        update(at_step_2, store=run.location, step=step)


def finalize(worker):
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

    finalize_layerwise_reload(worker.model_runner.get_model(), worker.model_config)


def test_a_copy_that_fails_to_change_is_not_the_base_of_another_version(run, at_step_2, monkeypatch):
    step = run.publish(changed(run.versions[1], 9))

    def fails(*_arguments):
        raise RuntimeError("as asked")

    monkeypatch.setattr("lmc.vllm._copy.Copy.commit", fails)
    with pytest.raises(RuntimeError, match="as asked"):
        update(at_step_2, step=step)
    monkeypatch.undo()
    with pytest.raises(lmc.UsageError, match="it is not known which version"):
        update(at_step_2, store=run.location, step=step)


def test_weights_that_are_missing_are_noticed(run, at_step_2, tmp_path):
    other = str(tmp_path / "other")
    lmc.sync.Publisher(other).publish({k: v for k, v in run.versions[0].items() if k != "lm_head.weight"}, step=1)
    with pytest.raises(lmc.UsageError, match="lm_head.weight"):
        update(at_step_2, store=other, full=True)
    assert tokens(at_step_2) == run.expected[1]


@pytest.fixture(scope="module")
def server(run, tmp_path_factory):
    with Server(tmp_path_factory.mktemp("server"), run.config, {"store": run.location, "step": 1}) as server:
        yield server


def test_requests_update_a_server(run, server):
    assert server.tokens() == run.expected[0]
    server.update(step=2, stage=True)
    assert server.tokens() == run.expected[0]
    server.post("/pause")
    server.update(step=2)
    server.post("/resume")
    assert server.tokens() == run.expected[1]
    with pytest.raises(RequestError, match="an earlier one"):
        server.update(step=1)
    assert server.tokens() == run.expected[1]
    server.post("/collective_rpc", {"method": "reload_weights"})
    assert server.tokens() == run.expected[0]


@pytest.mark.parametrize("what", ["stage", "write"])
def test_a_server_whose_client_is_killed_serves_one_version(run, server, what):
    server.update(store=run.location, step=1, full=True)
    client = server.client(2, what)
    assert client.stdout.readline() == "began\n"
    if what == "stage":
        client.kill()
        client.wait()
        assert server.tokens() == run.expected[0]
    else:
        # The engine gets the request only when the client is gone.
        engine = server.engine()
        os.kill(engine, signal.SIGSTOP)
        try:
            client.stdin.write("\n")
            client.stdin.flush()
            assert client.stdout.readline() == "asked\n"
            client.kill()
            client.wait()
        finally:
            os.kill(engine, signal.SIGCONT)
        assert server.tokens() in run.expected
    with pytest.raises(RequestError, match="Call finish_weight_update first"):
        server.update(step=2)
    server.post("/finish_weight_update")
    server.update(step=2)
    assert server.tokens() == run.expected[1]


def test_two_workers(run):
    # Sums of two workers may be rounded otherwise than those of one.
    started = [start(run.config, 2, run.location), start(run.files[1], 2)]
    (before, failed, after), (expected,) = map(end, started)
    assert failed == before
    assert after == expected != before
