# shellcheck shell=bash
# A toolchain for aarch64, an emulator and a Python under it, for `./test cross` and `./test wheel`.
#
# If rustup already has the target, it is used. Otherwise compiler and standard library come from Debian, whose packages
# for other architectures match its native compiler. They are unpacked below the build folder, because the package of
# the compiler conflicts with rustup's.

cross_triple=aarch64-unknown-linux-gnu

# cross_setup: sets cross_env; fails with a reason if this machine cannot do it.
cross_setup() {
    local dir rustc
    dir=$(target_dir)/cross
    cross_env=(
        CARGO_TARGET_DIR="$dir/build"
        # Nothing is built twice, and nothing is debugged.
        CARGO_INCREMENTAL=0
        CARGO_PROFILE_DEV_DEBUG=0
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64
        CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
        QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
        "LMC_REQUIRE_ISA=portable,neon"
    )
    if [[ $(uname -sm) != "Linux x86_64" ]]; then
        echo "  is for x86-64 Linux: elsewhere the other parts run the kernels of the machine natively"
        return 1
    fi
    need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross || return 1
    need qemu-aarch64 qemu-user || return 1
    rustup target list --installed 2>/dev/null | grep -qx "$cross_triple" && return
    rustc=$dir/rustc
    [[ -x $rustc ]] && "$rustc" -V >/dev/null 2>&1 || cross_unpack "$dir" || return 1
    cross_env+=(RUSTC="$rustc")
}

# cross_compiler TRIPLE: a compiler that has the standard library of that platform, as RUSTC where it is not that of the PATH.
cross_compiler() {
    local setting
    rustc -vV | grep -qx "host: $1" && return
    rustup target list --installed 2>/dev/null | grep -qx "$1" && return
    if [[ $1 != "$cross_triple" ]] || ! cross_setup; then
        echo "there is no compiler for $1: rustup target add $1" >&2
        return 1
    fi
    # Debian's compiler.
    for setting in "${cross_env[@]}"; do
        [[ $setting != RUSTC=* ]] || export "${setting?}"
    done
}

# cross_cargo COMMAND ARGUMENT...
cross_cargo() { env "${cross_env[@]}" cargo "$1" --target "$cross_triple" "${@:2}"; }

# cross_lists DIR: lists the packages of this machine and of aarch64, with folders of its own, in DIR; sets `apt` to options for these.
cross_lists() {
    apt=(-o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o Dir::State::Lists="$1/lists"
        -o Dir::Cache="$1/cache" -o Acquire::Languages=none -o APT::Sandbox::User="")
    rm -rf "$1/lists" "$1/cache" "$1/debs"
    mkdir -p "$1/lists/partial" "$1/cache/archives/partial" "$1/debs"
    apt-get "${apt[@]}" update
}

# cross_extract DIR ROOT: unpacks the packages in DIR/debs below ROOT, and removes the files that cross_lists made.
cross_extract() {
    local deb
    mkdir -p "$2"
    for deb in "$1"/debs/*.deb; do dpkg -x "$deb" "$2" || return 1; done
    rm -rf "$1/lists" "$1/cache" "$1/debs"
}

# cross_python: Debian's Python for aarch64, under the emulator; prints its path.
cross_python() {
    local dir apt packages qemu
    dir=$(target_dir)/cross/python
    if [[ ! -x $dir/python ]]; then
        need qemu-aarch64 qemu-user >&2 || return 1
        qemu=$(command -v qemu-aarch64)
        mkdir -p "$dir"
        cross_lists "$dir" >"$dir/apt.log" 2>&1
        mapfile -t packages < <(apt-cache "${apt[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
            --no-replaces --no-enhances python3:arm64 | grep '^[a-z].*:arm64$' | sort -u)
        echo "  unpacking Python for aarch64" >&2
        if ! (cd "$dir/debs" && apt-get "${apt[@]}" download "${packages[@]}") >>"$dir/apt.log" 2>&1; then
            tail -n 3 "$dir/apt.log" >&2
            return 1
        fi
        cross_extract "$dir" "$dir/root" || return 1
        printf '#!/bin/sh\nexec %q -L %q %q "$@"\n' "$qemu" "$dir/root" "$dir/root/usr/bin/python3" >"$dir/python"
        chmod +x "$dir/python"
    fi
    echo "$dir/python"
}

# cross_unpack DIR: Debian's newest compiler and the standard libraries of this machine and of aarch64, as DIR/rustc.
cross_unpack() {
    local dir=$1 root=$1/root log=$1/apt.log suffix version driver llvm apt
    rm -rf "$root"
    mkdir -p "$dir"
    cross_lists "$dir" >"$log" 2>&1
    for suffix in "" -web; do
        version=$(apt-cache "${apt[@]}" policy "rustc$suffix" | sed -n 's/^ *Candidate: //p')
        dpkg --compare-versions "${version:-0}" ge 1.89 && break
        version=
    done
    if [[ -z $version ]]; then
        echo "  found no Rust 1.89 for aarch64: 'rustup target add $cross_triple' would do"
        return 1
    fi
    driver=$(apt-cache "${apt[@]}" show "libstd-rust$suffix-dev=$version" | grep -om1 'libstd-rust-[a-z0-9.-]*[0-9]')
    llvm=$(apt-cache "${apt[@]}" show "$driver=$version" | grep -om1 'libllvm[0-9.]*')
    echo "  unpacking Rust $version for aarch64"
    (
        cd "$dir/debs" &&
            apt-get "${apt[@]}" download "rustc$suffix=$version" "$driver=$version" \
                "libstd-rust$suffix-dev=$version" "libstd-rust$suffix-dev:arm64=$version"
    ) >>"$log" 2>&1 || { tail -n 3 "$log"; return 1; }
    cross_extract "$dir" "$root" || return 1
    install "$llvm" 2>>"$log" || return 1
    cat >"$dir/rustc" <<EOF
#!/bin/sh
LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu exec $root/usr/bin/rustc "\$@"
EOF
    chmod +x "$dir/rustc"
}
