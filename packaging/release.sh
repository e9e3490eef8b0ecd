#!/usr/bin/env bash
# A release candidate: everything that this machine can make of a release, in one folder, with SHA256SUMS.
#
#   packaging/release.sh [FOLDER]    by default dist/VERSION below the build folder
#
# Wheels for Linux on x86-64 and aarch64, with manual pages and completions; the static program for x86-64 with the same; crates, each built
# from its own files; bills of materials. Each recipe checks what it makes; the wheel for this machine and the program are installed and
# restore files in empty environments. Needs x86-64 Linux, and `rustup target add x86_64-unknown-linux-musl`. Takes half an hour of two cores.
# Nothing is uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
source tools/setup.sh

static=x86_64-unknown-linux-musl
target=$(target_dir)
dist=$target/dist
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
folder=${1:-$dist/$version}
if [[ -e $folder ]] && [[ $(ls -A "$folder") ]]; then
    echo "packaging/release.sh: $folder has files: remove them, or name another folder" >&2
    exit 1
fi
mkdir -p "$folder"

say() { echo "== $* ($SECONDS s)"; }

say "crates"
packaging/crates.sh verify
cp "$target"/package/tmp-registry/*"-$version.crate" "$folder"
say "the static program"
packaging/binary.sh "$static"
cp "$dist/lmc-$version-$static.tar.gz" "$folder"
say "wheels"
packaging/wheels.sh
say "manual pages and completions in the wheels"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xzf "$dist/lmc-$version-$static.tar.gz"
python3 packaging/add_manual.py "$work/lmc-$version-$static" "$dist"/*.whl
python3 packaging/check_wheel.py "$dist"/*_x86_64.whl
cp "$dist"/*.whl "$folder"
say "bills of materials"
packaging/sbom.py
cp "$dist/lmc-$version.cdx.json" "$dist/lmc_codec-$version.cdx.json" "$folder"
(cd "$folder" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
say "done"
ls -l "$folder"
