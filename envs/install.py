"""Install packages as `pip install ARGUMENTS` would, but by uv, which takes seconds where pip takes minutes.

uv reads no configuration of pip, so indexes, certificates and constraints are passed on to it. Where uv fails, pip goes
on.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PIP = [sys.executable, "-m", "pip"]
LOG = Path(sys.prefix) / "pip.log"
# Options of pip, and the variables by which uv takes the same. uv separates lists by commas or by spaces.
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "cert": ("SSL_CERT_FILE", " "),
}


def uv_variables(configuration: str) -> dict[str, str]:
    """The environment variables that tell uv what ``pip config list`` says; later lines stand over earlier ones."""
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # as pip: the best version of all indexes
    for option, value in re.findall(r"^[^=]*\.([\w-]+)='(.*)'$", configuration, re.MULTILINE):
        if option in VARIABLES:
            name, separator = VARIABLES[option]
            variables[name] = separator.join(value.encode().decode("unicode_escape").split())
    return variables


def install(arguments: list[str]) -> int:
    """The exit code of uv, or of pip where uv fails."""
    configuration = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True).stdout
    environment = uv_variables(configuration) | os.environ
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"$ {shlex.join(command)}\n{done.stderr}\n")
    if done.returncode == 0:
        return 0
    print(f"uv could not install (why: {LOG}); pip goes on, which takes minutes.")
    return subprocess.run([*PIP, "install", "--quiet", "--log", str(LOG), *arguments]).returncode


if __name__ == "__main__":
    sys.exit(install(sys.argv[1:]))
