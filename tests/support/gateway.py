"""A real S3 server on loopback: versitygw, built from its Go module."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from pyarrow import fs

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
KEY, SECRET, REGION = "lakewake", "not-a-secret", "us-east-1"
START_SECONDS = 60


def find_program(folder: Path) -> Path | None:
    """The server's program, built into the folder if the machine has none; None without Go."""
    if found := shutil.which("versitygw"):
        return Path(found)
    go = shutil.which("go")
    if go is None:
        return None
    subprocess.run([go, "install", MODULE], env={**os.environ, "GOBIN": str(folder)}, check=True)
    return folder / "versitygw"


class Gateway:
    """A server over a folder, whose subfolders are the buckets."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.port = _free_port()
        self._data = folder / "data"
        for made in (self._data, folder / "sidecar"):
            made.mkdir(parents=True, exist_ok=True)
        address = f"127.0.0.1:{self.port}"
        self.endpoint = f"http://{address}"
        backend = ["posix", "--sidecar", str(folder / "sidecar"), str(self._data)]
        self._process = subprocess.Popen(
            [program, "--port", address, "--quiet", *backend],
            env={**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
            stdout=subprocess.DEVNULL,
        )
        self._wait()

    def environment(self) -> dict[str, str]:
        """The variables that a user sets."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            # Do not ask a remote address for a role.
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def profile(self, folder: Path) -> dict[str, str]:
        """Write keys and endpoint to AWS's files in the folder; return variables to use them."""
        keys, settings = folder / "credentials", folder / "config"
        keys.write_text(f"[lake]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        settings.write_text(f"[profile lake]\nregion = {REGION}\nendpoint_url = {self.endpoint}\n")
        return {
            "AWS_PROFILE": "lake",
            "AWS_SHARED_CREDENTIALS_FILE": str(keys),
            "AWS_CONFIG_FILE": str(settings),
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def files(self) -> fs.FileSystem:
        """A file system of the server, which may create buckets."""
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region=REGION,
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
            allow_bucket_creation=True,
        )

    def stop(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                assert self._lives(0.05), "the server ended"
                assert time.monotonic() < deadline, "the server does not listen"
            else:
                return

    def _lives(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
