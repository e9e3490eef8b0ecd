//! What is in the place of a model when it could not be fetched: pointers of Git LFS, pages and messages of servers,
//! nothing.

use std::path::Path;

use lmc::layout::safetensors::header_len;

/// What a Git LFS pointer begins with.
const LFS: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Characters of a message that are shown.
const SHOWN: usize = 60;

/// A format that the suffix of a file's name promises.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promise {
    Safetensors,
    Gguf,
    Npy,
    Npz,
    /// Files that may begin in several ways, and those without a name.
    Some,
    /// A `.distcp` file may be empty: that of a process without a part of any tensor.
    Distcp,
}

impl Promise {
    fn of(path: &Path) -> Option<Self> {
        let suffix = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match &suffix[..] {
            "safetensors" => Self::Safetensors,
            "gguf" => Self::Gguf,
            "npy" => Self::Npy,
            "npz" => Self::Npz,
            "pt" | "pth" | "bin" | "ckpt" | "onnx" => Self::Some,
            "distcp" => Self::Distcp,
            _ => return None,
        })
    }

    /// Whether a file of `size` bytes may begin so.
    fn is_kept(self, start: &[u8]) -> bool {
        match self {
            Self::Safetensors => header_len(start).is_some(),
            Self::Gguf => start.starts_with(b"GGUF"),
            Self::Npy => start.starts_with(b"\x93NUMPY"),
            Self::Npz => start.starts_with(b"PK"),
            Self::Some | Self::Distcp => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "a safetensors file",
            Self::Gguf => "a GGUF file",
            Self::Npy | Self::Npz => "a file of NumPy",
            Self::Some | Self::Distcp => "a model",
        }
    }
}

/// What a file of `size` bytes is if it is no model, although its name says so, or it has none. `start` are its first bytes.
pub(crate) fn stand_in(path: Option<&Path>, start: &[u8], size: u64) -> Option<String> {
    // Whatever the name is.
    if start.starts_with(LFS) {
        let text = String::from_utf8_lossy(start);
        let bytes = text.lines().find_map(|line| line.strip_prefix("size ")?.parse::<u64>().ok());
        let of = bytes.map_or_else(String::new, |n| format!(" of {n} bytes"));
        return Some(format!(
            "it is a Git LFS pointer, and the file{of} that it stands for is missing: run git lfs pull, and try again"
        ));
    }
    let promise = path.map_or(Some(Promise::Some), Promise::of)?;
    if size == 0 {
        return (promise != Promise::Distcp).then(|| "it is empty: fetch or write it again".to_owned());
    }
    let text = text(start);
    let is_page = |text: &str| {
        let text = text.trim_start().to_ascii_lowercase();
        ["<!doctype html", "<html"].iter().any(|tag| text.starts_with(tag))
    };
    if text.is_some_and(is_page) {
        return Some("it is a web page, as servers send with an error: fetch the file again".to_owned());
    }
    if let Some(text) = text.filter(|text| !promise.is_kept(start) || is_message(text, size)) {
        let line: String = text.trim().lines().next().unwrap_or_default().chars().take(SHOWN).collect();
        return Some(format!("it is text, {line:?}, and not {}: fetch it again", promise.name()));
    }
    let name = promise.name();
    (!promise.is_kept(start))
        .then(|| format!("it does not begin as {name} does: fetch it again, unless it is of another format"))
}

/// The beginning of a file, if it is text.
fn text(start: &[u8]) -> Option<&str> {
    // The last character may be cut.
    let text = match str::from_utf8(start) {
        Err(e) if e.error_len().is_none() => str::from_utf8(&start[..e.valid_up_to()]).ok()?,
        text => text.ok()?,
    };
    let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    (!text.trim().is_empty() && text.chars().all(is_text)).then_some(text)
}

/// Whether all of a file is what a server answers instead of it: a line, XML, or JSON. Pickles of protocol 0 are text, too, of several lines.
fn is_message(text: &str, size: u64) -> bool {
    let text_of_all = text.len() as u64 == size;
    text_of_all && (!text.trim().contains('\n') || ["<?xml", "{\""].iter().any(|start| text.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_instead_is_named() {
        let of = |name: &str, bytes: &[u8]| stand_in(Some(Path::new(name)), bytes, bytes.len() as u64);
        let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 4976698672\n";
        let cases: [(&str, &[u8], &str); 15] = [
            ("a.safetensors", lfs, "it is a Git LFS pointer, and the file of 4976698672 bytes that"),
            ("tokenizer.model", lfs, "it is a Git LFS pointer"),
            ("a.gguf", b"<!DOCTYPE html>\n<html>", "it is a web page"),
            ("a.bin", b"\n<HTML><head>", "it is a web page"),
            ("a.safetensors", b"Entry not found", "it is text, \"Entry not found\", and not a safetensors file"),
            (
                "a.pt",
                b"Invalid username or password.\n",
                "it is text, \"Invalid username or password.\", and not a model",
            ),
            ("a.onnx", b"{\"error\":\n\"gone\"}", "it is text, \"{\\\"error\\\":\", and not a model"),
            ("a.npz", b"<?xml version=\"1.0\"?>\n<Error>", "it is text"),
            ("a.npy", "\u{e4}\u{e4}\nb\n".as_bytes(), "it is text, \"\u{e4}\u{e4}\", and not a file of NumPy"),
            ("a.SAFETENSORS", b"", "it is empty"),
            ("a.ckpt", b"", "it is empty"),
            ("a.safetensors", b"\x01\x02\x03", "it does not begin as a safetensors file does"),
            ("a.safetensors", &[0xff; 99], "it does not begin as a safetensors file does"),
            ("a.gguf", b"ggml\x01", "it does not begin as a GGUF file does"),
            ("a.npz", b"\x93NUMPY\x01\0", "it does not begin as a file of NumPy does"),
        ];
        for (name, bytes, what) in cases {
            let why = of(name, bytes).unwrap_or_else(|| panic!("{name}: {bytes:?}"));
            assert!(why.starts_with(what), "{name}: {why}");
        }
        // Files that promise nothing, and those that keep it.
        let others: [(&str, &[u8]); 9] = [
            ("README.html", b"<html>"),
            ("notes.txt", b"Entry not found"),
            ("blob", b""),
            ("__1_0.distcp", b""),
            ("a.pt", b"(dp0\nS'a'\np1\nI1\ns."),
            ("vocab.bin", b"one\ntwo\n"),
            ("a.bin", &[1, 2, 3]),
            ("a.npz", b"PK\x05\x06"),
            ("a.safetensors", b"\x02\0\0\0\0\0\0\0{}"),
        ];
        for (name, bytes) in others {
            assert_eq!(of(name, bytes), None, "{name}");
        }
        // Without a name it is taken for a model.
        assert!(stand_in(None, b"", 0).is_some() && stand_in(None, b"Entry not found", 15).is_some());
        assert_eq!(stand_in(None, &[1, 2, 3], 3), None);
    }
}
