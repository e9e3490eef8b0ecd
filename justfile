# Shortcuts. Each one is a command that also works without `just`.

default:
    @just --list

# the checks for every change; `just test full` those of CI; parts by name: `./test --help`
test *parts:
    ./test {{ parts }}

# record how many checks there are now
update:
    ./test --update

# save and restore the snapshots of a training run that ship with the repository
demo:
    ./demo

# all checks of CI
ci:
    .ci/run

fmt:
    cargo fmt --all
    cargo fmt --manifest-path fuzz/Cargo.toml

# measure again and rewrite docs/benchmarks.md and the README's table
bench *args:
    bench/run {{ args }}
