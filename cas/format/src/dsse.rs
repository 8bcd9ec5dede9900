//! Signed payloads: the DSSE envelope (version 1.0.0 of its specification) as JSON, and what is signed of it.
//!
//! Nothing here checks a signature. Who does, checks it over [`pre_authentication_encoding`] of the payload that
//! [`Envelope::decode`] returned, and uses those bytes and no others.
//!
//! Source: <https://github.com/secure-systems-lab/dsse>, `envelope.md` and `protocol.md`.

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde::{Deserialize, Serialize};

use crate::{DecodeError, Limits};

const WHAT: &str = "signature envelope";
/// Signatures in one envelope. Ours have one; a few more leave room for keys that are exchanged.
const SIGNATURES_MAX: usize = 16;
/// Bytes of one signature. Ed25519 has 64; the limit is for those of other kinds, which are skipped.
const SIGNATURE_BYTES_MAX: usize = 1024;
/// Characters of a key id. Ours have 64.
const KEY_ID_MAX: usize = 256;

/// A payload and who signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Media type of the payload.
    pub payload_type: String,
    /// The bytes that are signed, with their type.
    pub payload: Vec<u8>,
    /// At least one signature.
    pub signatures: Vec<EnvelopeSignature>,
}

/// One signature of an [`Envelope`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvelopeSignature {
    /// Says which key it is by: a hint that proves nothing.
    pub key_id: Option<String>,
    /// The signature itself.
    pub signature: Vec<u8>,
}

/// What is signed of a payload: `DSSEv1 LEN(type) type LEN(payload) payload`, lengths in bytes as decimal digits.
#[must_use]
pub fn pre_authentication_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

impl Envelope {
    /// The envelope as JSON: one line, members in alphabetical order, base64 of the standard alphabet with padding.
    ///
    /// # Panics
    /// Never: every value here has a JSON form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let signature = |signature: &EnvelopeSignature| JsonSignature {
            keyid: signature.key_id.clone(),
            sig: STANDARD.encode(&signature.signature),
        };
        let json = JsonEnvelope {
            payload: STANDARD.encode(&self.payload),
            payload_type: self.payload_type.clone(),
            signatures: self.signatures.iter().map(signature).collect(),
        };
        serde_json::to_vec(&json).expect("strings and lists have a JSON form")
    }

    /// Reads an envelope. Unknown members are passed over and both alphabets of base64 are read, as the specification
    /// asks; so an envelope has many forms, and only its payload and signatures mean something.
    ///
    /// # Errors
    /// [`DecodeError`] for what is no envelope, has no signature, or is beyond the limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = WHAT;
        let (len, limit) = (bytes.len() as u64, Limits::DEFAULT.envelope_bytes);
        if len > limit {
            return Err(DecodeError::TooLong { what, len, limit });
        }
        let json: JsonEnvelope = serde_json::from_slice(bytes).map_err(|error| DecodeError::Json {
            what,
            line: error.line(),
            column: error.column(),
        })?;
        let count = json.signatures.len();
        if count == 0 || count > SIGNATURES_MAX {
            return Err(DecodeError::Field { what, field: "number of signatures", value: count as u64 });
        }
        let signatures = json.signatures.into_iter().map(JsonSignature::decode).collect::<Result<_, _>>()?;
        Ok(Self { payload_type: json.payload_type, payload: decode_base64("payload", &json.payload)?, signatures })
    }
}

#[derive(Serialize, Deserialize)]
struct JsonEnvelope {
    payload: String,
    #[serde(rename = "payloadType")]
    payload_type: String,
    signatures: Vec<JsonSignature>,
}

#[derive(Serialize, Deserialize)]
struct JsonSignature {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keyid: Option<String>,
    sig: String,
}

impl JsonSignature {
    fn decode(self) -> Result<EnvelopeSignature, DecodeError> {
        let field = |field, len: usize| DecodeError::Field { what: WHAT, field, value: len as u64 };
        // An empty id is as good as none.
        let key_id = self.keyid.filter(|id| !id.is_empty());
        if let Some(id) = key_id.as_ref().filter(|id| id.len() > KEY_ID_MAX) {
            return Err(field("length of a key id", id.len()));
        }
        let signature = decode_base64("signature", &self.sig)?;
        if signature.is_empty() || signature.len() > SIGNATURE_BYTES_MAX {
            return Err(field("length of a signature", signature.len()));
        }
        Ok(EnvelopeSignature { key_id, signature })
    }
}

fn decode_base64(field: &'static str, text: &str) -> Result<Vec<u8>, DecodeError> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['-', '_']) { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    let decoded = GeneralPurpose::new(alphabet, config).decode(text);
    decoded.map_err(|_not_base64| DecodeError::Field { what: WHAT, field, value: text.len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> Envelope {
        let signature = EnvelopeSignature { key_id: Some("66301bbf".to_owned()), signature: vec![0xfb; 64] };
        Envelope {
            payload_type: "http://example.com/HelloWorld".to_owned(),
            payload: b"hello world".to_vec(),
            signatures: vec![signature],
        }
    }

    #[test]
    fn equals_the_vectors_of_the_specification() {
        // protocol.md, "Test Vectors".
        let encoded = pre_authentication_encoding("http://example.com/HelloWorld", b"hello world");
        assert_eq!(encoded, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
        let envelope = br#"{"payload": "aGVsbG8gd29ybGQ=",
            "payloadType": "http://example.com/HelloWorld",
            "signatures": [{"keyid": "66301bbf",
                "sig": "A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA=="}]}"#;
        let decoded = Envelope::decode(envelope).unwrap();
        assert_eq!(
            (decoded.payload_type.as_str(), &*decoded.payload),
            ("http://example.com/HelloWorld", &b"hello world"[..])
        );
        assert_eq!((decoded.signatures.len(), decoded.signatures[0].signature.len()), (1, 64));
    }

    #[test]
    fn lengths_are_counted_in_bytes() {
        assert_eq!(pre_authentication_encoding("", b""), b"DSSEv1 0  0 ");
        assert_eq!(pre_authentication_encoding("\u{e9}", b"\xff "), b"DSSEv1 2 \xc3\xa9 2 \xff ");
    }

    #[test]
    fn envelopes_round_trip() {
        let bytes = envelope().encode();
        assert_eq!(Envelope::decode(&bytes), Ok(envelope()));
        assert!(bytes.starts_with(br#"{"payload":"aGVsbG8gd29ybGQ=","payloadType":"http"#));
        let without = EnvelopeSignature { key_id: None, signature: vec![1] };
        let more = Envelope { signatures: vec![envelope().signatures.remove(0), without], ..envelope() };
        assert_eq!(Envelope::decode(&more.encode()), Ok(more));
    }

    #[test]
    fn other_forms_of_the_same_are_read() {
        let text = String::from_utf8(envelope().encode()).unwrap();
        // Every group of this signature has characters that differ between the alphabets.
        let standard = STANDARD.encode([0xfb; 64]);
        let url_safe = text.replace(&standard, &standard.replace('+', "-").replace('/', "_")).replace('=', "");
        assert!(text.contains(&standard) && standard.contains('+') && standard.contains('/'));
        let more = text.replacen('{', r#"{"more": {"x": [1, null]},"#, 1);
        let no_key = text.replace(r#""keyid":"66301bbf","#, "");
        let empty_key = text.replace("66301bbf", "");
        assert_eq!(Envelope::decode(url_safe.as_bytes()), Ok(envelope()));
        assert_eq!(Envelope::decode(more.as_bytes()), Ok(envelope()));
        for text in [no_key, empty_key] {
            assert_eq!(Envelope::decode(text.as_bytes()).unwrap().signatures[0].key_id, None);
        }
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        let refused = |bytes: &[u8]| assert!(Envelope::decode(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        let good = String::from_utf8(envelope().encode()).unwrap();
        for (from, to) in [
            ("aGVsbG8gd29ybGQ=", "aGVsbG8gd29ybG*="),
            ("aGVsbG8gd29ybGQ=", "aGVsbG8gd29ybGR="),
            ("payloadType", "payload_type"),
            ("signatures", "signature"),
            ("sig\":\"", "sig\":\"====="),
            (r#""sig":"#, r#""no":"#),
            ("{\"payload\"", "[\"payload\""),
        ] {
            assert!(good.contains(from));
            refused(good.replace(from, to).as_bytes());
        }
        refused(b"");
        refused(&good.as_bytes()[..good.len() - 1]);
        refused(format!("{good}x").as_bytes());
        let with = |signatures| Envelope { signatures, ..envelope() }.encode();
        refused(&with(Vec::new()));
        refused(&with(vec![envelope().signatures.remove(0); SIGNATURES_MAX + 1]));
        refused(&with(vec![EnvelopeSignature { key_id: None, signature: Vec::new() }]));
        refused(&with(vec![EnvelopeSignature { key_id: None, signature: vec![0; SIGNATURE_BYTES_MAX + 1] }]));
        refused(&with(vec![EnvelopeSignature { key_id: Some("x".repeat(KEY_ID_MAX + 1)), signature: vec![0; 64] }]));
        refused(&Envelope { payload: vec![0; 64 << 10], ..envelope() }.encode());
    }
}
