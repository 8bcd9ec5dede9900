//! Signing checkpoints, and checking who signed one.

use forebay_cas::push::{Signer, Unsigned};
use forebay_cas::{ChunkReader, Classify, ErrorClass, ReadError};
use forebay_format::{
    DecodeError, Envelope, EnvelopeSignature, FrameKind, RefName, Totals, pre_authentication_encoding,
};
use forebay_transfer::{Identity, NodeId};

use crate::found::Checkpoint;
use crate::keys::Keys;
use crate::statement::{PAYLOAD_TYPE, Statement, StatementError};

/// Signs with one key.
#[derive(Debug, Clone)]
pub struct CheckpointSigner(pub Identity);

impl Signer for CheckpointSigner {
    fn sign(&self, version: &Unsigned<'_>) -> Vec<u8> {
        let statement = Statement {
            repository: version.repository,
            run: version.name.clone(),
            step: version.step,
            sequence: version.sequence,
            previous: version.previous,
            snapshot: version.snapshot,
            files: version.totals.files,
            bytes: version.totals.bytes,
        };
        sign(&self.0, &statement)
    }
}

/// The envelope of a statement, signed by one key.
#[must_use]
pub fn sign(identity: &Identity, statement: &Statement) -> Vec<u8> {
    let payload = statement.encode();
    let signature = identity.sign(&pre_authentication_encoding(PAYLOAD_TYPE, &payload)).to_vec();
    let key_id = Some(identity.node_id().to_string());
    let signatures = vec![EnvelopeSignature { key_id, signature }];
    Envelope { payload_type: PAYLOAD_TYPE.to_owned(), payload, signatures }.encode()
}

/// A checkpoint whose signature is not accepted.
#[derive(Debug, thiserror::Error)]
#[error("{run}@{step} {fault}")]
pub struct SignatureError {
    /// The run.
    pub run: RefName,
    /// The step.
    pub step: u64,
    /// What is wrong.
    #[source]
    pub fault: Box<SignatureFault>,
}

/// What is wrong with a signature.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureFault {
    /// There is none.
    #[error("is not signed")]
    Unsigned,
    /// Nobody who is accepted has signed.
    #[error("is not signed by a key that is trusted here, but by {}", signers.join(", "))]
    Untrusted {
        /// Who says to have signed.
        signers: Vec<String>,
    },
    /// A key has signed that was revoked.
    #[error("is signed by {key}, which is revoked")]
    Revoked {
        /// The key.
        key: NodeId,
    },
    /// The signature is not one of the key over this statement.
    #[error("has a wrong signature: it is not by {key}")]
    Wrong {
        /// The key it says to be by.
        key: NodeId,
    },
    /// The key has signed something else.
    #[error("is not what {key} signed: {field} is {found}, signed is {signed}")]
    Other {
        /// The key.
        key: NodeId,
        /// What differs.
        field: &'static str,
        /// What the log or the version says.
        found: String,
        /// What the statement says.
        signed: String,
    },
    /// A signature over nothing.
    #[error("is signed by {key} as a checkpoint with no files, which proves nothing")]
    NoFiles {
        /// The key.
        key: NodeId,
    },
    /// The envelope cannot be read.
    #[error("has a damaged signature")]
    Envelope(#[source] DecodeError),
    /// The envelope holds something else than a statement.
    #[error("has a signature over a payload of type {found:?}, not of {PAYLOAD_TYPE}")]
    PayloadType {
        /// The type, cut short.
        found: String,
    },
    /// The statement cannot be read.
    #[error("has a damaged signature")]
    Statement(#[source] StatementError),
}

impl Classify for SignatureError {
    fn class(&self) -> ErrorClass {
        match *self.fault {
            SignatureFault::Envelope(_) | SignatureFault::PayloadType { .. } | SignatureFault::Statement(_) => {
                ErrorClass::Corrupt
            }
            _ => ErrorClass::Auth,
        }
    }
}

/// A signature could not be checked, or is not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// It is not accepted.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The envelope cannot be had.
    #[error("the signature of {run}@{step} cannot be read")]
    Read {
        /// The run.
        run: RefName,
        /// The step.
        step: u64,
        /// Why.
        source: Box<ReadError>,
    },
}

impl Classify for CheckError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Signature(source) => source.class(),
            Self::Read { source, .. } => source.class(),
        }
    }

    fn damaged_index(&self) -> Option<&std::path::Path> {
        match self {
            Self::Signature(_) => None,
            Self::Read { source, .. } => source.damaged_index(),
        }
    }
}

/// Checks who signed a checkpoint that holds `totals`. `Ok(None)` if nobody did and any key would do.
///
/// # Errors
/// [`CheckError`] if it is not signed as `keys` ask for: the checkpoint must not be used.
pub fn check(
    reader: &ChunkReader,
    checkpoint: &Checkpoint,
    totals: Totals,
    keys: &Keys,
) -> Result<Option<NodeId>, CheckError> {
    let (run, step) = (&checkpoint.run, checkpoint.step);
    let refused = |fault| SignatureError { run: run.clone(), step, fault: Box::new(fault) };
    let Some(id) = checkpoint.version.envelope else {
        return if keys.accepted.is_none() { Ok(None) } else { Err(refused(SignatureFault::Unsigned).into()) };
    };
    let envelope = reader.chunk(id, FrameKind::Envelope).map_err(|source| CheckError::Read {
        run: run.clone(),
        step,
        source: Box::new(source),
    })?;
    let signer = check_envelope(&envelope, checkpoint, totals, keys).map_err(refused)?;
    Ok(Some(signer))
}

/// Checks an envelope: first who signed, then what.
fn check_envelope(
    bytes: &[u8],
    checkpoint: &Checkpoint,
    totals: Totals,
    keys: &Keys,
) -> Result<NodeId, SignatureFault> {
    let envelope = Envelope::decode(bytes).map_err(SignatureFault::Envelope)?;
    if envelope.payload_type != PAYLOAD_TYPE {
        let found = envelope.payload_type.chars().take(80).collect();
        return Err(SignatureFault::PayloadType { found });
    }
    let key = signer(&envelope, keys)?;
    let signed = Statement::decode(&envelope.payload).map_err(SignatureFault::Statement)?;
    if signed.files == 0 {
        return Err(SignatureFault::NoFiles { key });
    }
    match difference(&signed, checkpoint, totals) {
        None => Ok(key),
        Some((field, found, signed)) => Err(SignatureFault::Other { key, field, found, signed }),
    }
}

/// The accepted key whose signature is right. One is enough, whatever else was signed by others.
fn signer(envelope: &Envelope, keys: &Keys) -> Result<NodeId, SignatureFault> {
    let message = pre_authentication_encoding(&envelope.payload_type, &envelope.payload);
    let mut fault = None;
    let mut others = Vec::new();
    for signature in &envelope.signatures {
        let named: Option<NodeId> = signature.key_id.as_deref().and_then(|id| id.parse().ok());
        let Some(key) = named else {
            others.push(signature.key_id.clone().unwrap_or_else(|| "a key without a name".to_owned()));
            continue;
        };
        if keys.revoked.contains(&key) {
            fault.get_or_insert(SignatureFault::Revoked { key });
        } else if keys.accepted.as_ref().is_some_and(|accepted| !accepted.contains(&key)) {
            others.push(key.to_string());
        } else {
            let bytes: Result<[u8; 64], _> = signature.signature.as_slice().try_into();
            if bytes.is_ok_and(|bytes| key.verify(&message, &bytes).is_ok()) {
                return Ok(key);
            }
            fault = Some(SignatureFault::Wrong { key });
        }
    }
    Err(fault.unwrap_or(SignatureFault::Untrusted { signers: others }))
}

/// The first thing that the statement says otherwise than the log: its name, what was found, what was signed.
fn difference(signed: &Statement, at: &Checkpoint, totals: Totals) -> Option<(&'static str, String, String)> {
    let id = |id: Option<forebay_format::SnapshotId>| id.map_or_else(|| "none".to_owned(), |id| id.to_hex());
    let version = &at.version;
    let pairs = [
        ("the repository", at.repository.to_hex(), signed.repository.to_hex()),
        ("the run", at.run.to_string(), signed.run.to_string()),
        ("the step", at.step.to_string(), signed.step.to_string()),
        ("the sequence", version.sequence.to_string(), signed.sequence.to_string()),
        ("the snapshot", version.snapshot.to_hex(), signed.snapshot.to_hex()),
        ("the version before", at.previous.map_or_else(|| id(signed.previous), id), id(signed.previous)),
        ("the number of files", totals.files.to_string(), signed.files.to_string()),
        ("the number of bytes", totals.bytes.to_string(), signed.bytes.to_string()),
    ];
    pairs.into_iter().find(|(_, found, signed)| found != signed)
}

#[cfg(test)]
mod tests;
