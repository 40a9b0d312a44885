"""The Dockerfile's lines, run without Docker: in folders of their own, which nothing else sees.

This shows that the lines work and that the image's user can use what root has set up. It does not
show that the base image has what they need, or that Docker builds the image.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount folders of its own"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("unshare", "setpriv", "useradd"))),
        reason="there is no unshare, setpriv or useradd",
    ),
]

#: Empty folders instead of the machine's, and a copy of /etc and of this Python.
ROOM = """
mount -t tmpfs tmpfs /opt
mount -t tmpfs tmpfs /var/lib
mkdir /opt/etc && cp -a /etc/. /opt/etc && mount --bind /opt/etc /etc
mkdir /opt/python && cp -a {python}/. /opt/python
export PATH=/opt/python/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""
#: What a user of the image does, in its folder.
USE = """
set -eu
cd /var/lib/lakewake
echo 'id,title,price,ts' > rows.csv
echo '1,smoky red with leather,12.5,1' >> rows.csv
echo '2,fresh white with citrus,8.0,1' >> rows.csv
lakewake ingest rows.csv lake/wines --key id --ordering ts
lakewake init lake/wines --name wines
lakewake sync --log-file sync.log
lakewake search wines "smoky red" -k 1 --json
"""


def build_lines() -> str:
    """The Dockerfile as shell: ARG and ENV as variables, COPY as cp, RUN as it is."""
    lines = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text()).splitlines()
    script = []
    for name, rest in (tuple(s.split(None, 1)) for s in lines if s and s[0] not in "# "):
        if name == "ARG" or name == "ENV":
            script.append(f"export {rest}")
        elif name == "WORKDIR":
            script.append(f"mkdir -p {rest} && cd {rest}")
        elif name == "COPY" and "--from" not in rest:
            *sources, target = rest.split()
            script += [f'cp -r "$CONTEXT/{source}" {target}' for source in sources]
        elif name == "RUN":
            script.append(f"echo '+ {rest}' >&2; {rest}")
    return "\n".join(script)


@pytest.fixture(scope="module")
def context(tmp_path_factory) -> Path:
    """What Docker would be sent."""
    folder = tmp_path_factory.mktemp("context")
    for name in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(
        ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    return folder


def test_the_lines_build_what_another_user_can_use(context):
    as_user = (
        # This copy of Python finds its library where it was built, which the user may not read.
        "env -i PATH=$PATH LD_LIBRARY_PATH=/opt/python/lib LAKEWAKE_HOME=/opt/lakewake"
        " HOME=/var/lib/lakewake"
        " setpriv --reuid 10001 --regid 10001 --clear-groups"
    )
    room = ROOM.format(python=sys.base_prefix)
    script = f'set -eu\n{room}\n{build_lines()}\n{as_user} sh -c "$USE"\n'
    # Whatever was set up for root is out of reach.
    script += f"{as_user} sh -c 'test ! -w /opt/lakewake && test -s /var/lib/lakewake/sync.log'\n"
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script],
        env={**os.environ, "CONTEXT": str(context), "USE": USE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "smoky red with leather" in done.stdout
