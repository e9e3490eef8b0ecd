//! Files named as models that are none: pointers of Git LFS, messages of servers, interrupted downloads.

use crate::support::{Dir, model, noise};

const LFS: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:abab\nsize 4976698672\n";

/// A zip archive of one file, as torch.save and numpy.savez write them, without its end.
fn cut_archive() -> Vec<u8> {
    let mut file =
        b"PK\x03\x04\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x0e\0\0\0archive/data/0".to_vec();
    file.extend(noise(30_000, 1));
    file
}

#[test]
fn what_is_no_model_is_said() {
    let dir = Dir::new();
    let whole = model();
    let archive = cut_archive();
    let cases: [(&str, &[u8], &str); 12] = [
        ("lfs.safetensors", LFS, "it is a Git LFS pointer, and the file of 4976698672 bytes"),
        ("lfs.gguf", LFS, "run git lfs pull"),
        ("pytorch_model.bin", LFS, "it is a Git LFS pointer"),
        ("page.safetensors", b"<!DOCTYPE html>\n<html></html>\n", "it is a web page"),
        ("missing.safetensors", b"Entry not found", "it is text, \"Entry not found\""),
        ("empty.safetensors", b"", "it is empty"),
        ("empty.pt", b"", "it is empty"),
        ("cut.pt", &archive, "it is a zip archive without its end"),
        ("cut.npz", &archive, "it is a zip archive without its end"),
        ("cut.npy", b"\x93NUMPY\x01\0\x76\0{'descr'", "its header would end at byte 128: it ends early"),
        ("cut.onnx", b"\x08\x0a\x12\x01p\x3a\xff\x7f", "its model would end at byte 16391: it ends early"),
        ("cut.safetensors", &whole[..1500], "it ends early"),
    ];
    for (name, contents, what) in cases {
        dir.write(name, contents);
        let run = dir.run(["compress", name]);
        let said = run.ok().stderr();
        assert!(said.starts_with(&format!("lmc: {name}: it ")) && said.contains(what), "{said}");
        assert!(said.ends_with("; it is compressed as it is\n") && said.lines().count() == 1, "{said}");
        // Nothing is lost.
        dir.run(["decompress", &format!("{name}.lmc"), "-o", "back", "-f"]).silent();
        assert!(dir.read("back") == contents);
        dir.run(["unpack", name, "-o", "up"]).fails(&[name]);
        dir.run(["analyze", name]).fails(&[&format!("{name}: "), what]);
        let saved = dir.run(["snapshot", "save", "s", name]);
        assert!(saved.ok().stderr().contains(what), "{saved:?}");
        // Compressed it is the same.
        dir.run(["unpack", &format!("{name}.lmc"), "-o", "up"]).fails(&[&format!("{name}.lmc: ")]);
        let listed = dir.run(["list", &format!("{name}.lmc")]);
        assert!(listed.ok().stderr().contains("it was made of no model: ") || what == "it ends early", "{listed:?}");
        dir.run(["-q", "compress", "-f", "--rm", name]).silent();
        dir.run(["-q", "decompress", "--rm", &format!("{name}.lmc")]).silent();
        assert!(dir.read(name) == contents);
    }
    // A clone without the files: its directory is no checkpoint with fewer tensors.
    dir.write("repo/config.json", b"{}");
    dir.write("repo/model-1.safetensors", &whole);
    dir.write("repo/model-2.bin", LFS);
    dir.run(["analyze", "repo"]).fails(&["repo/model-2.bin: it is a Git LFS pointer"]);
    // Other files are not meant to be models.
    for (name, contents) in [("notes.txt", &b"Entry not found"[..]), ("page.html", b"<html>"), ("empty", b"")] {
        dir.write(name, contents);
        dir.run(["compress", name]).silent();
        dir.run(["list", &format!("{name}.lmc")]).ok();
        assert_eq!(dir.run(["list", &format!("{name}.lmc")]).stderr(), "");
    }
}

#[test]
fn what_is_compressed_already_is_noted() {
    let dir = Dir::new();
    let begin = |start: &[u8]| [start, &noise(5000, 1)].concat();
    for (name, contents, is_noted) in [
        ("zstd", begin(&[0x28, 0xb5, 0x2f, 0xfd]), true),
        ("gzip", begin(&[0x1f, 0x8b]), true),
        ("noise", begin(&[]), false),
        ("tiny", vec![0x1f], false),
    ] {
        dir.write(name, &contents);
        dir.run(["compress", name]).ok();
        let listed = dir.run(["list", &format!("{name}.lmc")]);
        let said = listed.ok().stderr();
        assert_eq!(said.contains("save tensors as they are (Orbax: use_ocdbt=False"), is_noted, "{name}: {said}");
    }
}
