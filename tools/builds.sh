# shellcheck shell=bash
# What ./test builds: programs of tests, the command, libraries and examples of one build of the workspace, and the wheel.

# The build folder.
target=

# All parts use the programs of one build. `cargo test -p` would build a package and its tests anew, because features of
# dependencies depend on which packages are built together.
workspace_tests=(cargo test --workspace --tests --all-features)

# built_tests PACKAGE TARGET [VARIABLE=VALUE...] [-- FILTER...]: runs a test program as it was built with the workspace.
built_tests() {
    local package=$1 name=$2 variables=() program
    shift 2
    while (($#)) && [[ $1 != -- ]]; do variables+=("$1"); shift; done
    program=$("${workspace_tests[@]}" --no-run --message-format json | python3 -c '
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m.get("executable") and m["profile"]["test"] and m["manifest_path"].endswith(sys.argv[1]) and m["target"]["name"] == sys.argv[2]:
        print(m["executable"])' "/crates/$package/Cargo.toml" "$name") && [[ $program ]] || return 1
    # As cargo does.
    env -C "crates/$package" "${variables[@]}" "$program" "${@:2}"
}

# built_lmc: builds the program with the tests, which bring its path into `lmc`.
# shellcheck disable=SC2034
built_lmc() { "${workspace_tests[@]}" --quiet --no-run && lmc=$target/debug/lmc; }

# libraries NAME...: an option --library NAME=PATH for each crate, as it was built with the workspace.
libraries() {
    "${workspace_tests[@]}" --no-run --message-format json | python3 -c '
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m["reason"] == "compiler-artifact" and not m["profile"]["test"] and m["target"]["name"] in sys.argv[1:]:
        for path in m["filenames"]:
            if path.endswith(".rlib"):
                print("--library=" + m["target"]["name"] + "=" + path)' "$@"
}

# example NAME [ARGUMENT...]: runs an example, with the features that the other parts build it with.
example() { cargo build --quiet --workspace --all-features --example "$1" && "$target/debug/examples/$1" "${@:2}"; }

# wheel PYTHON [OPTION...]: builds the wheel as `pip install .` does, once a run, and installs it beside that python, or where pip's options say.
wheel() {
    local bin=${1%/*} wheels=$target/wheels
    # shellcheck disable=SC2154 # ./test makes it anew in every run.
    if [[ ! -e $logs/wheel-is-built ]]; then
        rm -rf "$wheels"
        env PATH="$bin:$PATH" "$1" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w "$wheels" . || return 1
        touch "$logs/wheel-is-built"
    fi
    "$1" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall --upgrade "${@:2}" "$wheels"/lmc_codec-*-abi3-*.whl
}

# test_package: the Python package as it was built with the workspace, in target/test-package. It lacks what only a wheel has: metadata,
# the script `lmc`, entry points.
test_package() {
    local package=$target/test-package extension
    extension=$(cargo build --workspace --tests --lib --all-features --message-format json | python3 -c '
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m["reason"] == "compiler-artifact" and m["target"]["name"] == "_lmc" and not m["profile"]["test"]:
        print(*(path for path in m["filenames"] if path.endswith((".so", ".dylib"))))') && [[ $extension ]] || return 1
    rm -rf "$package"
    mkdir -p "$package/lmc" && ln -s "$PWD"/crates/lmc-python/python/lmc/* "$package/lmc/" && ln -sf "$extension" "$package/lmc/_lmc.abi3.so"
}
