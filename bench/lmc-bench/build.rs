//! Records the commit and the compiler in the binary, for the results.

use std::process::Command;

/// First line of a command's output.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(out.stdout).ok()?.lines().next()?.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LMC_GIT_COMMIT");
    if let Some(commit) = std::env::var("LMC_GIT_COMMIT").ok().or_else(commit) {
        println!("cargo::rustc-env=LMC_GIT_COMMIT={commit}");
    }
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    if let Some(version) = output(&rustc, &["--version"]) {
        println!("cargo::rustc-env=LMC_RUSTC={version}");
    }
}

/// The commit of this checkout, marked `-dirty` if tracked files of the crates were changed; `None` outside of a checkout.
fn commit() -> Option<String> {
    output("git", &["ls-files", "--error-unmatch", "build.rs"])?;
    let head = output("git", &["rev-parse", "--git-path", "HEAD"])?;
    let log = output("git", &["rev-parse", "--git-path", "logs/HEAD"])?;
    for path in [&head, &log] {
        println!("cargo::rerun-if-changed={path}");
    }
    for path in ["../../crates", "src", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    let changed =
        output("git", &["status", "--porcelain", "--untracked-files=no", "../../crates", ".", "../../Cargo.lock"]);
    Some(if changed.is_some_and(|l| !l.is_empty()) { format!("{commit}-dirty") } else { commit })
}
