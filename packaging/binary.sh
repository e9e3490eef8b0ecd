#!/usr/bin/env bash
# The program with its manual pages and completions, for users who do not build it.
#
#   packaging/binary.sh [TARGET]    writes dist/lmc-VERSION-TARGET.tar.gz below the build folder
#
# TARGET is a platform as Rust names it, by default this machine's, and must be one whose programs this machine can run: the archive is
# unpacked and its program restores a file. On Linux zig links: against the symbols of glibc 2.17, as for wheels, or for …-linux-musl into a
# static program, which runs on any Linux. The archive also has the library for C. Also runs on bash 3.2.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
source tools/setup.sh

if [[ ${1:-} == *-linux-musl ]]; then
    need file file
    rustup target list --installed | grep -qx "$1" || rustup target add "$1"
fi

packages=(cargo-zigbuild==0.24.1 ziglang==0.17.1)

target=$(target_dir)
triple=${1:-$(rustc -vV | sed -n 's/^host: //p')}
version=$(cargo metadata --format-version 1 --no-deps | python3 -c '
import json, sys
print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "lmc-codec-cli"))')
name=lmc-$version-$triple
dist=$target/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

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
"${build[@]}" --release --locked --quiet -p lmc-codec-cli --features man
"${build[@]}" --release --locked --quiet -p lmc-c

mkdir -p "$dist" "$work/$name/completions" "$work/$name/lib" "$work/$name/include"
cp crates/lmc-c/include/lmc.h "$work/$name/include"
for library in liblmc_c.a liblmc_c.so liblmc_c.dylib; do
    # A static program has no shared library.
    [[ ! -e $target/$triple/release/$library ]] || cp "$target/$triple/release/$library" "$work/$name/lib"
done
cp "$target/$triple/release/lmc" README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$work/$name"
[[ $triple != *-linux-* ]] || cp packaging/lmc-*@.service "$work/$name"
"$work/$name/lmc" man "$work/$name/man"
for shell in bash fish zsh; do "$work/$name/lmc" completions "$shell" >"$work/$name/completions/lmc.$shell"; done
rm -f "$dist/$name.tar.gz"
tar -C "$work" -czf "$dist/$name.tar.gz" "$name"

# The users' view, in an empty environment.
mkdir "$work/unpacked"
tar -C "$work/unpacked" -xzf "$dist/$name.tar.gz"
lmc=(env -i "$work/unpacked/$name/lmc")
input=testdata/gpt-step310-state.safetensors base=testdata/gpt-step300-state.safetensors
"${lmc[@]}" compress -q "$input" --base "$base" -o "$work/delta.lmc"
"${lmc[@]}" decompress -q "$work/delta.lmc" --base "$base" -o "$work/restored"
cmp "$input" "$work/restored"
for file in man/lmc.1 man/lmc-compress.1 completions/lmc.bash lib/liblmc_c.a include/lmc.h LICENSE-MIT LICENSE-APACHE; do
    [[ -s $work/unpacked/$name/$file ]] || { echo "packaging/binary.sh: $name.tar.gz has no $file" >&2; exit 1; }
done
if [[ $triple == *-linux-musl ]] && ! file "$work/unpacked/$name/lmc" | grep -q static; then
    echo "packaging/binary.sh: the program is not static" >&2
    exit 1
fi
echo "$dist/$name.tar.gz"
