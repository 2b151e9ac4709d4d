"""The socket by which `cltrain-launch --resize` talks to the launcher of a running job.

The socket is the file `control` in the job's folder of heartbeats. Only its owner may connect. A request is a line of
JSON, {"resize": "+1"}; the answer is one too, {"code": 0, "says": "..."}.
"""
import contextlib
import errno
import json
import os
import socket
import struct
import time

NAME, MOST, PATIENCE = "control", 4096, 5.0 # bytes of a request; seconds in which it must come
CONNECTIONS = 16


def address(folder):
    """Opens the folder, and returns the descriptor and a path of the socket. A socket's address is short, and a path
    through the descriptor fits also if the folder's name is long."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    return number, f"/proc/self/fd/{number}/{NAME}"


class Control:
    """The launcher's end. It never waits: the launcher calls `serve` several times a second."""

    def __init__(self, folder):
        self.path, self.open = os.path.join(folder, NAME), [] # connection, bytes so far, time of its begin
        number, path = address(folder)
        try:
            if self.in_use(path):
                raise OSError(errno.EADDRINUSE, "another cltrain-launch uses this folder")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path) # of a launcher that was killed
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            before = os.umask(0o177)
            try:
                self.socket.bind(path)
            finally:
                os.umask(before)
            self.socket.listen(CONNECTIONS)
            self.socket.setblocking(False)
        finally:
            os.close(number)

    @staticmethod
    def in_use(path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            return other.connect_ex(path) == 0

    @staticmethod
    def allowed(connection):
        """Whether root or the launcher's user has connected: permissions of files are not kept everywhere."""
        user = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        return user in (0, os.getuid())

    def serve(self, answer):
        """Answers the requests that have come. `answer` gets the value of "resize", and returns a code and a line."""
        with contextlib.suppress(BlockingIOError):
            while len(self.open) < CONNECTIONS:
                connection = self.socket.accept()[0]
                connection.setblocking(False)
                self.open.append([connection, b"", time.monotonic()])
        for entry in list(self.open):
            if self.ended(entry, answer):
                entry[0].close()
                self.open.remove(entry)

    def ended(self, entry, answer):
        """Reads what has come, and answers a whole request. Returns whether the connection is done."""
        connection, said, began = entry
        try:
            data = connection.recv(MOST)
            entry[1] = said + data
        except BlockingIOError:
            return time.monotonic() - began > PATIENCE
        except OSError:
            return True
        if b"\n" in entry[1]:
            with contextlib.suppress(OSError): # who asked may be gone
                connection.send(json.dumps(self.reply(connection, entry[1], answer)).encode() + b"\n")
            return True
        return not data or len(entry[1]) > MOST

    def reply(self, connection, data, answer):
        try:
            asked = json.loads(data.split(b"\n", 1)[0])["resize"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return {"code": 2, "says": "this is no request of cltrain-launch"}
        if not self.allowed(connection):
            return {"code": 2, "says": "only the user who started the job may change it"}
        code, says = answer(asked)
        return {"code": code, "says": says}

    def close(self):
        for entry in self.open:
            entry[0].close()
        self.socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def ask(folder, resize):
    """Sends a request. Returns the code and the line of the answer."""
    try:
        number, path = address(folder)
    except OSError as error:
        return 2, f"--job {folder}: {error.strerror}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as launcher:
            launcher.settimeout(2 * PATIENCE)
            launcher.connect(path)
            launcher.sendall(json.dumps({"resize": resize}).encode() + b"\n")
            said = b""
            while not said.endswith(b"\n"):
                data = launcher.recv(MOST)
                if not data:
                    return 1, f"--job {folder}: the job's cltrain-launch ended"
                said += data
            answer = json.loads(said)
            return answer["code"], answer["says"]
    except TimeoutError:
        return 1, f"--job {folder}: the job's cltrain-launch does not answer; is it stopped?"
    except (FileNotFoundError, ConnectionRefusedError):
        return 2, (f"--job {folder}: no cltrain-launch --ranks MIN:MAX runs with this folder, which it names when it "
                   "begins")
    except PermissionError:
        return 2, f"--job {folder}: only the user who started the job may change it"
    except OSError as error:
        return 1, f"--job {folder}: {error.strerror or error}"
    finally:
        os.close(number)
