//! An S3 origin with everything that goes wrong with one.

use std::time::Duration;

use forebay_tests::{Action, Class, Rule, S3Server, Sandbox, assert_tree_equal, rnd, tree_of};

fn source(server: &S3Server) -> Sandbox {
    let sandbox = Sandbox::with_s3(server, "some/prefix");
    sandbox.write("S/noise", rnd(1, 3_000_000));
    sandbox.write("S/sub/text", "where the water waits\n".repeat(4_000));
    sandbox
}

/// A fetch on a machine that knows nothing yet gives the source.
fn fetches(sandbox: &Sandbox) {
    sandbox.forget_cache();
    let _absent_before = std::fs::remove_dir_all(sandbox.path("D"));
    sandbox.run(["fetch", "r", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("S")));
}

#[test]
fn a_repository_in_a_bucket() {
    let server = S3Server::start();
    server.set_page_size(2);
    let sandbox = source(&server);
    sandbox.run(["push", "S", "r"]).ok();
    fetches(&sandbox);
    sandbox.run(["verify"]).ok();
    assert!(server.objects().keys().all(|key| key.starts_with("some/prefix/")), "everything is below the prefix");
    assert!(!server.objects().keys().any(|key| key.contains("probe")), "the probe cleans up");
    let pack = server.objects().into_keys().find(|key| key.ends_with(".pack")).unwrap();
    let mut bad = server.object(&pack).unwrap().to_vec();
    bad[200] ^= 1;
    server.put_object(&pack, bad);
    sandbox.run(["verify"]).ends(Class::Corrupt);
    server.remove_object(&pack);
    sandbox.run(["verify"]).ends(Class::Corrupt).says("missing");
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let server = S3Server::start();
    server.rule(Rule::new("", Action::IgnoreConditions));
    let sandbox = source(&server);
    sandbox.run(["push", "S", "r"]).ends(Class::Usage).says("create only if absent");
    sandbox.run(["init"]).ends(Class::Usage);
    assert_eq!(server.objects().len(), 0, "nothing is written there");
}

#[test]
fn a_commit_whose_answer_is_lost_counts_once() {
    for action in [Action::StatusAfterCommit(500), Action::StatusAfterCommit(409), Action::StatusAfterCommit(412)] {
        let server = S3Server::start();
        let sandbox = source(&server);
        server.rule(Rule::new("log/commit/", action).method("PUT").numbers(0..1));
        let pushed = sandbox.json(["push", "S", "r"]).ok();
        assert_eq!(pushed.num("seq"), 1);
        server.clear_rules();
        let log = sandbox.json(["log", "r"]).ok();
        assert_eq!(log.num("versions"), 1, "neither lost nor doubled");
        fetches(&sandbox);
    }
}

#[test]
fn a_409_is_no_lost_race() {
    let server = S3Server::start();
    let sandbox = source(&server);
    server.rule(Rule::new("log/commit/", Action::Status(409)).method("PUT").numbers(0..2));
    assert_eq!(sandbox.json(["push", "S", "r"]).ok().num("seq"), 1);
    fetches(&sandbox);
}

#[test]
fn passing_faults_are_waited_for() {
    let server = S3Server::start();
    let sandbox = source(&server);
    server.rule(Rule::new("pack/", Action::Status(503)).method("PUT").numbers(0..2));
    sandbox.run(["push", "S", "r"]).ok();
    server.clear_rules();
    server.rule(Rule::new("pack/", Action::Status(503)).method("GET").numbers(0..2));
    fetches(&sandbox);
    server.clear_rules();
    server.rule(Rule::new("pack/", Action::CutAfter(5_000)).method("GET").numbers(0..2));
    fetches(&sandbox);
}

#[test]
fn an_origin_that_stays_away_is_named() {
    let server = S3Server::start();
    let sandbox = source(&server);
    sandbox.run(["push", "S", "r"]).ok();
    sandbox.run(["fetch", "r", "D"]).ok();
    let before = tree_of(sandbox.path("D"));
    server.rule(Rule::new("", Action::Status(503)));
    let away = sandbox.run(["fetch", "r", "D"]).ends(Class::Net).says("503").says("s3://bucket/some/prefix");
    assert!(away.elapsed < Duration::from_secs(45), "took {:?}", away.elapsed);
    drop(server);
    let refused = sandbox.run(["push", "S", "r"]).ends(Class::Net).says("refused");
    assert!(refused.elapsed < Duration::from_secs(45), "took {:?}", refused.elapsed);
    assert!(tree_of(sandbox.path("D")) == before);
}

#[test]
fn sixteen_pushers_and_one_ref() {
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "repo");
    sandbox.write("S/first", "first");
    let first = sandbox.json(["push", "S", "r"]).ok().str("snapshot");
    for number in 0..16 {
        sandbox.write(format!("S{number}/f{number}"), number.to_string());
    }
    let all = |expect: Option<&str>| {
        let running: Vec<_> = (0..16)
            .map(|number| {
                let mut command = sandbox.command(["push", &format!("S{number}"), "r"]);
                for word in expect.iter().flat_map(|expect| ["--expect", *expect]) {
                    command = command.arg(word);
                }
                command.start()
            })
            .collect();
        running
            .into_iter()
            .map(|run| run.wait().ends_in_one_of(&[Class::Ok, Class::Conflict]).code())
            .collect::<Vec<_>>()
    };
    let codes = all(Some(&first));
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    assert_eq!(sandbox.json(["log", "r"]).ok().num("versions"), 2);
    let codes = all(None);
    let won = codes.iter().filter(|code| **code == 0).count() as u64;
    // The winner of the first round pushes what is there already, unless another push came before it.
    let versions = sandbox.json(["log", "r"]).ok().num("versions");
    assert!(won == 16 && (versions == 2 + won || versions == 1 + won), "{won} won, {versions} versions: {codes:?}");
    sandbox.run(["verify"]).ok();
}
