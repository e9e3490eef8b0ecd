#!/usr/bin/env bash
# Wheels of the Python package for other machines: one for each platform and every Python from 3.11 on (abi3).
#
#   packaging/wheels.sh [TARGET...]    writes dist/lmc_codec-VERSION-cp311-abi3-PLATFORM.whl below the build folder
#
# TARGET is a platform as Rust names it; by default x86-64 and aarch64 on Linux, and this machine elsewhere. For Linux zig links, against
# the symbols of glibc 2.17, so that a wheel is manylinux_2_17 wherever it is built; auditwheel checks that. Needs Python 3.11 or later.
# packaging/check_wheel.py installs and tests them. Also runs on bash 3.2, that of macOS.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
source tools/setup.sh
# shellcheck source=tools/cross.sh
source tools/cross.sh

glibc=2_17
packages=(maturin==1.16.0 ziglang==0.17.1 auditwheel==6.8.2)

target=$(target_dir)
dist=$target/dist
tools=$target/wheel-tools
mkdir -p "$dist"
rm -f "$dist"/*.whl

case $(uname -s) in
    Linux) default=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu) ;;
    *) default=("$(rustc -vV | sed -n 's/^host: //p')") ;;
esac
(($#)) || set -- "${default[@]}"

# Not with python_venv: it needs flock, which macOS does not have.
[[ -x $tools/bin/python ]] || python3 -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}"
PATH=$tools/bin:$PATH

for triple in "$@"; do
    options=(--release --locked --target "$triple" --out "$dist")
    case $triple in
        *-linux-gnu) options+=(--zig --compatibility "manylinux_$glibc") ;;
    esac
    (
        cross_compiler "$triple"
        maturin build --quiet "${options[@]}"
    )
done

for wheel in "$dist"/*.whl; do
    case $wheel in
        *-manylinux*) auditwheel show "$wheel" | tr '\n' ' ' | grep -E "consistent +with +the +following +platform +tag: +\"manylinux_${glibc}_" ;;
    esac
    echo "$wheel"
done
