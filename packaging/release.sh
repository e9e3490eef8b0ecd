#!/usr/bin/env bash
# A release candidate: everything that this machine can make of a release, in one folder, with SHA256SUMS.
#
#   packaging/release.sh [FOLDER]    by default dist/VERSION below the build folder
#
# Crates, each built from its own files; the program in archives, static for x86-64 and for aarch64, and wheels for both, with manual pages
# and completions; bills of materials. Each is tried as a user has it: wheels in new environments, the static program in a root without any
# other file, what is for aarch64 under qemu. Needs x86-64 Linux, and `rustup target add x86_64-unknown-linux-musl`. Takes half an hour of two
# cores. Nothing is uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
source tools/setup.sh
# shellcheck source=tools/cross.sh
source tools/cross.sh

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
for triple in "$static" "$cross_triple"; do
    say "the program for $triple"
    packaging/binary.sh "$triple"
    cp "$dist/lmc-$version-$triple.tar.gz" "$folder"
done
say "wheels"
packaging/wheels.sh
say "manual pages and completions in the wheels"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$work" -xzf "$dist/lmc-$version-$static.tar.gz"
python3 packaging/add_manual.py "$work/lmc-$version-$static" "$dist"/*.whl
python3 packaging/check_wheel.py "$dist"/*_x86_64.whl
emulated=$(cross_python)
python3 packaging/check_wheel.py --emulated "$emulated" "$dist"/*_aarch64.whl
cp "$dist"/*.whl "$folder"
say "bills of materials"
packaging/sbom.py
cp "$dist/lmc-$version.cdx.json" "$dist/lmc_codec-$version.cdx.json" "$folder"
(cd "$folder" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
say "done"
ls -l "$folder"
