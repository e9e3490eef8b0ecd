#!/usr/bin/env bash
# Checks the crates that lmc is built from against deny.toml: packaging/deny.sh [CHECK...]
#
# The checks are those of cargo-deny: licenses, bans, sources and advisories; by default all but the last, which fetches a database of
# known vulnerabilities. Installs cargo-deny below the build folder, which takes minutes once.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
source tools/setup.sh

version=0.20.2
folder=$(target_dir)/deny-$version
(($#)) || set -- licenses bans sources
[[ -x $folder/bin/cargo-deny ]] || cargo install --quiet --locked --root "$folder" "cargo-deny@$version"
"$folder/bin/cargo-deny" --locked check "$@"
