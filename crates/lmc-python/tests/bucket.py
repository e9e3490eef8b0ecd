"""A bucket of S3 that can only be read, for tests that decide when it answers."""

import contextlib
import http.server
import re
import threading
import urllib.parse
from xml.sax.saxutils import escape


@contextlib.contextmanager
def bucket(directory, monkeypatch, before=lambda key: None):
    """Serves the files of a directory as `s3://bucket/`; calls `before` with the key of an object that is wanted."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):  # noqa: N802
            url = urllib.parse.urlsplit(self.path)
            key, query = urllib.parse.unquote(url.path), dict(urllib.parse.parse_qsl(url.query))
            path = directory / key.removeprefix("/bucket").lstrip("/")
            if "list-type" in query:
                self.answer(200, listing(directory, query).encode())
            elif path.is_file():
                before(str(path.relative_to(directory)))
                data = path.read_bytes()
                found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                if found:
                    start, end = int(found[1]), min(int(found[2]) + 1, len(data))
                    where = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
                    self.answer(206, data[start:end], stat(path) | where)
                else:
                    self.answer(200, data, stat(path))
            else:
                self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

        def do_HEAD(self):  # noqa: N802
            path = directory / urllib.parse.unquote(self.path).removeprefix("/bucket").lstrip("/")
            found = path.is_file()
            self.answer(200 if found else 404, path.read_bytes() if found else b"", stat(path) if found else None)

        def answer(self, status, body, headers=None):
            self.send_response(status)
            for name, value in {"Content-Length": len(body), **(headers or {})}.items():
                self.send_header(name, str(value))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, "test")
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def stat(path):
    return {"ETag": f'"{path.stat().st_ino}"', "Last-Modified": "Fri, 27 Nov 2026 12:00:00 GMT"}


def listing(directory, query):
    """The answer to ListObjectsV2."""
    prefix, after, delimiter = query.get("prefix", ""), query.get("start-after", ""), query.get("delimiter")
    keys = sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())
    objects, folders = "", dict[str, None]()
    for key in keys:
        rest = key.removeprefix(prefix)
        if not key.startswith(prefix) or key <= after:
            continue
        if delimiter and delimiter in rest:
            folders[prefix + rest.split(delimiter)[0] + delimiter] = None
            continue
        size, tag = (directory / key).stat().st_size, stat(directory / key)["ETag"]
        objects += f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-27T12:00:00.000Z</LastModified>"
        objects += f"<ETag>{escape(tag)}</ETag><Size>{size}</Size></Contents>"
    folders = "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders)
    return (
        "<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated>"
        f"<KeyCount>{len(keys)}</KeyCount>{objects}{folders}</ListBucketResult>"
    )
