//! What a signature says of a checkpoint: an in-toto statement (version 1 of its attestation framework).
//!
//! The statement binds the version to its place: repository, run, step, sequence and the version before. So a checkpoint
//! cannot be served as another run's, as another step's, or again after a later one.

use forebay_format::{RefName, RepositoryId, SnapshotId};
use serde::{Deserialize, Serialize};

/// Media type of the payload in its envelope.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE: &str = "urn:forebay:checkpoint:v0";

/// What is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The repository.
    pub repository: RepositoryId,
    /// The run: a ref.
    pub run: RefName,
    /// The training step.
    pub step: u64,
    /// Number of the ref.
    pub sequence: u64,
    /// The version before it in the ref.
    pub previous: Option<SnapshotId>,
    /// The version.
    pub snapshot: SnapshotId,
    /// Files in it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Why a payload is no statement about a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatementError {
    /// Not JSON, or not of the shape of a statement.
    #[error("the signed statement is not the JSON it should be")]
    Json(#[source] serde_json::Error),
    /// It is a statement about something else.
    #[error("the signed statement has a bad {field}")]
    Field {
        /// Name of the member.
        field: &'static str,
    },
}

impl Statement {
    /// The statement as JSON.
    ///
    /// # Panics
    /// Never: strings and numbers have a JSON form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let run = self.run.to_string();
        let json = Json {
            kind: STATEMENT_TYPE.to_owned(),
            subject: vec![Subject { name: run.clone(), digest: Digests { blake3: self.snapshot.to_hex() } }],
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate: Predicate {
                repository: self.repository.to_hex(),
                run,
                step: self.step,
                sequence: self.sequence,
                previous: self.previous.map(|previous| previous.to_hex()),
                files: self.files,
                bytes: self.bytes,
            },
        };
        serde_json::to_vec(&json).expect("strings and numbers have a JSON form")
    }

    /// Reads a statement whose signature has been checked.
    ///
    /// # Errors
    /// [`StatementError`], also for members that are not known: what they would say is not checked.
    pub fn decode(payload: &[u8]) -> Result<Self, StatementError> {
        let json: Json = serde_json::from_slice(payload).map_err(StatementError::Json)?;
        let field = |field| StatementError::Field { field };
        let [subject] = json.subject.as_slice() else { return Err(field("subject")) };
        let predicate = json.predicate;
        if json.kind != STATEMENT_TYPE {
            return Err(field("_type"));
        }
        if json.predicate_type != PREDICATE_TYPE {
            return Err(field("predicateType"));
        }
        if subject.name != predicate.run {
            return Err(field("subject"));
        }
        let previous = predicate.previous.map(|previous| previous.parse()).transpose();
        Ok(Self {
            repository: predicate.repository.parse().map_err(|_not_hex| field("repository"))?,
            run: predicate.run.parse().map_err(|_not_a_name| field("run"))?,
            step: predicate.step,
            sequence: predicate.sequence,
            previous: previous.map_err(|_not_hex| field("previous"))?,
            snapshot: subject.digest.blake3.parse().map_err(|_not_hex| field("digest"))?,
            files: predicate.files,
            bytes: predicate.bytes,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: Predicate,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    name: String,
    digest: Digests,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Digests {
    blake3: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Predicate {
    repository: String,
    run: String,
    step: u64,
    sequence: u64,
    previous: Option<String>,
    files: u64,
    bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn statement() -> Statement {
        Statement {
            repository: RepositoryId::from_bytes([7; 16]),
            run: "runs/seven".parse().unwrap(),
            step: 1_200,
            sequence: 3,
            previous: Some(SnapshotId::of(b"before")),
            snapshot: SnapshotId::of(b"now"),
            files: 2,
            bytes: 99,
        }
    }

    #[test]
    fn statements_round_trip() {
        let first = Statement { previous: None, step: 0, bytes: u64::MAX, ..statement() };
        for statement in [statement(), first] {
            assert_eq!(Statement::decode(&statement.encode()).unwrap(), statement);
        }
    }

    #[test]
    fn a_statement_is_in_toto() {
        let json: serde_json::Value = serde_json::from_slice(&statement().encode()).unwrap();
        assert_eq!(json["_type"], "https://in-toto.io/Statement/v1");
        assert_eq!(json["subject"][0]["name"], "runs/seven");
        assert_eq!(json["subject"][0]["digest"]["blake3"], SnapshotId::of(b"now").to_hex());
        assert_eq!(json["predicate"]["sequence"], 3);
    }

    #[test]
    fn what_is_no_statement_about_a_checkpoint_is_refused() {
        let good = String::from_utf8(statement().encode()).unwrap();
        let id = SnapshotId::of(b"now").to_hex();
        for (from, to) in [
            ("Statement/v1", "Statement/v2"),
            (PREDICATE_TYPE, "urn:forebay:checkpoint:v1"),
            (r#""name":"runs/seven""#, r#""name":"runs/eight""#),
            (r#""run":"runs/seven""#, r#""run":"runs/eight""#),
            ("runs/seven", "runs//seven"),
            (id.as_str(), &id[..62]),
            (r#""step":1200"#, r#""step":-1"#),
            (r#""step":1200"#, r#""step":1.5"#),
            (r#""step":1200,"#, ""),
            (r#""files":2"#, r#""files":2,"more":1"#),
            (r#""blake3""#, r#""sha256""#),
            (r#""subject":["#, r#""subject":[{"name":"x","digest":{"blake3":""}},"#),
        ] {
            assert!(good.contains(from), "{from}");
            assert!(Statement::decode(good.replace(from, to).as_bytes()).is_err(), "{from} as {to}");
        }
        assert!(Statement::decode(good.replace(r#""files":2"#, r#""files":2,"files":3"#).as_bytes()).is_err(), "twice");
        assert!(Statement::decode(b"").is_err() && Statement::decode(&[good.as_bytes(), b"x"].concat()).is_err());
    }
}
