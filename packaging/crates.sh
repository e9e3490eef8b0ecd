#!/usr/bin/env bash
# The packages for crates.io.
#
#   packaging/crates.sh check      packages each crate as it would be published, and checks what is in the packages
#   packaging/crates.sh verify     that, and each package is built from its own files, which takes minutes
#   packaging/crates.sh publish    that, and publishes them, in the order of their dependencies; needs a token of crates.io
#
# Nothing is uploaded but by `publish`, which refuses uncommitted changes. Needs cargo 1.90 or later, which publishes a workspace in one go.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
source tools/setup.sh

target=$(target_dir)
version=$(cargo --version | cut -d ' ' -f 2)
if [[ $(printf '%s\n' 1.90 "$version" | sort -V | head -n 1) != 1.90 ]]; then
    echo "packaging/crates.sh: needs cargo 1.90 or later, and this is $version: rustup update" >&2
    exit 1
fi
packages=$target/package/tmp-registry

# package [OPTION...]: writes NAME-VERSION.crate for every crate that is published.
package() {
    rm -f "$packages"/*.crate
    cargo publish --workspace --dry-run --locked "$@"
    python3 packaging/check_crates.py "$packages"
}

case ${1:-} in
    check) package --allow-dirty --no-verify ;;
    verify) package --allow-dirty ;;
    publish) package && cargo publish --workspace --locked --no-verify ;;
    *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
esac
