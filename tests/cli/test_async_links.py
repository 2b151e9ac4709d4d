"""Asynchronous training over links that lose, cut and damage messages, and among strangers."""
import collections
import os
import random
import re
import resource
import select
import socket
import struct
import threading
import time

import async_job
from async_job import JobTest, Log, command_has_hooks, read_events


class Link(threading.Thread):
    """A link to a port of this host. It closes each connection after some bytes, or damages a byte before that."""

    def __init__(self, port, seed, bytes_between):
        super().__init__(daemon=True)
        self.to, self.random, self.between = port, random.Random(seed), bytes_between
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.cut, self.damaged, self.over = 0, 0, threading.Event()

    def run(self):
        pairs = {} # socket: the other one, bytes until something happens, what happens
        while not self.over.is_set():
            for link in select.select([self.listener, *pairs], [], [], 0.1)[0]:
                if link is self.listener:
                    near, far = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.to))
                    fate = [self.random.randrange(1, 2 * self.between), self.random.random() < 0.3]
                    pairs[near], pairs[far] = (far, fate), (near, fate)
                elif link in pairs:
                    self.pass_on(link, pairs)
        for link in pairs:
            link.close()

    def pass_on(self, link, pairs):
        other, fate = pairs[link]
        try:
            data = bytearray(link.recv(1 << 16))
            end = not data
            if 0 < fate[0] <= len(data):
                if fate[1]:
                    data[fate[0] - 1] ^= 1 << self.random.randrange(8)
                    self.damaged += 1
                else:
                    del data[fate[0]:]
                    self.cut += 1
                    end = True
            fate[0] -= len(data)
            other.sendall(data)
        except OSError:
            end = True
        if end:
            for one in (link, other):
                del pairs[one]
                one.close()

    def close(self):
        self.over.set()
        self.join()
        self.listener.close()


def greeting(mechanism, server=0):
    """The first 64 bytes of a connection of ZMTP 3.1."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes([server]) + bytes(31)


def curve_hello(rng):
    """A command HELLO of CURVE whose signature is wrong."""
    return b"\x04\xc8\x05HELLO\x01\x00" + bytes(72) + rng.randbytes(32) + bytes(8) + rng.randbytes(80)


class Strangers(threading.Thread):
    """Connects to ports without the secret: garbage, cut and damaged handshakes, frames of absurd sizes, and `slow` half
    open connections at a time, some of which send a byte now and then."""

    def __init__(self, ports, seed, slow):
        super().__init__(daemon=True)
        self.ports, self.random, self.slow = ports, random.Random(seed), slow
        self.kinds, self.closed, self.over, self.open = collections.Counter(), 0, threading.Event(), []

    def frames(self):
        """Returns the name of a kind and what it sends."""
        rng = self.random
        kind = rng.choice(["garbage", "greeting", "null", "plain", "hello", "damaged", "size", "command"])
        start = greeting(b"CURVE")
        if kind == "garbage":
            return kind, rng.randbytes(rng.randrange(1, 5000))
        if kind == "greeting":
            return kind, start[:rng.randrange(1, 64)]
        if kind == "null":
            return kind, greeting(b"NULL") + b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
        if kind == "plain":
            return kind, greeting(b"PLAIN") + b"\x04\x10\x05HELLO\x05admin\x03abc"
        if kind == "hello":
            return kind, (start + curve_hello(rng))[:rng.randrange(64, 266)]
        if kind == "size": # a long frame that says it has up to 2^64 bytes
            return kind, start + bytes([rng.choice([2, 6])]) + struct.pack(">Q", rng.getrandbits(64)) + rng.randbytes(300)
        data = bytearray(start + curve_hello(rng))
        if kind == "damaged":
            for _ in range(rng.randrange(1, 6)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            return kind, bytes(data)
        return kind, start + b"\x04" + bytes([rng.randrange(256)]) + rng.randbytes(rng.randrange(600))

    def connect(self):
        link = socket.create_connection(("127.0.0.1", self.random.choice(self.ports)), timeout=60)
        link.setblocking(False)
        self.open.append(link)
        return link

    def send(self, link, data):
        try:
            link.send(data)
        except OSError:
            pass

    def sweep(self):
        """Forgets the connections that the holders have closed, and lets some of the others send a byte."""
        for link in list(self.open):
            try:
                gone = link.recv(1 << 12) == b""
            except BlockingIOError:
                gone = False
            except OSError:
                gone = True
            if gone:
                self.closed += 1
                self.open.remove(link)
                link.close()
            elif self.random.random() < 0.2:
                self.send(link, bytes([self.random.randrange(256)]))

    def run(self):
        while not self.over.is_set():
            try:
                while len(self.open) < self.slow and not self.over.is_set():
                    link = self.connect()
                    if self.random.random() < 0.5: # a connection that says nothing, or little
                        self.kinds["slow"] += 1
                        self.send(link, greeting(b"CURVE")[:self.random.randrange(11)])
                    else:
                        kind, data = self.frames()
                        self.kinds[kind] += 1
                        self.send(link, data)
            except OSError:
                pass # the holders have ended
            self.sweep()
            time.sleep(0.02)
        for link in self.open:
            link.close()

    def end(self):
        self.over.set()
        self.join()


class AsyncLinksTest(JobTest):
    # --- messages that are lost ---------------------------------------------------------------------------

    def test_lost_messages_are_sent_again(self):
        """Of all messages of workers, in both directions, a seventeenth is lost. Each sample is applied once, each gradient is
        decided once, and the log tells versions and staleness as before."""
        if not command_has_hooks():
            self.skipTest("built without CLT_TESTING")
        self.launch(4, "--epochs", "1", "--async", "16", "--servers", "2", variables={"CLT_TESTING_LOSSY": "0.06:7"})
        log = Log(self.events)
        log.check_once(self, 1)
        for what in ("ask", "pull", "push"):
            self.assertGreater(log.repeated[what], 0, log.repeated)
        other = [(e["who"], e["sequence"], e["version"]) for e in read_events(self.events + ".1") if e["event"] == "apply"]
        own = [(e["who"], e["sequence"], e["version"] + 1) for e in log.events
               if e["event"] == "push" and e["verdict"] == "applied"]
        self.assertEqual(other, own)
        self.assertEqual([e for e in log.events if e["event"] == "lost" and e["reason"] != "bye"], [])

    def test_connections_that_break_are_made_again(self):
        """The workers' connections to holder 0 end after some bytes, or carry a damaged byte, again and again."""
        words = ["--epochs", "1", "--async", "16"]
        child, port = self.start_holder(*words)
        links = [Link(port, seed, 800000) for seed in (1, 2, 3)]
        for link in links:
            link.start()
        workers = [self.begin_work(k, link.port, *words) for k, link in enumerate(links)]
        repeated = sum(int(re.search(r"(\d+) requests sent again", self.finish(worker))[1]) for worker in workers)
        self.finish(child)
        for link in links:
            link.close()
        log = Log(self.events)
        log.check_once(self, 1)
        self.assertGreater(sum(link.cut for link in links), 3)
        self.assertGreater(sum(link.damaged for link in links), 0)
        self.assertGreater(repeated, 0)
        # Damaged bytes did not become other messages.
        self.assertEqual(set(log.verdicts) - {"applied", "discarded"}, set())
        self.assertEqual(sorted(e["worker"] for e in log.events if e["event"] == "join"), [0, 1, 2])

    # --- strangers ----------------------------------------------------------------------------------------

    def test_wrong_secrets_and_other_models_are_refused(self):
        words = ["--epochs", "2", "--async", "4"]
        child, port = self.start_holder(*words)
        wrong = self.work(7, port, *words, "--setup-timeout", "3", secret="another secret here")
        self.assertEqual(wrong.returncode, 1)
        self.assertRegex(wrong.stderr, r"^cltrain: worker 7: holder 0 at 127.0.0.1:\d+ does not answer within 3 s: .*"
                                       r"another secret\n$")
        other = self.work(6, port, *words, "--shuffle", "off")
        self.assertEqual(other.returncode, 1)
        self.assertRegex(other.stderr, r"^cltrain: holder 0 at 127.0.0.1:\d+ refuses worker 6: it has other data, or "
                                       r"another --batch, --seq-len, --shuffle, .*\n$")
        other = self.work(5, port, *words, "--precision", "bf16")
        self.assertRegex(other.stderr, r"^cltrain: holder 0 at 127.0.0.1:\d+ refuses worker 5: it has another model, "
                                       r"--precision, --freeze or --servers: .*\n$")
        right = self.work(0, port, *words)
        self.assertEqual(right.returncode, 0, right.stderr)
        self.finish(child)
        log = Log(self.events)
        log.check_once(self, 2)
        self.assertEqual({e["worker"] for e in log.events if e["event"] == "join"}, {0})

    def ports(self):
        """Returns the ports at which the processes of the job listen."""
        ports = []
        for number in (0, 1):
            inodes = set()
            pid = self.process("holder", number)
            for name in os.listdir(f"/proc/{pid}/fd"):
                try:
                    inodes.add(os.readlink(f"/proc/{pid}/fd/{name}"))
                except OSError:
                    continue
            rows = []
            for name in ("tcp", "tcp6"):
                with open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
                    rows += [line.split() for line in file][1:]
            ports += [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
        return ports

    def test_strangers_do_no_harm_while_a_job_trains(self):
        """Both holders keep hundreds of half open connections, and more come than a process may have open files by
        default. The job applies each sample once, saves, and loses no worker."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        slow = 2500 if hard == resource.RLIM_INFINITY or hard >= 8192 else 500
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        where = self.path("run")
        words = ["--async", "16", "--servers", "2", "--checkpoint-dir", where, "--checkpoint-every", "1000"]
        child = self.launch(3, "--epochs", "120", *words, wait=False,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard)))
        self.wait_for("push", 20)
        ports = self.ports()
        self.assertEqual(len(ports), 2)
        strangers = Strangers(ports, 5, slow)
        strangers.start()
        try:
            output = self.finish(child)
        finally:
            strangers.end()
        log = Log(self.events)
        log.check_once(self, 120)
        self.assertEqual(len([e for e in log.events if e["event"] == "join"]), 3, output)
        self.assertEqual([e for e in log.events if e["event"] == "lost" and e["reason"] != "bye"], [], output)
        self.assertNotIn("is dropped", output)
        self.assertTrue(os.path.isfile(os.path.join(where, f"step-{log.version:08d}", "model.safetensors")))
        self.assertGreater(min(strangers.kinds.values()), 0)
        self.assertEqual(len(strangers.kinds), 9, strangers.kinds)
        print(f"{sum(strangers.kinds.values())} connections of strangers, {strangers.closed} closed by the holders")

    def test_half_open_connections_are_closed(self):
        child, port = self.start_holder("--epochs", "1", "--async", "4")
        links = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        for i, link in enumerate(links):
            link.settimeout(60)
            link.sendall(greeting(b"CURVE")[:i])
        for link in links:
            try:
                while link.recv(1 << 12): # its greeting comes first
                    pass
            except ConnectionResetError:
                pass
            link.close()
        right = self.work(0, port, "--epochs", "1", "--async", "4")
        self.assertEqual(right.returncode, 0, right.stderr)
        self.finish(child)


if __name__ == "__main__":
    async_job.main()
