"""The folder of a run, for one stage at a time: two would take the session on the server from each other."""

import errno
import fcntl
import os


class RunFolder:
    """Holds a folder, which it creates if need be, until `release()`, or until this process ends however it ends."""

    def __init__(self, path):
        os.makedirs(path, mode=0o700, exist_ok=True)
        self.path = os.path.realpath(path)
        self._file = open(os.path.join(path, "stage.lock"), "w")
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock, forked children do not hold it as well
        except OSError as error:
            self.release()
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise RuntimeError(f"run_dir: a stage of another process is at work in {path}; end that process, or take another folder") from None

    def release(self):
        self._file.close()
