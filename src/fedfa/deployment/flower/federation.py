"""A whole federation on this machine: a SuperLink and SuperNodes as processes on free loopback ports.

    with Federation(nodes=4) as federation:
        federation.run(app, {"out": "runs/digits"})

For trying an app, and for tests. When the block ends, also by an exception or Ctrl-C, all processes are stopped.
"""

import contextlib
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from fedfa.errors import EngineError

logger = logging.getLogger("fedfa")

MARK = "FEDFA_FEDERATION"
"""Environment variable that marks all processes of a federation, also those that daemons start."""
PATIENCE = 60.0
"""Seconds a daemon may take to start."""
CONNECTION = "here"
PORTS = range(20000, 32000)
"""Below the kernel's range for connections: the kernel could use such a port before the daemon opens it."""


class Federation:
    """A SuperLink and SuperNodes; node i has ``partition-id=i``.

    ``security``: options of the SuperLink and lines for Flower's configuration, instead of insecure connections.
    """

    def __init__(
        self, nodes: int = 4, folder: Path | None = None, security: tuple[Sequence[str], str] | None = None
    ) -> None:
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="fedfa-federation-")
        self.folder = folder or Path(self._temporary.name)  # pyright: ignore[reportOptionalMemberAccess]
        self.num_nodes = nodes
        self.mark = uuid.uuid4().hex
        self._security, self._connection = security or (["--insecure"], "insecure = true")
        self._started: list[subprocess.Popen[bytes]] = []
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []
        self._reservations: list[socket.socket] = []
        self.port = self._reserve_port()
        programs = str(Path(sys.executable).parent)
        self.environment = {
            **os.environ,
            **offline(),
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(self.folder / "flwr"),
            MARK: self.mark,
        }

    def __enter__(self) -> "Federation":
        try:
            home = self.folder / "flwr"
            home.mkdir(parents=True, exist_ok=True)
            (home / "config.toml").write_text(
                f'[superlink]\ndefault = "{CONNECTION}"\n\n'
                f'[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self.port}"\n{self._connection}\n'
            )
            self.start_superlink()
            for number in range(self.num_nodes):
                self.start_node(number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a daemon, which logs into NAME.log."""
        self._logs.append((self.folder / f"{name}.log").open("ab"))
        self._daemons[name] = self._popen(command, self._logs[-1])
        return self._daemons[name]

    def _last_words(self, name: str) -> str:
        lines = (self.folder / f"{name}.log").read_text(errors="replace").split("\n")
        return next(filter(None, map(str.strip, reversed(lines))), "none")

    def _popen(self, command: Sequence[str], output: IO[bytes] | None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT if output else None, start_new_session=True,
        )  # fmt: skip
        self._started.append(process)
        return process

    def start_superlink(self) -> None:
        """Start or restart the SuperLink: it keeps its state in a file."""
        self.superlink = self.start(
            "superlink", "flower-superlink", *self._security, "--port", str(self.port),
            "--database", str(self.folder / "state.db"),
        )  # fmt: skip
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.superlink.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.1)
        raise EngineError(f"the SuperLink did not start; its last words: {self._last_words('superlink')}")

    def start_node(
        self, number: int, *, port: int | None = None, config: str = "", security: Sequence[str] = ("--insecure",)
    ) -> subprocess.Popen[bytes]:
        """Start SuperNode ``number``, optionally with a proxy's port, a longer node config or other keys."""
        return self.start(
            f"node{number}", "flower-supernode", *security,
            "--superlink", f"127.0.0.1:{port or self.port}", "--port", str(self._reserve_port()),
            "--node-config", f"partition-id={number} num-partitions={max(self.num_nodes, number + 1)} {config}",
        )  # fmt: skip

    def start_run(self, app: Path, config: Mapping[str, Any], quiet: bool = False) -> subprocess.Popen[bytes]:
        """``flwr run`` with these run-config values; ends when the run does. The server's output goes to stdout."""
        words = [f"{key}={json.dumps(value)}" for key, value in config.items()]
        command = ["flwr", "run", str(app), CONNECTION, "--stream", "--run-config", " ".join(words)]
        if quiet:
            return self.start("run", *command)
        return self._popen(command, None)

    def run(self, app: Path, config: Mapping[str, Any]) -> None:
        """The same, to its end."""
        process = self.start_run(app, config)
        while (code := process.poll()) is None:
            self._tell_of_the_dead()
            time.sleep(0.2)  # wait() would miss Ctrl-C if another thread gets the signal
        if code:
            raise EngineError(f"flwr run ended with exit status {code}; see above")

    def _tell_of_the_dead(self) -> None:
        for name, daemon in list(self._daemons.items()):
            if daemon.poll() is not None:
                del self._daemons[name]
                logger.warning("%s ended by itself; its last words: %s", name, self._last_words(name))

    def processes(self, program: str = "") -> list[int]:
        """Ids of this federation's processes with this word in their command line."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"{MARK}={self.mark}".encode() in (path / "environ").read_bytes().split(b"\0")
                if ours and program.encode() in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
            except OSError:  # ended meanwhile, or another user's
                continue
        return found

    def _reserve_port(self) -> int:
        """Reserve a free port: a daemon needs seconds to open it, and other federations look for ports too."""
        for port in random.SystemRandom().sample(PORTS, len(PORTS)):
            name = socket.socket(socket.AF_UNIX)
            try:
                name.bind(f"\0fedfa-port-{port}")  # released when this process ends
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            except OSError:
                name.close()
                continue
            self._reservations.append(name)
            return port
        raise EngineError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free")

    def close(self) -> None:
        """Stop everything: first with a signal that allows cleanup, then by force."""
        for kind, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            until = time.monotonic() + patience
            while (left := self.processes()) and time.monotonic() < until:
                for process in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, kind)
                time.sleep(0.2)
        for child in self._started:
            child.wait()
        for opened in (*self._logs, *self._reservations):
            opened.close()
        if self._temporary:
            self._temporary.cleanup()


def offline() -> dict[str, str]:
    """Switches that stop Flower's telemetry and installations, and make it look for work more often."""
    return {
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
    }
