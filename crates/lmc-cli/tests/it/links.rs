//! Symbolic links and hard links, as in the cache of the Hugging Face hub, where every file of a model is a link to a blob.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Dir, model, safetensors, weights};

/// A file of one tensor.
fn weights_file(seed: u64) -> Vec<u8> {
    safetensors(&[("w", "BF16", &[6400], &weights(6400, seed))])
}

/// A repository of a cache: blobs, and a snapshot of links to them.
fn repository(dir: &Dir, name: &str, files: &[(&str, &[u8])]) -> String {
    for (number, (file, contents)) in files.iter().enumerate() {
        dir.write(&format!("{name}/blobs/{number}"), contents);
        let link = format!("{name}/snapshots/rev/{file}");
        let up = "../".repeat(file.matches('/').count() + 2);
        fs::create_dir_all(dir.path(&link).parent().unwrap()).unwrap();
        symlink(format!("{up}blobs/{number}"), dir.path(&link)).unwrap();
    }
    format!("{name}/snapshots/rev")
}

fn cache() -> (Dir, String) {
    let dir = Dir::new();
    let files = [("config.json", &b"{}"[..]), ("model.safetensors", &model())];
    let snapshot = repository(&dir, "hub/llm", &files);
    (dir, snapshot)
}

/// Whether every link leads to a file, and the space that files and links take.
fn state(dir: &Dir) -> Vec<(String, u64)> {
    dir.names().into_iter().map(|n| (dir.path(&n).metadata().expect(&n).len(), n)).map(|(len, n)| (n, len)).collect()
}

#[test]
fn commands_that_read_follow_links() {
    let (dir, snapshot) = cache();
    let link = &*format!("{snapshot}/model.safetensors");
    let before = state(&dir);
    dir.run(["compress", link, "-o", "m.lmc"]).silent();
    dir.run(["unpack", link, "-o", "up"]).ok();
    dir.write("plain.safetensors", &model());
    dir.run(["unpack", "plain.safetensors", "-o", "up"]).ok();
    assert!(dir.read("up/model.safetensors") == dir.read("up/plain.safetensors"));
    std::fs::remove_file(dir.path("plain.safetensors")).unwrap();
    dir.run(["diff", link, link]).ok();
    dir.run(["analyze", &snapshot]).ok();
    dir.run(["compress", link, "--base", link, "-o", "same.lmc"]).ok();
    symlink("m.lmc", dir.path("n.lmc")).unwrap();
    dir.run(["test", "n.lmc"]).ok();
    dir.run(["list", "n.lmc"]).ok();
    dir.run(["cat", "n.lmc", "embed.weight", "-o", "t"]).silent();
    dir.run(["unpack", "n.lmc", "-o", "up2"]).ok();
    dir.run(["decompress", "n.lmc"]).silent();
    assert!(dir.read("n") == model() && dir.path("n").symlink_metadata().unwrap().is_file());
    // Their results are files beside them.
    dir.run(["compress", link]).silent();
    let made = dir.path(format!("{link}.lmc")).symlink_metadata().unwrap();
    assert!(made.is_file() && made.len() == dir.read("m.lmc").len() as u64);
    fs::remove_file(dir.path(format!("{link}.lmc"))).unwrap();
    let after = state(&dir);
    assert!(before.iter().all(|entry| after.contains(entry)));
    // Those that lead nowhere, or to no file.
    symlink("nowhere", dir.path("dangling.lmc")).unwrap();
    symlink(".", dir.path("directory.lmc")).unwrap();
    for command in ["compress", "decompress", "test", "list"] {
        dir.run([command, "dangling.lmc"]).fails(&["dangling.lmc: is a symbolic link to nowhere, which is not there"]);
        dir.run([command, "directory.lmc"]).fails(&["directory.lmc: is a directory"]);
    }
}

#[test]
fn models_behind_links_are_found() {
    let (dir, snapshot) = cache();
    repository(&dir, "hub/pipe", &[("unet/m.safetensors", &weights_file(1)), ("vae/m.safetensors", &weights_file(2))]);
    dir.run(["compress", "-r", "hub", "-o", "mirror"]).silent();
    let made: Vec<_> = dir.names().into_iter().filter(|n| n.starts_with("mirror") && n.ends_with(".lmc")).collect();
    let expected = [
        "mirror/llm/snapshots/rev/model.safetensors.lmc",
        "mirror/pipe/snapshots/rev/unet/m.safetensors.lmc",
        "mirror/pipe/snapshots/rev/vae/m.safetensors.lmc",
    ];
    assert_eq!(made, expected);
    dir.run(["decompress", "-r", "mirror", "-o", "back"]).silent();
    assert!(dir.read(&format!("back/{}/model.safetensors", &snapshot[4..])) == model());
    // A link to a file that is compressed, too, is no second one.
    let run = dir.run(["compress", "-r", "--all", "-v", "hub/llm"]);
    assert!(
        run.ok().stderr().contains("rev/model.safetensors: left alone, a link to another file of these"),
        "{run:?}"
    );
    let made: Vec<_> = dir.names().into_iter().filter(|n| n.starts_with("hub") && n.ends_with(".lmc")).collect();
    assert_eq!(made, ["hub/llm/blobs/0.lmc", "hub/llm/blobs/1.lmc"]);
    // Nothing is silently left out.
    symlink("gone", dir.path("hub/llm/gone.safetensors")).unwrap();
    let run = dir.run(["compress", "-r", "hub/llm", "-o", "again"]);
    assert_eq!(run.ok().stderr(), "lmc: hub/llm/gone.safetensors: left alone, a link that leads nowhere\n");
}

#[test]
fn no_link_is_left_without_its_file() {
    let (dir, snapshot) = cache();
    let link = &*format!("{snapshot}/model.safetensors");
    dir.write("run/step1.safetensors", &model());
    symlink("step1.safetensors", dir.path("run/latest.safetensors")).unwrap();
    dir.run(["compress", "run/step1.safetensors", "-o", "m.lmc"]).silent();
    symlink("m.lmc", dir.path("link.lmc")).unwrap();
    let before = state(&dir);
    let hub = "is in a cache of the Hugging Face hub, and links in its snapshots lead to it: leave out --rm; lmc hub compress ";
    for args in [
        &["compress", "-r", "--all", "--rm", "hub"][..],
        &["compress", "-r", "--rm", "hub"],
        &["compress", "-f", "--rm", link],
        &["compress", "--rm", link],
        &["compress", "--rm", "hub/llm/blobs/1"],
        &["compress", "--rm", link, "-o", "elsewhere.lmc"],
        &["compress", "-r", "--rm", "hub", "-o", "mirror"],
    ] {
        crate::support::Run(dir.command(args).output().unwrap()).is_misused(&[hub]);
    }
    let leads = "run/step1.safetensors: is what the symbolic link run/latest.safetensors leads to";
    dir.run(["compress", "-r", "--rm", "run"]).is_misused(&[leads, "leave out --rm, or remove the link"]);
    fs::rename(dir.path("run/latest.safetensors"), dir.path("run/latest")).unwrap();
    dir.run(["compress", "-r", "--rm", "run"]).is_misused(&["is what the symbolic link run/latest leads to"]);
    fs::rename(dir.path("run/latest"), dir.path("run/latest.safetensors")).unwrap();
    let takes = "is a symbolic link, without which run/step1.safetensors would take the same space";
    dir.run(["compress", "-f", "--rm", "run/latest.safetensors"]).is_misused(&[takes, "or name that file"]);
    dir.run(["decompress", "--rm", "link.lmc"]).is_misused(&["link.lmc: is a symbolic link", "m.lmc"]);
    assert_eq!(state(&dir), before);
    // Without the link the space is freed.
    fs::remove_file(dir.path("run/latest.safetensors")).unwrap();
    dir.run(["compress", "-r", "--rm", "run"]).silent();
    assert!(!dir.has("run/step1.safetensors") && dir.has("run/step1.safetensors.lmc"));
}

#[test]
fn space_that_hard_links_keep_is_named() {
    let dir = Dir::new();
    dir.write("a", b"data");
    fs::hard_link(dir.path("a"), dir.path("b")).unwrap();
    fs::hard_link(dir.path("a"), dir.path("c")).unwrap();
    let said = |names| format!("lmc: a: is removed, but its file has {names} (hard links): its space is free when ");
    let run = dir.run(["compress", "--rm", "a"]);
    assert!(run.ok().stderr().starts_with(&said("2 more names")), "{run:?}");
    fs::rename(dir.path("c"), dir.path("a")).unwrap();
    let run = dir.run(["compress", "-f", "--rm", "a"]);
    assert!(run.ok().stderr().starts_with(&said("1 more name")), "{run:?}");
    dir.run(["compress", "--rm", "b"]).silent();
    assert_eq!(dir.names(), ["a.lmc", "b.lmc"]);
}

#[test]
fn a_pipeline_of_links_is_saved() {
    let dir = Dir::new();
    let (unet, vae) = (weights_file(1), weights_file(2));
    let files = [
        ("model_index.json", &b"{ }"[..]),
        ("unet/config.json", b"{\"a\":1}"),
        ("unet/m.safetensors", &unet),
        ("vae/config.json", b"{\"a\":2}"),
        ("vae/m.safetensors", &vae),
    ];
    let snapshot = repository(&dir, "hub/pipe", &files);
    dir.run(["-q", "snapshot", "save", "s", &snapshot]).silent();
    dir.run(["snapshot", "restore", "s", "-o", "back"]).ok();
    for (name, contents) in files {
        assert!(dir.read(&format!("back/{name}")) == contents, "{name}");
    }
    // Files of equal names, one by one.
    let [a, b] = ["unet", "vae"].map(|part| format!("{snapshot}/{part}/config.json"));
    let what = format!("{a} and {b}: two files are named \"config.json\": name the directory that both are in");
    dir.run(["snapshot", "save", "t", &a, &b]).is_misused(&[&what]);
    assert!(!dir.has("t"));
    // What is not followed.
    symlink("..", dir.path(format!("{snapshot}/up"))).unwrap();
    dir.run(["snapshot", "save", "t", &snapshot]).fails(&["rev/up: is a symbolic link to a directory"]);
    fs::remove_file(dir.path(format!("{snapshot}/up"))).unwrap();
    fs::remove_file(dir.path("hub/pipe/blobs/4")).unwrap();
    dir.run(["snapshot", "save", "t", &snapshot]).fails(&["vae/m.safetensors: is a symbolic link that leads nowhere"]);
}

#[test]
fn a_link_leads_to_what_was_compressed_since() {
    let dir = Dir::new();
    dir.write("elsewhere/a.safetensors", &model());
    symlink("elsewhere/a.safetensors", dir.path("link.safetensors")).unwrap();
    symlink("link.safetensors", dir.path("two")).unwrap();
    dir.run(["compress", "--rm", "elsewhere/a.safetensors"]).silent();
    for link in ["link.safetensors", "two"] {
        dir.run(["test", link]).ok();
        dir.run(["list", link]).ok();
        dir.run(["diff", link, "elsewhere/a.safetensors.lmc"]).ok();
        dir.run(["cat", link, "embed.weight", "-o", "tensor", "-f"]).silent();
        dir.run(["decompress", link, "-o", "restored", "-f"]).silent();
        assert!(dir.read("restored") == model());
        dir.run(["compress", "restored", "--base", link, "-o", "delta.lmc", "-f"]).silent();
        dir.run(["decompress", "delta.lmc", "--base", link, "-o", "again", "-f"]).silent();
        assert!(dir.read("again") == model());
        let run = dir.run(["compress", link]);
        assert!(run.ok().stderr().contains("skipped, it is already compressed"), "{run:?}");
        dir.run(["decompress", link]).fails(&["has no name ending in .lmc: name the output with -o, if lmc made it"]);
        dir.run(["decompress", "--rm", link, "-o", "gone"]).is_misused(&["is a symbolic link", "leave out --rm"]);
    }
    assert!(dir.has("elsewhere/a.safetensors.lmc") && !dir.has("gone"));
}

#[test]
fn models_are_found_by_their_contents() {
    let dir = Dir::new();
    dir.write("d/weights", &model());
    dir.write("d/notes", b"no tensors here");
    dir.write("d/model.txt", &model());
    dir.write("d/.git/lfs/objects/hash", &model());
    repository(&dir, "d/hub", &[("model.safetensors", &weights_file(1))]);
    dir.run(["compress", "-r", "d", "-o", "mirror"]).silent();
    let made: Vec<_> = dir.names().into_iter().filter(|n| n.ends_with(".lmc")).collect();
    assert_eq!(made, ["mirror/hub/snapshots/rev/model.safetensors.lmc", "mirror/weights.lmc"]);
}
