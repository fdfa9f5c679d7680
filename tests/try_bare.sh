#!/usr/bin/env bash
# README's two commands on bare Debians, as a plain user with python3, python3-venv, make and nothing else (no `python`,
# git or compiler): `make try-bare`, as root, with debootstrap. About ten minutes and 8 GB each; the machine's package
# mirror and settings of pip serve.
#   SUITES="bookworm forky"   which; by default bookworm (Python 3.11), trixie (3.13) and forky (3.14)
#   MIRROR=URL                of another distribution's packages: with SUITES=noble a mirror of Ubuntu
#   TESTS=1                   also `make test`
#   KILLS=20 SEED=0           also kills of `make env` at moments drawn by the seed, each followed by one that must mend all
#   MOUNTS="/srv/wheels"      folders of packages that the settings of pip name
set -euo pipefail
cd "$(dirname "$0")/.."
RANDOM=${SEED:-0}
work=$(mktemp -d)
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)}
printf '| system | Python | make | what | seconds | result |\n|---|---|---|---|---|---|\n' > "$work/table"

as_user() { # COMMAND
  mapfile -t variables < <(env | grep -E '^(PIP|UV|SSL)_')
  env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/home/u "${variables[@]}" \
    chroot --userspec=u:u "$root" bash -c "cd /home/u/cdpr && $1"
}

try() { # NAME COMMAND
  local start=$SECONDS result=passed
  as_user "$2" > "$work/$suite-$1.log" 2>&1 || result="failed: $work/$suite-$1.log"
  local tests; tests=$(grep -E '^[0-9]+ passed' "$work/$suite-$1.log" | tail -n 1) || true
  echo "| $suite | $python | $make | $1 | $((SECONDS - start)) | $result${tests:+, $tests} |" | tee -a "$work/table"
}

end() {
  for mount in ${MOUNTS:-} /dev/pts /dev/shm /dev /proc /sys; do umount "$root$mount" 2> /dev/null || true; done
}

for suite in ${SUITES:-bookworm trixie forky}; do
  root=$work/$suite
  debootstrap --variant=minbase --no-check-gpg --components=main,universe --include=python3,python3-venv,make,ca-certificates \
    "$suite" "$root" "$mirror" /usr/share/debootstrap/scripts/sid > "$root.log" 2>&1
  for file in /etc/pip.conf /etc/xdg/pip /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
    if [ -e "$file" ]; then mkdir -p "$root$(dirname "$file")"; cp -rL "$file" "$root$(dirname "$file")/"; fi
  done
  trap end EXIT
  for mount in /sys /proc /dev /dev/pts /dev/shm ${MOUNTS:-}; do mkdir -p "$root$mount"; mount --bind "$mount" "$root$mount"; done
  chroot "$root" useradd -m u
  mkdir "$root/home/u/cdpr"
  git ls-files | tar c -T - | tar x -C "$root/home/u/cdpr"
  chroot "$root" chown -R u:u /home/u
  python=$(as_user 'python3 --version' | cut -d ' ' -f 2) make=$(as_user 'make --version' | head -n 1 | cut -d ' ' -f 3)
  try env 'make env'
  try miniature '.venv/bin/snakemake --cores all --configfile config/ci.yaml'
  if [ -n "${TESTS:-}" ]; then try tests 'make test'; fi
  whole='.venv/bin/python -c "import cdpr, torch, snakemake.cli, duckdb, mlflow, sys; sys.path[:0] = [\"envs\"]; import install; assert install.is_whole()"'
  for kill in $(seq "${KILLS:-0}"); do
    try "kill-$kill" "rm -rf .venv; timeout --signal=KILL $((RANDOM % 20)).$((RANDOM % 10)) make env; make env && $whole"
  done
  end
done
echo; cat "$work/table"
! grep -q failed "$work/table"
