"""Controls a headless Chromium over its DevTools protocol; standard library only."""
import base64
import json
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request


class WebSocket:
    """The part of RFC 6455 that Chromium's DevTools need: text frames of any length, no extensions."""

    def __init__(self, host, port, path, timeout=60):
        self.socket = socket.create_connection((host, port), timeout)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.socket.recv(1)
        assert head.startswith(b"HTTP/1.1 101"), head

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        length = struct.pack(">BBH", 0x81, 0xFE, len(data)) if len(data) < 65536 else struct.pack(">BBQ", 0x81, 0xFF, len(data))
        self.socket.sendall(length + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def recv(self):
        text = b""
        while True:
            first, length = self.exactly(2)
            length &= 0x7F
            if length == 126:
                length = struct.unpack(">H", self.exactly(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self.exactly(8))[0]
            text += self.exactly(length)
            if first & 0x80:
                return text.decode()

    def exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("Chromium hung up")
            data += piece
        return data


class Browser:
    """One page. `complaints` collects errors on its console and uncaught exceptions."""

    def __init__(self, *flags):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--remote-debugging-port=0", f"--user-data-dir={self.profile.name}",
             "--window-size=1400,3000", *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.complaints, self.number = [], 0
        port = self.wait_for_port()
        pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30))
        path = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page").split(str(port), 1)[1]
        self.link = WebSocket("127.0.0.1", port, path)
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def wait_for_port(self):
        told = pathlib.Path(self.profile.name, "DevToolsActivePort")
        for _ in range(600):
            if told.exists() and told.read_text().count("\n"):
                return int(told.read_text().splitlines()[0])
            time.sleep(0.1)
        raise TimeoutError("Chromium did not start")

    def call(self, method, **parameters):
        self.number += 1
        self.link.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.link.recv())
            self.note(message)
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]

    def note(self, message):
        method, told = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"].get("exception", told["exceptionDetails"])))
        if method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(told["args"]))
        if method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.complaints.append(told["entry"]["text"])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def value(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.value(script):
                return
            time.sleep(0.1)
        raise TimeoutError(f"never became true: {script}")

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.profile.cleanup()
