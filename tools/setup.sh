# shellcheck shell=bash
# Finding and installing the programs that ./test and ./demo need.

# as_root COMMAND...
as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi
}

# apt_get ARGUMENT...: apt-get without questions. Waits up to ten minutes for another one to finish: new machines update themselves first.
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

# Where rustup puts cargo, which only shells started later have on their PATH.
if ! command -v cargo >/dev/null && [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo ]]; then
    export PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
fi

# need_rust: cargo and a C compiler (zstd is built from its C source).
need_rust() {
    if ! command -v cargo >/dev/null; then
        echo "needs Rust 1.89 or later: see https://rustup.rs" >&2
        return 1
    fi
    need cc build-essential
}

# target_dir: cargo's build folder, which CARGO_TARGET_DIR may set.
target_dir() {
    need_rust && need python3 python3 || exit 1
    cargo metadata --format-version 1 --no-deps | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])'
}

# build_release OPTION...: the program as users build it, but for options of cargo.
build_release() {
    cargo build --release --quiet -p lmc-codec-cli "$@"
}

# python_venv NAME PACKAGE...: installs Python packages into an environment of that name beside the build, for exactly these versions, and
# prints its python.
python_venv() { python_env "$(target_dir)" "$@"; }

# python_shared_venv NAME PACKAGE...: like python_venv, for packages so large that clones share them.
python_shared_venv() { python_env "${XDG_CACHE_HOME:-$HOME/.cache}/lmc" "$@"; }

# python_env FOLDER NAME PACKAGE...: an environment in a folder. If calls run concurrently, one makes it, and the others wait.
python_env() {
    local venv
    venv=$1/$2-$(printf '%s\n' "$(python3 --version)" "${@:3}" | sha256sum | cut -c1-12)
    mkdir -p "$1" || return 1
    (
        flock 9 || exit 1
        # An incomplete environment has no such file.
        [[ -e $venv/complete ]] && exit
        rm -rf "$venv"
        python3 -m venv "$venv" >/dev/null 2>&1 || { install python3-venv && python3 -m venv "$venv"; } || exit 1
        echo "  installing ${*:3} in $venv" >&2
        python_install "$venv" "${@:3}" >&2 && touch "$venv/complete"
    ) 9>"$venv.lock" || return 1
    echo "$venv/bin/python"
}

# python_install VENV PACKAGE...: with uv, which is several times as fast as pip, or else with pip: uv does not read pip's configuration.
# Requirements in `overrides` replace those of the packages.
overrides=()
python_install() {
    local venv=$1 pip=("$1/bin/pip" --quiet --disable-pip-version-check) uv=("$1/bin/uv" --quiet pip install --python "$1" --compile-bytecode)
    # PyTorch's dependencies that are never loaded without a GPU: 1.3 GB.
    local unused=(triton nvidia-cusolver)
    shift
    if ! { "${pip[@]}" install uv==0.13.9 && "${uv[@]}" --excludes <(printf '%s\n' "${unused[@]}") --override <(printf '%s\n' "${overrides[@]}") "$@"; }; then
        "${pip[@]}" install "$@"
    fi
}
