"""Drives a Chromium through its DevTools protocol, over pipes: nothing but Python is needed, and no port is open."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = "needs Chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"
TIMEOUT = 120
#: Seconds in which a page that is loaded may still ask for something, or complain.
SETTLES = 0.2


def chromium():
    """The path of a Chromium, or None."""
    named = os.environ.get("CHROMIUM")
    return next(filter(None, map(shutil.which, [named] if named else NAMES)), None)


class Browser:
    """A headless Chromium with one page, and its events."""

    def __init__(self, path):
        self.profile = tempfile.TemporaryDirectory(prefix="lmc-chromium-", ignore_cleanup_errors=True)
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        options = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "--no-first-run"]
        # Requests that a browser makes by itself would be attributed to the page.
        options += ["--disable-background-networking", "--disable-component-update", "--disable-gpu"]
        options += ["--disable-dev-shm-usage", "--hide-scrollbars"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")

        def descriptors():
            # Each descriptor could be in the other's place.
            reading, writing = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self.out, self.into, self.rest = ours_out, ours_in, b""
        self.number, self.session, self.events = 0, None, []
        self.process = None
        try:
            self.process = subprocess.Popen(
                [path, *options, "about:blank"],
                preexec_fn=descriptors,
                pass_fds=(3, 4),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except BaseException:
            self.close()
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Network", "Runtime", "Log", "Audits", "DOM"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the browser, if it began, and waits for its end."""
        if self.process:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.profile.cleanup()

    def message(self, deadline):
        """The next message of the browser."""
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            got = os.read(self.into, 1 << 20)
            if not got:
                raise RuntimeError(f"Chromium ended with code {self.process.wait()}")
            self.rest += got
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def call(self, method, **params):
        """Calls a method, and returns its result. Events meanwhile are kept in `events`."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data) :]
        deadline = time.monotonic() + TIMEOUT
        while True:
            message = self.message(deadline)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def open(self, url):
        """Loads a page, and waits for events until shortly after it is loaded; earlier events are dropped."""
        self.events = []
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + TIMEOUT
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            message = self.message(deadline)
            if "method" in message:
                self.events.append(message)
        # By our clock: without JavaScript the page has none.
        time.sleep(SETTLES)
        # Events of the page until now come before the answer.
        self.run("0")

    def run(self, expression):
        """The value of an expression of JavaScript."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def click(self, expression):
        """Clicks with the mouse on the middle of an element, which an expression gives."""
        box = self.run(
            f"(() => {{ const e = {expression}; e.scrollIntoView({{block: 'center', inline: 'center'}});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def press(self, key, code):
        """Presses a key."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def type(self, text):
        """Types text into the focused element."""
        self.call("Input.insertText", text=text)

    def requests(self):
        """The addresses that the page asked for, its own first."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def complaints(self):
        """The browser's complaints about the page: errors, violations of its policy, and other issues."""
        found = []
        for e in self.events:
            params = e["params"]
            if e["method"] == "Audits.issueAdded":
                found.append(f"{params['issue']['code']}: {json.dumps(params['issue']['details'])[:300]}")
            elif e["method"] == "Log.entryAdded":
                found.append(f"{params['entry']['source']}: {params['entry']['text']}")
            elif e["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
                found.append(f"{e['method']}: {json.dumps(params)[:300]}")
        return found


if __name__ == "__main__":
    print(chromium() or sys.exit(INSTALL))
