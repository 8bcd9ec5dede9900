//! What Forebay knows about checkpoint files: where the tensors lie in them.
//!
//! A checkpoint is kept and restored byte for byte. Knowing its tensors only decides where chunks start and
//! which chunk of an earlier step a new one is compared with, so nothing here rewrites a file, and a file
//! that is odd is not an error of the user: it is kept as plain bytes.
//!
//! Types to know:
//!
//! * [`Header`] is the header of a safetensors file, read within [`HeaderLimits`].
//! * [`Tensor`] is one tensor: its name, type, shape and place in the file.
//! * [`HeaderError`] says why a file is not read as safetensors; its caller falls back to plain bytes.
//!
//! Not here: storage and chunk ids (`forebay-cas`), the values of tensors (no arithmetic on floats, every
//! NaN survives), and unpickling, which would run what a file says.
//!
//! ```
//! use forebay_checkpoint::{Header, HeaderLimits, header_len};
//!
//! let json = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
//! let mut file = (json.len() as u64).to_le_bytes().to_vec();
//! file.extend_from_slice(json);
//! file.extend_from_slice(&[0; 8]);
//!
//! let limits = HeaderLimits::default();
//! let file_len = file.len() as u64;
//! let (prefix, rest) = file.split_first_chunk().expect("8 bytes and more");
//! let json_len = header_len(*prefix, file_len, &limits)?;
//! let header = Header::parse(&rest[..json_len], file_len, &limits)?;
//! assert_eq!((header.tensors[0].name.as_str(), header.tensors[0].len), ("w", 8));
//! # Ok::<(), forebay_checkpoint::HeaderError>(())
//! ```

pub mod safetensors;

pub use safetensors::{Dtype, Header, HeaderError, HeaderLimits, Tensor, header_len};
