#!/usr/bin/env bash
# The program with its manual pages and completions, for users who do not build it.
#
#   packaging/binary.sh [TARGET]    writes dist/lmc-VERSION-TARGET.tar.gz below the build folder
#
# TARGET is a platform as Rust names it, by default this machine's; for aarch64 Linux it may be another one. The program of the archive is
# tried: a static one in a root without any other file, one for aarch64 under qemu. On Linux zig links: against the symbols of glibc 2.17, as
# for wheels, or for …-linux-musl into a static program, which runs on any Linux. The archive also has the library for C. Also runs on bash 3.2.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
source tools/setup.sh
# shellcheck source=tools/cross.sh
source tools/cross.sh

packages=(cargo-zigbuild==0.24.1 ziglang==0.17.1)

target=$(target_dir)
host=$(rustc -vV | sed -n 's/^host: //p')
triple=${1:-$host}
version=$(cargo metadata --format-version 1 --no-deps | python3 -c '
import json, sys
print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "lmc-codec-cli"))')
name=lmc-$version-$triple
dist=$target/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[[ $triple != *-musl ]] || rustup target list --installed | grep -qx "$triple" || rustup target add "$triple"
cross_compiler "$triple"
build=(cargo build --target "$triple")
case $triple in
    *-linux-gnu | *-linux-musl)
        tools=$target/binary-tools
        [[ -x $tools/bin/python ]] || python3 -m venv "$tools"
        "$tools/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}"
        PATH=$tools/bin:$PATH
        build=(cargo-zigbuild build --target "${triple/%gnu/gnu.2.17}")
        ;;
esac
# In one call, which compiles the codec once for both.
"${build[@]}" --release --locked --quiet -p lmc-codec-cli -p lmc-c --features lmc-codec-cli/man

mkdir -p "$dist" "$work/$name/completions" "$work/$name/lib" "$work/$name/include"
cp crates/lmc-c/include/lmc.h "$work/$name/include"
for library in liblmc_c.a liblmc_c.so liblmc_c.dylib; do
    # A static program has no shared library.
    [[ ! -e $target/$triple/release/$library ]] || cp "$target/$triple/release/$library" "$work/$name/lib"
done
cp "$target/$triple/release/lmc" README.md docs/json.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$work/$name"
[[ $triple != *-linux-* ]] || cp packaging/lmc-*@.service "$work/$name"

# The program in the folder `try`, as a user has it, without this machine's environment.
try=$work/try
mkdir "$try"
case $triple in
    *-linux-musl)
        lmc=(env -i /usr/sbin/chroot --userspec="$(id -u):$(id -g)" "$try" /lmc)
        ((!EUID)) || lmc=(sudo "${lmc[@]}")
        ;;
    "$host") lmc=(env -i ./lmc) ;;
    "$cross_triple")
        cross_setup
        lmc=(env -i QEMU_LD_PREFIX=/usr/aarch64-linux-gnu "$(command -v qemu-aarch64)" ./lmc)
        ;;
    *) lmc=(env -i ./lmc) ;;
esac
cp "$work/$name/lmc" "$try"
cd "$try"
"${lmc[@]}" man man
mv man "$work/$name"
for shell in bash fish zsh; do "${lmc[@]}" completions "$shell" >"$work/$name/completions/lmc.$shell"; done
cd - >/dev/null
rm -f "$dist/$name.tar.gz"
tar -C "$work" -czf "$dist/$name.tar.gz" "$name"

# The users' view.
mkdir "$work/unpacked"
tar -C "$work/unpacked" -xzf "$dist/$name.tar.gz"
for file in man/lmc.1 man/lmc-compress.1 completions/lmc.bash lib/liblmc_c.a include/lmc.h LICENSE-MIT LICENSE-APACHE; do
    [[ -s $work/unpacked/$name/$file ]] || { echo "packaging/binary.sh: $name.tar.gz has no $file" >&2; exit 1; }
done
cp "$work/unpacked/$name/lmc" "$try"
cp testdata/gpt-step300-state.safetensors "$try/old"
cp testdata/gpt-step310-state.safetensors "$try/new"
(
    cd "$try"
    [[ $("${lmc[@]}" --version) == "lmc $version "* ]]
    "${lmc[@]}" compress -q new --base old -o delta.lmc
    "${lmc[@]}" decompress -q delta.lmc --base old -o restored
    cmp new restored
    "${lmc[@]}" snapshot save -q store old --step 1
    "${lmc[@]}" snapshot save -q store new --step 2
    "${lmc[@]}" snapshot restore -q store --at 2 -o back
    cmp new back/new
)
echo "$dist/$name.tar.gz"
