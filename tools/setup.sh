# shellcheck shell=bash
# What ./test and ./demo share: finding and installing what they need.

# as_root COMMAND...
as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi
}

# apt_get ARGUMENT...: apt-get without questions. Another one that is at work is waited for, ten minutes at most: new machines update themselves first.
apt_get() {
    local said
    for _ in {1..60}; do
        said=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" 2>&1 >/dev/null) && return
        [[ $said == *"Could not get lock"* ]] || break
        sleep 10
    done
    echo "$said" >&2
    return 1
}

# install PACKAGE...: Debian packages.
install() {
    if ! command -v apt-get >/dev/null; then
        echo "needs $*, and this system has no apt-get: install it and run this again" >&2
        return 1
    fi
    echo "  installing $* with apt-get" >&2
    apt_get update && apt_get install -y --no-install-recommends "$@"
}

# need COMMAND PACKAGE...: installs the packages unless the command is there.
need() { command -v "$1" >/dev/null || install "${@:2}"; }

# need_rust: cargo and a C compiler (zstd is built from its C source).
need_rust() {
    if ! command -v cargo >/dev/null && [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo ]]; then
        PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    fi
    if ! command -v cargo >/dev/null; then
        echo "needs Rust 1.89 or later: see https://rustup.rs" >&2
        return 1
    fi
    need cc build-essential
}

# target_dir: where cargo builds, which CARGO_TARGET_DIR may have moved.
target_dir() {
    need_rust && need python3 python3 || exit 1
    cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])'
}

# build_release: the command line tool as a user gets it.
build_release() {
    cargo build --release --quiet -p lmc-cli
}

# python_tool PACKAGE: installs a Python package beside the build and prints that environment's python.
python_tool() { python_venv venv "$1"; }

# python_venv NAME PACKAGE...: installs Python packages into an environment of that name beside the build and prints its python.
python_venv() {
    local venv
    venv=$(target_dir)/$1
    if ! [[ -x $venv/bin/pip ]]; then
        python3 -m venv "$venv" >/dev/null 2>&1 || { install python3-venv && python3 -m venv "$venv"; } || return 1
    fi
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${@:2}" >&2 || return 1
    echo "$venv/bin/python"
}

# python_shared_venv NAME PACKAGE...: the same for packages so large that clones share them, in a folder for just these versions.
python_shared_venv() {
    local venv
    venv=${XDG_CACHE_HOME:-$HOME/.cache}/lmc/$1-$(printf '%s\n' "$(python3 --version)" "${@:2}" | sha256sum | cut -c1-12)
    if ! [[ -e $venv/complete ]]; then
        rm -rf "$venv"
        mkdir -p "${venv%/*}"
        python3 -m venv "$venv" >/dev/null 2>&1 || { install python3-venv && python3 -m venv "$venv"; } || return 1
        echo "  installing ${*:2} in $venv: some gigabytes, once" >&2
        "$venv/bin/pip" install --quiet --disable-pip-version-check "${@:2}" >&2 || return 1
        touch "$venv/complete"
    fi
    echo "$venv/bin/python"
}
