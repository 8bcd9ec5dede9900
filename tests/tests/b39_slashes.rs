//! B39: slashes, dots, tilde.

use forebay_tests::{Class, Sandbox, assert_tree_equal, tree_of};

#[test]
fn every_spelling_of_a_folder_means_the_folder() {
    let sandbox = Sandbox::new();
    sandbox.write("data/a.bin", "1");
    let absolute = sandbox.path("data");
    let mut ids = Vec::new();
    for spelling in ["data", "data/", "./data", "data/.", absolute.to_str().unwrap()] {
        ids.push(sandbox.json(["push", spelling, "r"]).ok().str("snapshot"));
    }
    ids.push(sandbox.command(["push", ".", "r"]).json().cwd(&absolute).run().ok().str("snapshot"));
    ids.dedup();
    assert_eq!(ids.len(), 1, "one folder, one id: {ids:?}");
    assert_eq!(sandbox.json(["ls", "-R", "r"]).ok().listed_paths(), [b"a.bin"]);
    assert_eq!(sandbox.json(["log", "r"]).ok().num("versions"), 1, "equal pushes append nothing");

    for spelling in ["D", "D/", "D/.", "./D"] {
        sandbox.run(["fetch", "r", spelling]).ok();
        assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(&absolute));
    }
}

#[test]
fn a_quoted_tilde_is_no_folder() {
    let sandbox = Sandbox::new();
    sandbox.write("home/data/a.bin", "1");
    sandbox.run(["push", "~/data", "r"]).ends(Class::Usage).says("~/data");
    assert!(!sandbox.path("~").exists() && !sandbox.repo_dir().exists(), "nothing is made");
    sandbox.run(["--repo", "~/repo", "refs"]).ends(Class::Usage).says("~");
}

#[test]
fn what_is_no_folder_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("data/a.bin", "1");
    sandbox.run(["push", "data", "r"]).ok();
    sandbox.write("file", "mine");
    sandbox.run(["fetch", "r", "file"]).ends(Class::Usage).says("file");
    assert_eq!(std::fs::read(sandbox.path("file")).unwrap(), b"mine");
    sandbox.run(["fetch", "r", ""]).ends(Class::Usage);
    sandbox.run(["push", "", "r"]).ends(Class::Usage);
    sandbox.run(["push", "absent", "r"]).ends(Class::NotFound).says("absent");
    sandbox.run(["push", "/dev/null", "r"]).ends(Class::Usage).says("/dev/null");
}

#[test]
fn one_file_is_a_folder_of_one() {
    let sandbox = Sandbox::new();
    sandbox.write("one/model.bin", "weights");
    let pushed = sandbox.json(["push", "one/model.bin", "r"]).ok();
    assert_eq!((pushed.num("files"), pushed.num("dirs")), (1, 0));
    assert_eq!(sandbox.cat("r:model.bin").ok().stdout, b"weights");
}
