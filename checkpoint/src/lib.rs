//! What Forebay knows about checkpoints: where tensors lie in their files, who signed them, how they get into the memory
//! of a device.
//!
//! A checkpoint is a version of a ref, the run, with a training step. It is kept and restored byte for byte: nothing here
//! rewrites a file, and a file that is odd is not an error of the user: it is kept as plain bytes.
//!
//! Types to know:
//!
//! * [`Checkpoint`] is a checkpoint as the log has it; [`signature::check`] says who vouches for it, as [`Keys`] ask.
//! * [`Header`] is the header of a safetensors file, read within [`HeaderLimits`]; [`HeaderError`] says why there is none.
//! * [`stage::stage`] brings a checkpoint onto a [`stage::DeviceSink`]: a CUDA device or host memory.
//!
//! Not here: storing and restoring (`forebay-cas`), the values of tensors (no arithmetic on floats, every
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

mod found;
pub mod keys;
pub mod safetensors;
pub mod signature;
pub mod stage;
pub mod statement;
pub mod tensors;

pub use found::Checkpoint;
pub use keys::Keys;
pub use safetensors::{Dtype, Header, HeaderError, HeaderLimits, Tensor, header_len};
pub use statement::Statement;
