"""Clients that mean no good: garbage, silence, floods, and TLS without the right token. Each returns at once."""
import socket
import ssl
import threading
import time


def _connected(port):
    end = socket.create_connection(("127.0.0.1", port), timeout=5)
    end.settimeout(5)
    return end


def _in_background(work):
    def run():
        try:
            work()
        except (OSError, ValueError):
            pass  # it was turned away

    threading.Thread(target=run, daemon=True).start()


def garbage(port, draw):
    bytes_ = draw.randbytes(draw.randrange(1, 100_000))

    def work():
        with _connected(port) as end:
            end.sendall(bytes_)
            end.recv(4096)

    _in_background(work)


def silent(port, draw):
    count, seconds = draw.randrange(1, 30), draw.uniform(0.1, 4)

    def work():
        ends = [_connected(port) for _ in range(count)]
        time.sleep(seconds)
        for end in ends:
            end.close()

    _in_background(work)


def _tls(port):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(_connected(port))


def huge(port, draw):
    """HTTP/2 frames that announce 16 MB and never stop."""
    kind, megabytes = draw.randrange(256), draw.randrange(1, 12)

    def work():
        with _tls(port) as end:
            end.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\xff\xff\xff" + bytes([kind]) + b"\0\0\0\0\1")
            for _ in range(megabytes):
                end.sendall(b"x" * (1 << 20))

    _in_background(work)


def half_handshake(port, draw):
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draw.randbytes(32) + b"\x20" + draw.randbytes(32)
    seconds = draw.uniform(0.1, 3)

    def work():
        with _connected(port) as end:
            end.sendall(hello)
            time.sleep(seconds)

    _in_background(work)
