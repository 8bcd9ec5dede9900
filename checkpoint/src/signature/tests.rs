use std::collections::BTreeSet;

use forebay_format::{RefVersion, RepositoryId, SnapshotId, Timestamp};

use super::*;

const TOTALS: Totals = Totals { files: 3, dirs: 1, links: 0, bytes: 99 };

fn identity(number: u8) -> Identity {
    Identity::from_random([number; 32])
}

fn checkpoint() -> Checkpoint {
    let version = RefVersion {
        sequence: 2,
        snapshot: SnapshotId::of(b"now"),
        parent: None,
        log_sequence: 9,
        time: Timestamp { seconds: 0, nanos: 0 },
        writer: String::new(),
        envelope: None,
        step: Some(1_200),
    };
    Checkpoint {
        repository: RepositoryId::from_bytes([7; 16]),
        run: "runs/seven".parse().unwrap(),
        step: 1_200,
        version,
        previous: Some(Some(SnapshotId::of(b"before"))),
    }
}

fn statement() -> Statement {
    let checkpoint = checkpoint();
    Statement {
        repository: checkpoint.repository,
        run: checkpoint.run,
        step: 1_200,
        sequence: 2,
        previous: Some(SnapshotId::of(b"before")),
        snapshot: checkpoint.version.snapshot,
        files: 3,
        bytes: 99,
    }
}

fn keys(accepted: &[u8], revoked: &[u8]) -> Keys {
    let ids = |numbers: &[u8]| numbers.iter().map(|number| identity(*number).node_id()).collect::<BTreeSet<_>>();
    Keys { accepted: Some(ids(accepted)), revoked: ids(revoked) }
}

fn checked(envelope: &[u8], keys: &Keys) -> Result<NodeId, SignatureFault> {
    check_envelope(envelope, &checkpoint(), TOTALS, keys)
}

fn class(fault: SignatureFault) -> ErrorClass {
    SignatureError { run: checkpoint().run, step: 1_200, fault: Box::new(fault) }.class()
}

#[test]
fn an_accepted_key_is_enough() {
    let envelope = sign(&identity(1), &statement());
    for keys in [keys(&[1], &[]), keys(&[2, 1], &[3]), Keys::default()] {
        assert_eq!(checked(&envelope, &keys).unwrap(), identity(1).node_id());
    }
}

#[test]
fn other_keys_are_not() {
    let envelope = sign(&identity(1), &statement());
    let untrusted = checked(&envelope, &keys(&[2], &[])).unwrap_err();
    let SignatureFault::Untrusted { signers } = &untrusted else { panic!("{untrusted:?}") };
    assert_eq!(signers, &[identity(1).node_id().to_string()]);
    assert_eq!(class(untrusted), ErrorClass::Auth);
    // Revoked counts more than accepted, and without any list too.
    let revoked_only = Keys { accepted: None, revoked: BTreeSet::from([identity(1).node_id()]) };
    for keys in [keys(&[1], &[1]), revoked_only] {
        let fault = checked(&envelope, &keys).unwrap_err();
        assert!(matches!(fault, SignatureFault::Revoked { .. }), "{fault:?}");
        assert_eq!(class(fault), ErrorClass::Auth);
    }
}

#[test]
fn a_key_id_is_a_hint_and_proves_nothing() {
    let mut envelope = Envelope::decode(&sign(&identity(1), &statement())).unwrap();
    envelope.signatures[0].key_id = Some(identity(2).node_id().to_string());
    let fault = checked(&envelope.encode(), &keys(&[2], &[])).unwrap_err();
    assert!(matches!(fault, SignatureFault::Wrong { key } if key == identity(2).node_id()), "{fault:?}");
    envelope.signatures[0].key_id = None;
    assert!(matches!(checked(&envelope.encode(), &Keys::default()), Err(SignatureFault::Untrusted { .. })));
}

#[test]
fn one_right_signature_among_others_is_enough() {
    let mut envelope = Envelope::decode(&sign(&identity(1), &statement())).unwrap();
    let other = Envelope::decode(&sign(&identity(2), &statement())).unwrap().signatures.remove(0);
    let foreign = EnvelopeSignature { key_id: Some("x509".to_owned()), signature: vec![0; 71] };
    envelope.signatures.insert(0, foreign);
    envelope.signatures.insert(0, other);
    assert_eq!(checked(&envelope.encode(), &keys(&[1], &[])).unwrap(), identity(1).node_id());
    assert_eq!(checked(&envelope.encode(), &keys(&[1], &[2])).unwrap(), identity(1).node_id());
}

#[test]
fn every_bit_of_payload_and_signature_counts() {
    let envelope = Envelope::decode(&sign(&identity(1), &statement())).unwrap();
    let refused = |envelope: &Envelope| {
        let fault = checked(&envelope.encode(), &keys(&[1], &[])).unwrap_err();
        assert!(matches!(fault, SignatureFault::Wrong { .. }), "{fault:?}");
    };
    for bit in 0..64 * 8 {
        let mut bad = envelope.clone();
        bad.signatures[0].signature[bit / 8] ^= 1 << (bit % 8);
        refused(&bad);
    }
    for byte in 0..envelope.payload.len() {
        let mut bad = envelope.clone();
        bad.payload[byte] ^= 1;
        refused(&bad);
    }
    for len in [1, 63, 65] {
        let mut bad = envelope.clone();
        bad.signatures[0].signature.resize(len, 0);
        refused(&bad);
    }
}

#[test]
fn a_weak_key_signs_nothing() {
    // With the neutral element as key, this signature fits every message by the lax rules.
    let mut signature = vec![0; 64];
    signature[0] = 1;
    let mut weak = [0; 32];
    weak[0] = 1;
    let weak = NodeId::from_bytes(weak);
    let signatures = vec![EnvelopeSignature { key_id: Some(weak.to_string()), signature }];
    let envelope = Envelope { payload_type: PAYLOAD_TYPE.to_owned(), payload: statement().encode(), signatures };
    let accepted = Keys { accepted: Some(BTreeSet::from([weak])), revoked: BTreeSet::new() };
    assert!(matches!(checked(&envelope.encode(), &accepted), Err(SignatureFault::Wrong { .. })));
}

#[test]
fn a_statement_about_anything_else_is_not_accepted() {
    let good = statement();
    let other = |change: fn(&mut Statement)| {
        let mut statement = statement();
        change(&mut statement);
        statement
    };
    assert_eq!(good, other(|_| {}));
    for (field, bad) in [
        ("the repository", other(|bad| bad.repository = RepositoryId::from_bytes([8; 16]))),
        ("the run", other(|bad| bad.run = "runs/eight".parse().unwrap())),
        ("the step", other(|bad| bad.step += 1)),
        ("the sequence", other(|bad| bad.sequence -= 1)),
        ("the snapshot", other(|bad| bad.snapshot = SnapshotId::of(b"other"))),
        ("the version before", other(|bad| bad.previous = None)),
        ("the number of files", other(|bad| bad.files += 1)),
        ("the number of bytes", other(|bad| bad.bytes += 1)),
    ] {
        let fault = checked(&sign(&identity(1), &bad), &keys(&[1], &[])).unwrap_err();
        assert!(matches!(&fault, SignatureFault::Other { field: found, .. } if *found == field), "{field}: {fault:?}");
        assert_eq!(class(fault), ErrorClass::Auth);
    }
    let nothing = checked(&sign(&identity(1), &other(|bad| bad.files = 0)), &keys(&[1], &[])).unwrap_err();
    assert!(matches!(nothing, SignatureFault::NoFiles { .. }), "{nothing:?}");
}

#[test]
fn a_history_that_was_cut_is_no_contradiction() {
    let cut = Checkpoint { previous: None, ..checkpoint() };
    let envelope = sign(&identity(1), &statement());
    assert!(check_envelope(&envelope, &cut, TOTALS, &keys(&[1], &[])).is_ok());
}

#[test]
fn what_cannot_be_read_is_damage() {
    let envelope = Envelope::decode(&sign(&identity(1), &statement())).unwrap();
    let other_type = Envelope { payload_type: "text/plain".to_owned(), ..envelope.clone() };
    let payload = b"{}".to_vec();
    let signature = identity(1).sign(&pre_authentication_encoding(PAYLOAD_TYPE, &payload)).to_vec();
    let key_id = Some(identity(1).node_id().to_string());
    let no_statement = Envelope { payload, signatures: vec![EnvelopeSignature { key_id, signature }], ..envelope };
    for bytes in [other_type.encode(), no_statement.encode(), b"{".to_vec(), Vec::new()] {
        let fault = checked(&bytes, &keys(&[1], &[])).unwrap_err();
        assert_eq!(class(fault), ErrorClass::Corrupt);
    }
}
