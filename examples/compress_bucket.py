"""Compresses the models of a bucket, or of any location that fsspec knows: FILE becomes FILE.lmc beside it.

    python examples/compress_bucket.py s3://bucket/models                       # one file after the other
    python examples/compress_bucket.py s3://bucket/models --ray                 # all machines of a Ray cluster
    sbatch --array=0-63 --cpus-per-task=8 --wrap \\
        "python examples/compress_bucket.py s3://bucket/models"                 # 64 jobs of Slurm

With --rm, each file is removed after its compressed one was read back from the bucket. The same command continues a run
that was ended: files that are removed, or without --rm compressed, are left out. Jobs of an array share the files by
the hashes of their names, so they need not begin at the same time.

The directory of temporary files needs room for a file and its compressed one, for each that is compressed at a time.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import fsspec
import lmc

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".distcp", ".gguf", ".npz", ".npy", ".onnx")
# The job of an array of Slurm, how many there are, and the number of the first; without an array, one.
NUMBERS = {"ID": 0, "COUNT": 1, "MIN": 0}


def compress(url: str, *, remove: bool, threads: int) -> str:
    """Compresses one file; returns what was done."""
    fs, path = fsspec.url_to_fs(url)
    with tempfile.TemporaryDirectory(prefix="lmc-") as folder:
        # With its name, which says what the file should be.
        raw = Path(folder) / Path(path).name
        fs.get_file(path, str(raw))
        done = lmc.compress_file(raw, f"{raw}.lmc", threads=threads)
        fs.put_file(f"{raw}.lmc", f"{path}.lmc")
    if remove:
        with fs.open(f"{path}.lmc", "rb") as file, open(os.devnull, "wb") as nowhere:
            back = lmc.decompress_stream(file, nowhere, threads=threads)
        if back.content_hash != done.content_hash:
            raise ValueError(f"{url}.lmc is not what was written, so {url} stays: compress it again")
        fs.rm_file(path)
    return f"{url}: {done.raw_size} -> {done.compressed_size} bytes"


def chosen(location: str, *, again: bool) -> Iterator[str]:
    """The files of a location, without those that are compressed already unless `again`; only those of this job if it
    is one of an array."""
    job, jobs, first = (int(os.environ.get(f"SLURM_ARRAY_TASK_{name}", n)) for name, n in NUMBERS.items())
    fs, root = fsspec.url_to_fs(location)
    found = set(fs.find(root))
    for path in sorted(found):
        theirs = zlib.crc32(path.removeprefix(root).encode()) % jobs == job - first
        if path.endswith(SUFFIXES) and theirs and (again or f"{path}.lmc" not in found):
            yield fs.unstrip_protocol(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("location")
    parser.add_argument("--rm", action="store_true", help="remove each file after its compressed one was read back")
    parser.add_argument("--ray", action="store_true", help="on the cluster that RAY_ADDRESS names, or else here")
    parser.add_argument("--threads", type=int, default=0, help="for each file (all cores, with --ray up to 4)")
    args = parser.parse_args()
    urls = list(chosen(args.location, again=args.rm))

    if args.ray:
        import ray

        ray.init(log_to_driver=False)
        threads = args.threads or int(min(4, ray.cluster_resources()["CPU"]))
        task = ray.remote(num_cpus=threads)(compress)
        jobs = [task.remote(url, remove=args.rm, threads=threads) for url in urls]
        work = [functools.partial(ray.get, job) for job in jobs]
    else:
        work = [functools.partial(compress, url, remove=args.rm, threads=args.threads) for url in urls]
    failed = 0
    for url, result in zip(urls, work, strict=True):
        try:
            print(result(), flush=True)
        except Exception as e:
            failed += 1
            print(f"{url}: {getattr(e, 'cause', e)}", file=sys.stderr)
    if failed:
        sys.exit(f"{failed} of {len(urls)} files were not compressed: repeat the command")


if __name__ == "__main__":
    main()
