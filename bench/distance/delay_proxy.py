#!/usr/bin/env python3
"""Forwards TCP connections and holds every byte for a fixed time, each direction on its own: a far server on one machine.

  delay_proxy.py --to HOST:PORT --delay-ms 100 [--rate-MBps 10]     prints the port it listens on (127.0.0.1)

A delay occupies nothing: bytes that follow are not held longer. With a rate, bytes of one direction also follow each other.
"""
import argparse
import asyncio
import socket
import time

CHUNK = 1 << 16
WINDOW = 64 << 20  # bytes under way in one direction before the sender has to wait


async def carry(reader, writer, delay, rate):
    queue = asyncio.Queue()
    under_way = 0
    room = asyncio.Event()
    room.set()

    async def take():
        nonlocal under_way
        free_at = 0.0
        while data := await reader.read(CHUNK):
            now = time.monotonic()
            if rate:
                free_at = max(free_at, now) + len(data) / rate
                now = free_at
            under_way += len(data)
            if under_way > WINDOW:
                room.clear()
            queue.put_nowait((now + delay, data))
            await room.wait()
        queue.put_nowait((time.monotonic() + delay, b""))

    async def give():
        nonlocal under_way
        while True:
            at, data = await queue.get()
            wait = at - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            if not data:
                break
            writer.write(data)
            await writer.drain()
            under_way -= len(data)
            room.set()
        writer.close()

    try:
        await asyncio.gather(take(), give())
    except (ConnectionError, OSError):
        writer.close()


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", required=True)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--rate-MBps", type=float, default=0, help="10^6 bytes per second and direction; 0: no limit")
    flags = parser.parse_args()
    host, port = flags.to.rsplit(":", 1)

    async def connect(reader, writer):
        try:
            there_reader, there_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        for end in (writer, there_writer):
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seconds, rate = flags.delay_ms / 1e3, flags.rate_MBps * 1e6
        await asyncio.gather(carry(reader, there_writer, seconds, rate), carry(there_reader, writer, seconds, rate))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
