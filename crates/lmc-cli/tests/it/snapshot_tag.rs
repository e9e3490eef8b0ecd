//! `lmc snapshot tag`, and tags in other commands.

use serde_json::json;

use crate::support::*;

/// A store with the snapshots of steps 1, 2 and 3, the last with a tag.
fn saved() -> Dir {
    let dir = Dir::new();
    for step in ["1", "2"] {
        dir.write("w", step.as_bytes());
        dir.run(["-q", "snapshot", "save", "s", "w", "--step", step]).silent();
    }
    dir.write("w", b"3");
    let saved = dir.run(["snapshot", "save", "s", "w", "--tag", "lora"]);
    assert!(saved.ok().stderr().starts_with("s : step 3 (lora), 1 B => "), "{saved:?}");
    dir
}

#[test]
fn a_tag_stands_for_its_snapshot() {
    let dir = saved();
    let tag = dir.run(["snapshot", "tag", "s", "best", "2"]);
    assert_eq!(tag.ok().stderr(), "s : best, step 2\n");
    dir.run(["snapshot", "restore", "s", "--at", "best", "-o", "out"]).ok();
    assert_eq!(dir.read("out/w"), b"2");
    assert!(dir.run(["snapshot", "show", "s", "--at", "lora"]).ok().stdout().contains("\ntags lora\n"));
    dir.run(["snapshot", "verify", "s", "--at", "best"]).ok();
    let json = &dir.run(["snapshot", "tag", "s", "base", "best", "--json"]).json()[0];
    assert_eq!((&json["tag"], &json["step"]), (&json!("base"), &json!(2)));
    for command in ["list", "log"] {
        let listed = dir.run(["snapshot", command, "s", "--json"]).json();
        let tags: Vec<_> = listed.iter().map(|s| &s["tags"]).collect();
        assert_eq!(tags, [&json!([]), &json!(["base", "best"]), &json!(["lora"])]);
        assert!(dir.run(["snapshot", command, "s"]).ok().stdout().contains("base best"));
    }
    // Moved, by default to the latest; deleted.
    assert_eq!(dir.run(["snapshot", "tag", "s", "best"]).ok().stderr(), "s : best, step 3\n");
    assert_eq!(dir.run(["snapshot", "tag", "s", "best", "--delete"]).ok().stderr(), "s : best, deleted\n");
    dir.run(["snapshot", "restore", "s", "--at", "best", "-o", "no"]).fails(&["s: the store has no tag best"]);
    dir.run(["snapshot", "tag", "s", "best", "--delete"]).fails(&["s: the store has no tag best"]);
    dir.run(["snapshot", "tag", "s", "best", "9"]).fails(&["no snapshot of step 9"]);
    for name in ["7", "latest", "a/b", ".x"] {
        let run = dir.run(["snapshot", "tag", "s", name]);
        assert!(run.0.status.code() == Some(2) && run.stderr().contains("cannot be a tag"), "{run:?}");
    }
    for (wrong, why) in [("tag s best 2 --delete", "--delete"), ("show s --at 'a b'", "nor a tag")] {
        let run = dir.shell(&format!("exec $LMC snapshot {wrong}"));
        assert!(run.0.status.code() == Some(2) && run.stderr().contains(why), "{run:?}");
    }
    // In a copy, and in an archive.
    dir.run(["-q", "snapshot", "copy", "s", "copy", "--at", "base"]).silent();
    assert_eq!(dir.run(["snapshot", "list", "copy", "--json"]).json()[0]["tags"], json!(["base"]));
    dir.run(["-q", "snapshot", "export", "s", "s.tar"]).silent();
    dir.run(["snapshot", "restore", "s.tar", "--at", "lora", "-o", "from"]).ok();
    assert_eq!(dir.read("from/w"), b"3");
}

#[test]
fn a_tag_keeps_its_snapshot() {
    let dir = saved();
    dir.run(["snapshot", "tag", "s", "best", "1"]).ok();
    let plan = dir.run(["snapshot", "prune", "s", "--keep-last", "1"]);
    assert!(plan.ok().stdout().contains("\n  keep    1 (tag best) 3 (last, tag lora)\n"), "{plan:?}");
    dir.run(["snapshot", "prune", "s", "--drop", "1", "--yes"]).is_misused(&["step 1 has the tag best", "--delete"]);
    // One that cannot be read may name any snapshot.
    let [tag] = &dir.names().into_iter().filter(|name| name.starts_with("s/tags/best/")).collect::<Vec<_>>()[..] else {
        panic!("{:?}", dir.names())
    };
    dir.write(tag, b"{}");
    dir.run(["snapshot", "prune", "s", "--keep-last", "1", "--yes"])
        .fails(&["s: tags/best/", "lmc snapshot tag STORE best"]);
    dir.run(["snapshot", "verify", "s"]).fails(&["s: tags/best/"]);
    dir.run(["snapshot", "list", "s"]).fails(&["s: tags/best/"]);
    dir.run(["snapshot", "restore", "s", "--at", "best", "-o", "no"]).fails(&["s: tags/best/"]);
    dir.run(["snapshot", "tag", "s", "best", "--delete"]).ok();
    dir.run(["snapshot", "verify", "s"]).ok();
    dir.run(["-q", "snapshot", "prune", "s", "--keep-last", "1", "--yes"]).silent();
    assert_eq!(dir.run(["snapshot", "list", "s", "--json"]).json().len(), 1);
}
