"""Install packages as `pip install ARGUMENTS` would, but by uv, which takes seconds where pip takes minutes.

uv reads no configuration of pip, so indexes, certificates and constraints are passed on to it. Where uv fails, pip goes
on. What a kill leaves half-made keeps the mark `.unfinished`: envs/venv.sh makes the environment anew.
"""

import csv
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
LOG, UNFINISHED = Path(sys.prefix) / "pip.log", Path(sys.prefix) / ".unfinished"
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
    """The exit code of uv, or of pip where uv fails. ``--torch-backend`` is a wish, which pip does not know: where the
    index of such a build is not reached, the configured ones serve."""
    configuration = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True).stdout
    environment = uv_variables(configuration) | os.environ
    plain = [argument for argument in arguments if not argument.startswith("--torch-backend")]
    has_uv = importlib.util.find_spec("uv") is not None
    for tried in ([arguments] if plain == arguments else [arguments, plain]) if has_uv else []:
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable, *tried]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        with LOG.open("a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(command)}\n{done.stderr}\n")
        if done.returncode <= 0:  # below: a signal ended it, so that pip would go on from half a package
            return -done.returncode
    if has_uv:
        print(f"uv could not install (why: {LOG}); pip goes on, which takes minutes.")
    return subprocess.run([*PIP, "install", "--quiet", "--log", str(LOG), *plain]).returncode


def is_whole() -> bool:
    """Whether every installed package has all files that it lists, in their sizes."""
    for package in metadata.distributions(path=[sysconfig.get_path("purelib")]):
        rows = list(csv.reader((package.read_text("RECORD") or "").splitlines()))
        files = [(Path(str(package.locate_file(name))), size) for name, _, size in rows if size]
        if not files or any(not file.is_file() or file.stat().st_size != int(size) for file, size in files):
            return False
    return True


if __name__ == "__main__":
    UNFINISHED.touch()
    code = install(sys.argv[1:])
    if code == 0 or is_whole():
        UNFINISHED.unlink()
    sys.exit(code)
