"""A TCP proxy on loopback whose link can be cut, slowed, held and damaged."""
import socket
import threading
import time


class Link:
    """Forwards connections to `target` until close(); the faults apply to all connections that are open."""

    def __init__(self, target):
        self.target = target
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listening.getsockname()[1]
        self.lock = threading.Lock()
        self.pairs = []
        self.slow_until = 0.0
        self.held_until = 0.0
        self.damage = 0  # pieces that are to be damaged
        self.closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def slow(self, seconds):
        self.slow_until = time.monotonic() + seconds

    def hold(self, seconds):
        self.held_until = time.monotonic() + seconds

    def damage_next(self):
        with self.lock:
            self.damage += 1

    def close(self):
        self.closed = True
        self.listening.close()
        self.cut()

    def _accept(self):
        while not self.closed:
            try:
                near, _ = self.listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target), timeout=5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            with self.lock:
                self.pairs.append((near, far))
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(a, b), daemon=True).start()

    def _changed(self, piece):
        with self.lock:
            if self.damage == 0 or len(piece) < 64:
                return piece
            self.damage -= 1
        middle = len(piece) // 2
        return piece[:middle] + bytes([piece[middle] ^ 0x40]) + piece[middle + 1:]

    def _pump(self, source, sink):
        try:
            while piece := source.recv(65536):
                while time.monotonic() < self.held_until:
                    time.sleep(0.01)
                if time.monotonic() < self.slow_until:
                    time.sleep(0.02 + len(piece) / 4e6)
                sink.sendall(self._changed(piece))
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
