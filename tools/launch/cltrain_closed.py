"""Tells in which order the ranks of this node ended. Each rank has its heartbeat file open until its end, and the system says
when a file is closed.

A process that ends closes all its files at once, also the connection by which mpiexec learns of its end and then kills
others. The order in which processes are gone for good says less: on a busy machine, a process that mpiexec killed may be
gone before the one that it was killed for.
"""
import ctypes
import os
import re
import struct

IN_CLOSE_WRITE, IN_CREATE = 8, 256
EVENT = struct.Struct("iIII")


class Closed:
    def __init__(self, folder):
        """Without inotify, or if the system has no watch left, the order stays unknown."""
        system = ctypes.CDLL(None)
        self.last = {} # rank: number of the last closing of its file
        self.count, self.file = 0, -1
        if hasattr(system, "inotify_init1"):
            self.file = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.file >= 0:
            system.inotify_add_watch(self.file, os.fsencode(folder), IN_CLOSE_WRITE | IN_CREATE)

    def order(self):
        """Returns the ranks of this node whose files are closed, the first one first."""
        while self.file >= 0:
            try:
                data = os.read(self.file, 1 << 16)
            except BlockingIOError:
                break
            at = 0
            while at < len(data):
                _, what, _, length = EVENT.unpack_from(data, at)
                name = data[at + EVENT.size:at + EVENT.size + length].rstrip(b"\0").decode(errors="replace")
                at += EVENT.size + length
                found = re.fullmatch(r"rank-(\d+)", name)
                if found and what & IN_CREATE: # a rank may make its file anew
                    self.last.pop(int(found[1]), None)
                elif found:
                    self.count += 1
                    self.last[int(found[1])] = self.count
        return sorted(self.last, key=self.last.get)

    def close(self):
        if self.file >= 0:
            os.close(self.file)
