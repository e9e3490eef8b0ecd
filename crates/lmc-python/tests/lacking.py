"""A file system that lacks what some have, for tests: `python lacking.py DIRECTORY MOUNT MODE` shows a directory.

* `links`: no hard links, no rename without replacement (gcsfuse, rclone, s3fs, Google Drive)
* `attributes`: modes, owners and times are refused
* `rename`: nothing of these, no rename, no symbolic links; files are written from front to end (buckets)
* `sync`: nothing can be synced, and one file cannot be read and written at once
* `space`: only when a file is closed, it turns out that there is no space
"""

import errno
import os
import sys

import mfusepy

ATTRIBUTES = {"chmod": errno.EPERM, "chown": errno.EPERM, "utimens": errno.ENOSYS}
LACKS = {
    "links": {"link": errno.ENOSYS},
    "attributes": ATTRIBUTES,
    "rename": ATTRIBUTES | dict.fromkeys(("link", "rename", "symlink"), errno.ENOSYS) | {"any order": errno.EINVAL},
    "sync": {"fsync": errno.EINVAL, "fsyncdir": errno.EINVAL, "read and write": errno.EPERM, "link": errno.EPERM},
    "space": {"flush": errno.ENOSPC, "link": errno.EPERM},
}


class Lacking(mfusepy.Operations):
    use_ns = True

    def __init__(self, root, lacks):
        self.root, self.lacks, self.written = root, lacks, {}

    def _needs(self, what):
        if what in self.lacks:
            raise mfusepy.FuseOSError(self.lacks[what])

    def _at(self, path):
        return os.path.join(self.root, path.lstrip("/"))

    def getattr(self, path, fh=None):
        found = os.lstat(self._at(path))
        fields = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid")
        times = {f"st_{t}time": getattr(found, f"st_{t}time_ns") for t in "mac"}
        return {name: getattr(found, name) for name in fields} | times

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(self._at(path))]

    def readlink(self, path):
        return os.readlink(self._at(path))

    def mkdir(self, path, mode):
        os.mkdir(self._at(path), mode)

    def rmdir(self, path):
        os.rmdir(self._at(path))

    def unlink(self, path):
        os.unlink(self._at(path))

    def rename(self, old, new):
        self._needs("rename")
        os.rename(self._at(old), self._at(new))

    def link(self, new, old):
        self._needs("link")
        os.link(self._at(old), self._at(new))

    def symlink(self, new, target):
        self._needs("symlink")
        os.symlink(target, self._at(new))

    def chmod(self, path, mode):
        self._needs("chmod")
        os.chmod(self._at(path), mode)

    def chown(self, path, uid, gid):
        self._needs("chown")
        os.chown(self._at(path), uid, gid)

    def utimens(self, path, times=None):
        self._needs("utimens")
        os.utime(self._at(path), ns=times)

    def open(self, path, flags):
        fd = os.open(self._at(path), flags)
        self.written[fd] = 0
        return fd

    def create(self, path, mode, fi=None):
        if "read and write" in self.lacks and getattr(fi, "flags", 0) & os.O_RDWR:
            self._needs("read and write")
        fd = os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        self.written[fd] = 0
        return fd

    def read(self, path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        if offset != self.written[fh]:
            self._needs("any order")
        n = os.pwrite(fh, data, offset)
        self.written[fh] = offset + n
        return n

    def truncate(self, path, length, fh=None):
        if length:
            self._needs("any order")
        os.truncate(self._at(path), length)

    def flush(self, path, fh):
        if os.fstat(fh).st_size:
            self._needs("flush")

    def fsync(self, path, datasync, fh):
        self._needs("fsync")
        os.fsync(fh)

    def fsyncdir(self, path, datasync, fh):
        self._needs("fsyncdir")

    def release(self, path, fh):
        os.close(fh)

    def statfs(self, path):
        found = os.statvfs(self._at(path))
        names = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_frsize", "f_namemax")
        return {name: getattr(found, name) for name in names}


if __name__ == "__main__":
    root, mount, mode = sys.argv[1:]
    mfusepy.FUSE(Lacking(root, LACKS[mode]), mount, foreground=True)
