//! B30: what the signature covers.

use forebay_format::{Directory, Entry, SnapshotId};
use forebay_tests::{Class, Forge, Placed, Sandbox, Serving, SignedStatement, client, inline_file, snapshot_of};

const RUN: &str = "runs/seven";
const STEP: u64 = 1_200;
/// The key that is trusted, and one that is not.
const SECRET: [u8; 32] = [1; 32];
const OTHER_SECRET: [u8; 32] = [2; 32];

fn files() -> Vec<Entry> {
    vec![inline_file(b"config.json", b"{}"), inline_file(b"model", b"weights"), inline_file(b"train.sh", b"run")]
}

fn public(secret: [u8; 32]) -> String {
    hex::encode(ed25519_dalek::SigningKey::from_bytes(&secret).verifying_key().as_bytes())
}

/// What is served, and what is signed.
struct Case {
    served: Vec<Entry>,
    signed: Vec<Entry>,
    signed_run: &'static str,
    secret: [u8; 32],
    cut: usize,
    /// What the refusal names beside the checkpoint.
    says: &'static str,
}

impl Case {
    fn honest() -> Self {
        Self { served: files(), signed: files(), signed_run: RUN, secret: SECRET, cut: 0, says: "" }
    }

    /// A machine that knows the key, and this in the repository.
    fn forge(&self) -> Sandbox {
        let sandbox = Sandbox::new();
        let mut forge = Forge::new(30);
        let signed: Directory = forge.folder(self.signed.clone());
        let root = forge.folder(self.served.clone());
        let statement = SignedStatement {
            repository: forge.repository(),
            run: self.signed_run.to_owned(),
            step: STEP,
            snapshot: SnapshotId::of(&snapshot_of(signed).encode()),
            totals: signed.totals,
        };
        let envelope = statement.envelope(&self.secret, self.cut);
        forge.write_as(&sandbox.repo_dir(), root, Placed { name: RUN, step: Some(STEP), envelope: Some(&envelope) });
        sandbox.write("keys", format!("# the release key\n{}\n", public(SECRET)));
        sandbox.mkdir("D");
        sandbox
    }
}

fn commands() -> [Vec<String>; 3] {
    let name = format!("{RUN}@{STEP}");
    [
        vec!["restore".to_owned(), name.clone(), "D".to_owned(), "--require-signature".to_owned(), "keys".to_owned()],
        vec!["verify".to_owned(), name.clone(), "--keys".to_owned(), "keys".to_owned()],
        "stage --device host --require-signature keys".split(' ').map(str::to_owned).chain([name]).collect(),
    ]
}

/// Where the bytes come from makes no difference: the repository itself, or nodes that have it.
fn is_refused(case: &Case) {
    let sandbox = case.forge();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &[]);
    for args in commands() {
        let args: Vec<&str> = ["checkpoint"].into_iter().chain(args.iter().map(String::as_str)).collect();
        for command in [sandbox.command(&args).json(), client(&sandbox, "job", &edge.addr(), &args)] {
            let refused = command.run().ends_in_one_of(&[Class::Auth, Class::Corrupt]);
            let message = refused.error()["message"].to_string();
            assert!(message.contains(&format!("{RUN}@{STEP}")), "it names the checkpoint: {message}");
            assert!(message.contains(case.says), "it says «{}»: {message}", case.says);
            assert!(!String::from_utf8_lossy(&refused.stdout).contains("\"verified\":true"), "{refused:?}");
            assert_eq!(
                std::fs::read_dir(sandbox.path("D")).expect("D is there").count(),
                0,
                "{args:?}: the destination stays empty"
            );
        }
    }
}

#[test]
fn what_is_signed_and_served_alike_is_restored_through_nodes() {
    let sandbox = Case::honest().forge();
    let gateway = Serving::gateway(&sandbox, "gateway", &[]);
    let edge = Serving::edge(&sandbox, "edge", &gateway, &[]);
    let name = format!("{RUN}@{STEP}");
    let restore = |signed: &str, dest: &str| {
        client(&sandbox, "job", &edge.addr(), &["checkpoint", "restore", &name, dest, "--require-signature", signed])
    };
    let stranger = sandbox.write("stranger", format!("{}\n", public(OTHER_SECRET)));
    restore(stranger.to_str().expect("a path in UTF-8"), "E").run().ends(Class::Auth).says(&name);
    assert!(!sandbox.path("E").exists(), "nothing is made for a signer that is not trusted");
    let outcome = restore("keys", "D").run().ok();
    assert_eq!((&outcome.result()["verified"], outcome.str("signed_by")), (&true.into(), public(SECRET)));
    assert_eq!(std::fs::read_to_string(sandbox.path("D/model")).expect("it is restored"), "weights");
}

#[test]
fn what_is_signed_and_served_alike_is_restored() {
    // Without this, every refusal below would prove nothing.
    let sandbox = Case::honest().forge();
    for args in commands() {
        let outcome = sandbox.command(["checkpoint"]).args(&args).json().run().ok();
        assert_eq!((&outcome.result()["verified"], outcome.str("signed_by")), (&true.into(), public(SECRET)));
    }
    for (name, bytes) in [("config.json", "{}"), ("model", "weights"), ("train.sh", "run")] {
        assert_eq!(std::fs::read_to_string(sandbox.path("D").join(name)).unwrap(), bytes);
    }
}

#[test]
fn a_file_that_was_added_is_refused() {
    let mut served = files();
    served.push(inline_file(b"zz-added", b"evil"));
    is_refused(&Case { served, says: "the snapshot", ..Case::honest() });
}

#[test]
fn two_names_that_were_swapped_are_refused() {
    let served = vec![inline_file(b"config.json", b"weights"), inline_file(b"model", b"{}"), files().remove(2)];
    is_refused(&Case { served, says: "the snapshot", ..Case::honest() });
}

#[test]
fn an_exec_bit_that_was_added_is_refused() {
    let mut served = files();
    served[2].mode |= 0o111;
    is_refused(&Case { served, says: "the snapshot", ..Case::honest() });
}

#[test]
fn a_signature_over_nothing_is_refused() {
    // Nothing signed and something served, and nothing at both ends.
    is_refused(&Case { signed: Vec::new(), says: "no files", ..Case::honest() });
    is_refused(&Case { served: Vec::new(), signed: Vec::new(), says: "no files", ..Case::honest() });
}

#[test]
fn another_key_is_refused() {
    let key = public(OTHER_SECRET).leak();
    is_refused(&Case { secret: OTHER_SECRET, says: key, ..Case::honest() });
}

#[test]
fn a_signature_cut_by_one_byte_is_refused() {
    is_refused(&Case { cut: 1, says: public(SECRET).leak(), ..Case::honest() });
}

#[test]
fn manifest_and_signature_of_another_ref_are_refused() {
    is_refused(&Case { signed_run: "runs/eight", says: "runs/eight", ..Case::honest() });
}

#[test]
fn a_checkpoint_without_files_is_not_signed() {
    let sandbox = Sandbox::new();
    sandbox.mkdir("empty/folders/only");
    sandbox.run(["key", "generate", "key"]).ok();
    for sign in [&["--sign", "key"][..], &[]] {
        let args = ["checkpoint", "save", "empty", RUN, "--step", "1"];
        sandbox.command(args).args(sign).run().ends(Class::Usage).says("no files");
    }
    sandbox.json(["checkpoint", "ls", RUN]).ends(Class::NotFound);
}
