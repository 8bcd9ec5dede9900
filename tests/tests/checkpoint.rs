//! Checkpoints: saved, listed, restored, signed; steps that are there already; saves that are killed.

use std::time::Duration;

use forebay_tests::{
    Class, S3Server, Sandbox, assert_tree_equal, rnd, safetensors, set_mtime, skipped, tree_of, wait_until,
};
use rustix::process::Signal;

const MODEL_TENSORS: u64 = 4;

fn model(seed: u64) -> Vec<u8> {
    let shapes: [(&str, &str, &[u64], usize); 4] = [
        ("embed", "F32", &[500, 300], 600_000),
        ("layer.0.weight", "BF16", &[1000, 250], 500_000),
        ("scale", "F64", &[], 8),
        ("unused", "F32", &[0, 7], 0),
    ];
    safetensors(seed, &shapes)
}

/// A sandbox with a checkpoint folder in it.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("C/model.safetensors", model(1));
    sandbox.write("C/state/optimizer.pt", rnd(2, 700_000));
    sandbox.write("C/state/rng", rnd(3, 100));
    sandbox.write("C/empty", "");
    std::os::unix::fs::symlink("state/rng", sandbox.path("C/link")).expect("links can be made");
    sandbox
}

fn save(sandbox: &Sandbox, path: &str, step: &str) -> forebay_tests::Command {
    sandbox.command(["checkpoint", "save", path, "runs/a", "--step", step]).json()
}

fn key(sandbox: &Sandbox, name: &str) -> String {
    sandbox.json(["key", "generate", name]).ok().str("id")
}

#[test]
fn a_folder_comes_back_byte_for_byte() {
    let sandbox = sandbox();
    let saved = save(&sandbox, "C", "100").run().ok();
    let result = saved.result();
    let fields = "snapshot run step files tensors bytes new_bytes stored_bytes anchor delta_tensors signed_by seconds";
    for name in fields.split(' ') {
        assert!(result.get(name).is_some(), "{name} is missing in {result}");
    }
    assert_eq!((saved.num("step"), saved.num("files"), saved.num("tensors")), (100, 4, MODEL_TENSORS));
    assert_eq!((&result["anchor"], saved.num("delta_tensors")), (&true.into(), 0));
    assert_eq!((saved.str("run").as_str(), &result["signed_by"]), ("runs/a", &serde_json::Value::Null));

    let restored = sandbox.json(["checkpoint", "restore", "runs/a@100", "D"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("C")));
    let result = restored.result();
    assert_eq!((restored.num("step"), restored.num("bytes")), (100, saved.num("bytes")));
    assert_eq!((restored.num("tensors"), &result["verified"]), (MODEL_TENSORS, &true.into()));
    assert!(result["path"]["origin"].as_u64().unwrap() > 1_500_000 && result["path"]["local"] == 0);
    // What is here already is not read again.
    let again = sandbox.json(["checkpoint", "restore", "runs/a@latest", "D"]).ok().result();
    assert!(again["path"]["origin"] == 0 && again["path"]["site"] == 0, "{again}");
    assert_eq!(again["path"]["local"], again["bytes"]);
}

#[test]
fn files_and_several_paths_come_back_by_their_last_names() {
    let sandbox = sandbox();
    sandbox.write("other/notes.txt", "notes");
    std::os::unix::fs::symlink("C/model.safetensors", sandbox.path("newest.safetensors")).unwrap();
    let one = save(&sandbox, "C/model.safetensors", "1").run().ok();
    assert_eq!((one.num("files"), one.num("tensors")), (1, MODEL_TENSORS));
    sandbox.run(["checkpoint", "restore", "runs/a@1", "D1"]).ok();
    assert_eq!(std::fs::read(sandbox.path("D1/model.safetensors")).unwrap(), model(1));

    let args = ["checkpoint", "save", "C/state/", "other/notes.txt", "newest.safetensors", "runs/a", "--step", "2"];
    let several = sandbox.json(args).ok();
    assert_eq!((several.num("files"), several.num("tensors")), (4, MODEL_TENSORS));
    sandbox.run(["checkpoint", "restore", "runs/a@2", "D2"]).ok();
    assert_tree_equal(&tree_of(sandbox.path("D2/state")), &tree_of(sandbox.path("C/state")));
    assert_eq!(std::fs::read_to_string(sandbox.path("D2/notes.txt")).unwrap(), "notes");
    // A link that is given itself is followed, as with one path.
    assert_eq!(std::fs::read(sandbox.path("D2/newest.safetensors")).unwrap(), model(1));
    assert!(!sandbox.path("D2/newest.safetensors").is_symlink());
    let swapped = ["checkpoint", "save", "newest.safetensors", "C/state", "other/notes.txt", "runs/a", "--step", "2"];
    assert_eq!(sandbox.json(swapped).ok().result()["committed"], false, "the order of the paths says nothing");

    sandbox.write("twin/state", "another state");
    let twins = sandbox.json(["checkpoint", "save", "C/state", "twin/state", "runs/a", "--step", "3"]);
    let message = twins.ends(Class::Usage).error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("C/state") && message.contains("twin/state"), "{message}");
    sandbox.run(["checkpoint", "save", "C", "..", "runs/a", "--step", "3"]).ends(Class::Usage).says("last name");
    sandbox.run(["checkpoint", "save", "C", "absent", "runs/a", "--step", "3"]).ends(Class::NotFound).says("absent");
}

#[test]
fn a_step_is_never_written_over() {
    let sandbox = sandbox();
    let first = save(&sandbox, "C", "100").run().ok();
    let again = save(&sandbox, "C", "100").run().ok();
    assert_eq!((again.num("new_bytes"), again.num("stored_bytes")), (0, 0));
    assert_eq!((again.str("snapshot"), &again.result()["committed"]), (first.str("snapshot"), &false.into()));
    // The same bytes written at another time are equal too: a job that started again writes them so.
    set_mtime(sandbox.path("C/state/rng"), 1_000, 0);
    let rewritten = save(&sandbox, "C", "100").run().ok();
    assert_eq!((rewritten.str("snapshot"), rewritten.num("stored_bytes")), (first.str("snapshot"), 0));

    let before = tree_of(sandbox.repo_dir());
    for (path, content) in [("C/state/rng", rnd(9, 100)), ("C/more", b"more".to_vec())] {
        let kept = std::fs::read(sandbox.path(path)).ok();
        sandbox.write(path, content);
        let error = save(&sandbox, "C", "100").run().ends(Class::Conflict).error();
        assert!(error["message"].as_str().unwrap().contains("runs/a@100"), "{error}");
        assert_eq!((&error["step"], error["found"].as_str()), (&100.into(), Some(first.str("snapshot").as_str())));
        match kept {
            Some(kept) => std::fs::write(sandbox.path(path), kept).unwrap(),
            None => std::fs::remove_file(sandbox.path(path)).unwrap(),
        }
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(sandbox.path("C/empty"), std::fs::Permissions::from_mode(0o755)).unwrap();
    save(&sandbox, "C", "100").run().ends(Class::Conflict);
    assert!(tree_of(sandbox.repo_dir()) == before, "a step that is there is compared with, and nothing is stored");
}

#[test]
fn two_saves_of_one_step_race() {
    let sandbox = Sandbox::new();
    sandbox.run(["init"]).ok();
    for number in 0..6 {
        sandbox.write(format!("C{number}/model"), rnd(number, 50_000));
    }
    let running: Vec<_> = (0..6).map(|number| save(&sandbox, &format!("C{number}"), "5").start()).collect();
    let codes: Vec<_> =
        running.into_iter().map(|run| run.wait().ends_in_one_of(&[Class::Ok, Class::Conflict]).code()).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    assert_eq!(sandbox.json(["checkpoint", "ls", "runs/a"]).ok().num("checkpoints"), 1);
}

#[test]
fn signers_that_race_sign_again() {
    let sandbox = Sandbox::new();
    sandbox.run(["init"]).ok();
    key(&sandbox, "key");
    for number in 0..6 {
        sandbox.write(format!("C{number}/model"), rnd(number, 50_000));
    }
    let running: Vec<_> = (0..6)
        .map(|number| save(&sandbox, &format!("C{number}"), &number.to_string()).args(["--sign", "key"]).start())
        .collect();
    running.into_iter().for_each(|run| {
        run.wait().ok();
    });
    // Each signature is good for the place that its version came to have.
    sandbox.forget_cache();
    for number in 0..6 {
        let name = format!("runs/a@{number}");
        sandbox.run(["checkpoint", "verify", &name, "--keys", "key.pub"]).ok();
    }
    sandbox.run(["verify"]).ok();
}

#[test]
fn the_latest_is_the_one_saved_last() {
    let sandbox = sandbox();
    save(&sandbox, "C", "200").run().ok();
    sandbox.write("C/state/rng", rnd(7, 100));
    let lower = save(&sandbox, "C", "150").run().ok();
    // Versions that are no checkpoints are none.
    sandbox.write("other/file", "plain");
    sandbox.run(["push", "other", "runs/a"]).ok();
    sandbox.run(["push", "other", "plain"]).ok();

    let listed = sandbox.json(["checkpoint", "ls", "runs/a"]).ok();
    let steps: Vec<_> = listed.entries().iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!((steps, listed.num("latest")), (vec![200, 150], 150));
    for name in ["runs/a@latest", "runs/a"] {
        let restored = sandbox.json(["checkpoint", "restore", name, "D"]).ok();
        assert_eq!((restored.num("step"), restored.str("snapshot")), (150, lower.str("snapshot")));
    }
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("C")));

    for absent in ["runs/a@151", "runs/b@latest", "plain@latest", "plain@1"] {
        sandbox.json(["checkpoint", "restore", absent, "X"]).ends(Class::NotFound);
    }
    sandbox.run(["checkpoint", "restore", "runs/a@151", "X"]).ends(Class::NotFound).says("runs/a@150");
    for wrong in ["runs/a@newest", "runs/a@-1", "A@1"] {
        sandbox.run(["checkpoint", "restore", wrong, "X"]).ends(Class::Usage);
    }
    assert!(!sandbox.path("X").exists());
}

#[test]
fn a_parent_is_the_checkpoint_that_is_named() {
    let sandbox = sandbox();
    let first = save(&sandbox, "C", "100").run().ok().str("snapshot");
    sandbox.write("C/state/rng", rnd(7, 100));
    save(&sandbox, "C", "200").run().ok();
    sandbox.write("C/state/rng", rnd(8, 100));
    let forked = save(&sandbox, "C", "101").args(["--parent", "runs/a@100"]).run().ok();
    assert_eq!(forked.str("parent"), first);
    save(&sandbox, "C", "102").args(["--parent", "runs/a@99"]).run().ends(Class::NotFound);
}

#[test]
fn listing_needs_the_log_alone() {
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "repo");
    sandbox.write("C/model", model(1));
    save(&sandbox, "C", "1").run().ok();
    sandbox.forget_cache();
    server.clear_log();
    sandbox.run(["checkpoint", "ls", "runs/a"]).ok();
    assert_eq!((server.sent_bytes("pack/"), server.sent_bytes("index/")), (0, 0));
}

#[test]
fn show_tells_what_is_in_it() {
    let sandbox = sandbox();
    let id = key(&sandbox, "key");
    save(&sandbox, "C", "100").args(["--sign", "key"]).run().ok();
    let shown = sandbox.json(["checkpoint", "show", "runs/a@100"]).ok();
    let tensors: Vec<_> = shown.entries().into_iter().filter(|line| line["event"] == "tensor").collect();
    let embed = tensors.iter().find(|line| line["name"] == "embed").expect("every tensor is listed");
    assert_eq!((&embed["dtype"], &embed["shape"]), (&"F32".into(), &serde_json::json!([500, 300])));
    assert_eq!((&embed["bytes"], &embed["path"]), (&600_000.into(), &"model.safetensors".into()));
    assert_eq!((tensors.len() as u64, shown.num("tensors"), shown.num("files")), (MODEL_TENSORS, MODEL_TENSORS, 4));
    let result = shown.result();
    assert_eq!((&result["signature"], shown.str("signed_by")), (&"unchecked".into(), id));
    assert_eq!((&result["complete"], shown.num("missing")), (&true.into(), 0));
    sandbox.run(["key", "trust", "add", "key.pub"]).ok();
    assert_eq!(sandbox.json(["checkpoint", "show", "runs/a"]).ok().str("signature"), "trusted");
    sandbox.run(["key", "trust", "revoke", "key.pub"]).ok();
    assert_eq!(sandbox.json(["checkpoint", "show", "runs/a"]).ok().str("signature"), "revoked");
}

#[test]
fn signatures_decide_who_may_restore() {
    let sandbox = sandbox();
    let (id, other) = (key(&sandbox, "key"), key(&sandbox, "other"));
    let saved = save(&sandbox, "C", "1").args(["--sign", "key"]).run().ok();
    assert_eq!(saved.str("signed_by"), id);
    sandbox.write("C/state/rng", rnd(7, 100));
    save(&sandbox, "C", "2").run().ok();
    let restore =
        |name: &str, keys: &str| sandbox.json(["checkpoint", "restore", name, "D", "--require-signature", keys]);
    sandbox.write("both.keys", format!("# two of us\n{other}\nforebay-public-v0:{id} # the first\n"));
    for keys in ["key.pub", "both.keys"] {
        let restored = restore("runs/a@1", keys).ok();
        assert_eq!((restored.str("signed_by"), restored.str("signature")), (id.clone(), "verified".to_owned()));
        std::fs::remove_dir_all(sandbox.path("D")).unwrap();
    }
    let refused = |name: &str, keys: &str, class: Class, says: &str| {
        let error = restore(name, keys).ends(class).error();
        assert!(error["message"].as_str().unwrap().contains(says), "{says}: {error}");
        assert!(!sandbox.path("D").exists(), "nothing is written before the signature is accepted");
    };
    refused("runs/a@1", "other.pub", Class::Auth, &id);
    refused("runs/a@2", "key.pub", Class::Auth, "runs/a@2 is not signed");
    refused("runs/a@1", "absent.pub", Class::NotFound, "absent.pub");
    refused("runs/a@1", "key", Class::Usage, "secret");
    sandbox.write("empty.keys", "# nobody\n");
    refused("runs/a@1", "empty.keys", Class::Usage, "empty.keys");

    sandbox.run(["checkpoint", "verify", "runs/a@1", "--keys", "key.pub"]).ok();
    sandbox.run(["checkpoint", "verify", "runs/a@1", "--keys", "other.pub"]).ends(Class::Auth);
    sandbox.run(["checkpoint", "verify", "runs/a@2", "--keys", "key.pub"]).ends(Class::Auth);
    // A step that is there, equal and signed by nobody or somebody else, is not signed again in passing.
    save(&sandbox, "C", "2").args(["--sign", "key"]).run().ends(Class::Conflict);
    assert_eq!(sandbox.json(["checkpoint", "restore", "runs/a@2", "D"]).ok().str("signature"), "none");

    sandbox.run(["key", "trust", "revoke", &id]).ok();
    std::fs::remove_dir_all(sandbox.path("D")).unwrap();
    refused("runs/a@1", "key.pub", Class::Auth, "revoked");
    sandbox.run(["checkpoint", "restore", "runs/a@1", "D"]).ends(Class::Auth).says("revoked");
    sandbox.run(["checkpoint", "stage", "runs/a@1", "--device", "host"]).ends(Class::Auth).says("revoked");
    sandbox.write("C/state/rng", rnd(8, 100));
    save(&sandbox, "C", "3").args(["--sign", "key"]).run().ends(Class::Auth);
}

#[test]
fn verify_proves_every_byte() {
    let sandbox = sandbox();
    key(&sandbox, "key");
    save(&sandbox, "C", "1").args(["--sign", "key"]).run().ok();
    let verified = sandbox.json(["checkpoint", "verify", "runs/a@1", "--keys", "key.pub"]).ok();
    assert!(verified.num("bytes") > 1_500_000 && verified.result()["verified"] == true);
    damage_data(&sandbox);
    let error = sandbox.json(["checkpoint", "verify", "runs/a@1", "--keys", "key.pub"]).ends(Class::Corrupt).error();
    assert!(error["corrupt"].as_u64().unwrap() > 0 && error["verified"] == false, "{error}");
    sandbox.run(["checkpoint", "restore", "runs/a@1", "D"]).ends(Class::Corrupt);
}

/// Flips a bit in the middle of the largest pack, the one with the files' bytes.
fn damage_data(sandbox: &Sandbox) {
    let packs = forebay_tests::files_below(sandbox.repo_dir());
    let packs = packs.iter().filter(|path| path.extension().is_some_and(|extension| extension == "pack"));
    let path = packs.max_by_key(|path| path.metadata().map_or(0, |meta| meta.len())).expect("there is a pack");
    let mut bytes = std::fs::read(path).expect("a pack can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).expect("a pack can be written");
}

#[test]
fn a_killed_save_leaves_the_latest_and_goes_on() {
    const LEN: usize = 48 << 20;
    let server = S3Server::start();
    let sandbox = Sandbox::with_s3(&server, "repo");
    key(&sandbox, "key");
    sandbox.write("C/model", rnd(1, 100_000));
    let first = save(&sandbox, "C", "1").args(["--sign", "key"]).run().ok().str("snapshot");
    sandbox.write("C/model", rnd(2, LEN));
    sandbox.write("C/optimizer", rnd(3, 5 * LEN));
    server.set_upload_rate(Some(128 << 20));
    server.clear_log();
    let mut running = save(&sandbox, "C", "2").args(["--sign", "key"]).start();
    let durable =
        || server.objects().into_iter().filter(|(key, len)| key.ends_with(".pack") && *len > 32 << 20).count();
    // When the third is there, the first two have long been answered and remembered.
    wait_until("three packs are durable", Duration::from_secs(40), || durable() >= 3);
    running.signal(Signal::KILL);
    running.wait();
    let latest = sandbox.json(["checkpoint", "restore", "runs/a@latest", "D"]).ok();
    assert_eq!((latest.num("step"), latest.str("snapshot")), (1, first));

    server.set_upload_rate(None);
    server.clear_log();
    let saved = save(&sandbox, "C", "2").args(["--sign", "key"]).run().ok();
    let sent = server.received_bytes("pack/");
    assert!(sent < 6 * LEN as u64 - (100 << 20), "what was sent before the kill is not sent again: {sent}");
    assert_eq!((saved.num("step"), saved.num("files")), (2, 2));
    let args = ["checkpoint", "restore", "runs/a@latest", "D", "--require-signature", "key.pub"];
    assert_eq!(sandbox.json(args).ok().num("step"), 2);
    assert_tree_equal(&tree_of(sandbox.path("D")), &tree_of(sandbox.path("C")));
}

#[test]
fn keys_are_made_shown_and_trusted() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    let made = sandbox.json(["key", "generate", "key"]).ok();
    let id = made.str("id");
    assert_eq!((id.len(), made.str("public")), (64, format!("forebay-public-v0:{id}")));
    assert_eq!(std::fs::metadata(sandbox.path("key")).unwrap().permissions().mode() & 0o7777, 0o600);
    let secret = std::fs::read_to_string(sandbox.path("key")).unwrap();
    sandbox.run(["key", "generate", "key"]).ends(Class::Conflict).says("key");
    assert_eq!(std::fs::read_to_string(sandbox.path("key")).unwrap(), secret, "a key is never written over");
    for file in ["key", "key.pub"] {
        let shown = sandbox.run(["key", "show", file]).ok();
        assert_eq!(forebay_tests::text(&shown.stdout), format!("forebay-public-v0:{id}\n"), "never the secret");
        assert_eq!(sandbox.json(["key", "show", file]).ok().str("id"), id);
    }
    std::fs::set_permissions(sandbox.path("key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    sandbox.run(["key", "show", "key"]).ends(Class::Auth).says("chmod 600");
    sandbox.write("noise", rnd(1, 100));
    sandbox.run(["key", "show", "noise"]).ends(Class::Usage);
    sandbox.run(["key", "show", "absent"]).ends(Class::NotFound);

    assert_eq!(sandbox.json(["key", "trust", "ls"]).ok().num("keys"), 0);
    sandbox.run(["key", "trust", "add", "key.pub", "--comment", "Ann"]).ok();
    let listed = sandbox.json(["key", "trust", "ls"]).ok().entries();
    assert_eq!((&listed[0]["id"], &listed[0]["state"]), (&id.as_str().into(), &"trusted".into()));
    assert_eq!((listed.len(), &listed[0]["comment"]), (1, &"Ann".into()));
    sandbox.run(["key", "trust", "revoke", &id]).ok();
    sandbox.run(["key", "trust", "add", &id]).ends(Class::Auth).says("revoked");
    assert_eq!(sandbox.json(["key", "trust", "ls"]).ok().entries()[0]["state"], "revoked");
    let trust = sandbox.path("home/config/forebay/trust");
    assert_eq!(std::fs::metadata(&trust).unwrap().permissions().mode() & 0o7777, 0o600);
    sandbox.run(["key", "trust", "add", &"00".repeat(32)]).ends(Class::Usage);
    std::fs::write(trust, "trusted nonsense\n").unwrap();
    sandbox.run(["key", "trust", "ls"]).ends(Class::Usage).says("line 1");
}

#[test]
fn other_tools_check_the_signature() {
    let python =
        std::env::var_os("HOME").map(|home| std::path::Path::new(&home).join(".cache/forebay-python/bin/python"));
    let Some(python) = python.filter(|python| python.exists()) else {
        return skipped("there is no ~/.cache/forebay-python");
    };
    let sandbox = sandbox();
    key(&sandbox, "key");
    save(&sandbox, "C", "1").args(["--sign", "key"]).run().ok();
    let shown = sandbox.json(["checkpoint", "show", "runs/a@1"]).ok().result();
    let envelope = sandbox.write("envelope.json", shown["envelope"].to_string());
    let public = shown["signed_by"].as_str().unwrap();
    let run = std::process::Command::new(python).args(["-c", PEER]).arg(envelope).arg(public).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    if said.contains("No module named") {
        return skipped(said.lines().last().unwrap_or_default());
    }
    assert!(run.status.success(), "{said}");
    assert_eq!(said.trim(), shown["snapshot"].as_str().unwrap());
}

/// Checks an envelope with PyPI's securesystemslib and prints what was signed.
const PEER: &str = r#"
import json, sys
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
envelope = Envelope.from_dict(json.load(open(sys.argv[1])))
key = SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(bytes.fromhex(sys.argv[2])), keyid=sys.argv[2])
envelope.verify([key], 1)
print(json.loads(envelope.payload)["subject"][0]["digest"]["blake3"])
"#;
