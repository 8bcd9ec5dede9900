//! The secret key of a client or node, and the files it is kept in.
//!
//! `FILE` holds one line, `forebay-secret-v0:` and the 64 hexadecimal digits of the secret, and is for its
//! owner alone (mode 0600); `FILE.pub` holds the public line of [`NodeId::public_line`]. Neither is ever
//! written over.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signer, SigningKey};
use thiserror::Error;

use crate::node_id::NodeId;

/// What stands before the secret in its file.
const SECRET_PREFIX: &str = "forebay-secret-v0:";

/// Most bytes read of a secret file; a right one has 83.
const SECRET_FILE_BYTES_MAX: u64 = 256;

/// What stands before the 32 bytes of an Ed25519 secret in PKCS #8.
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Permissions of others than the owner.
const MODE_OTHERS: u32 = 0o077;

/// An Ed25519 secret key. It is wiped from memory when dropped, and never shown by [`fmt::Debug`].
#[derive(Clone)]
pub struct Identity {
    key: SigningKey,
}

impl Identity {
    /// A new identity out of 32 bytes that nobody can guess: the caller brings the randomness.
    pub fn from_random(secret: [u8; 32]) -> Self {
        Self { key: SigningKey::from_bytes(&secret) }
    }

    /// The public side.
    pub fn node_id(&self) -> NodeId {
        NodeId::from_bytes(self.key.verifying_key().to_bytes())
    }

    /// The secret in the form that TLS libraries take (PKCS #8, RFC 8410 §7).
    pub(crate) fn to_pkcs8(&self) -> Vec<u8> {
        [&PKCS8_PREFIX[..], self.key.as_bytes()].concat()
    }

    /// A key for another use, which says nothing about this one.
    pub(crate) fn derive(&self, context: &str) -> [u8; 32] {
        blake3::derive_key(context, self.key.as_bytes())
    }

    /// Signs `message`: the same message always gets the same signature (RFC 8032).
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }

    /// Writes `path` (mode 0600) and `path` + `.pub`, durably, and returns the latter.
    ///
    /// # Errors
    /// [`IdentityError::Exists`] if either is there, and [`IdentityError::Write`]. No file is left that was
    /// not there before, as far as it can be removed.
    pub fn write_new(&self, path: &Path) -> Result<PathBuf, IdentityError> {
        let public_path = public_path(path);
        let secret = format!("{SECRET_PREFIX}{}\n", hex::encode(self.key.as_bytes()));
        write_file(path, &secret, 0o600)?;
        let public = format!("{}\n", self.node_id().public_line());
        let written = write_file(&public_path, &public, 0o644).and_then(|()| sync_folder(path));
        match written {
            Ok(()) => Ok(public_path),
            Err(error) => {
                if !matches!(error, IdentityError::Exists { .. }) {
                    remove(&public_path);
                }
                remove(path);
                Err(error)
            }
        }
    }

    /// Reads the secret file `path`.
    ///
    /// # Errors
    /// [`IdentityError::Read`]; [`IdentityError::Exposed`] if others than the owner have any permission on it;
    /// [`IdentityError::NotASecret`] if it holds anything but one secret line.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let read_error = |source| IdentityError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read_error)?;
        let metadata = file.metadata().map_err(read_error)?;
        if !metadata.is_file() {
            return Err(IdentityError::NotASecret { path: path.to_owned() });
        }
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & MODE_OTHERS != 0 {
            return Err(IdentityError::Exposed { path: path.to_owned(), mode });
        }
        let mut text = Vec::new();
        file.take(SECRET_FILE_BYTES_MAX).read_to_end(&mut text).map_err(read_error)?;
        let secret = parse_secret(&text).ok_or_else(|| IdentityError::NotASecret { path: path.to_owned() })?;
        Ok(Self::from_random(secret))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("node_id", &self.node_id()).finish_non_exhaustive()
    }
}

/// Why an identity is not read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A key is never written over: remove it, or name another file.
    #[error("{} exists and is not written over", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file or its folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others than the owner may read or change the secret, and may have done so.
    #[error("{} has mode {mode:04o} and may be known to others: run chmod 600, or generate another key", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file does not hold one line `forebay-secret-v0:` and 64 hexadecimal digits.
    #[error("{} is no secret key file of forebay", path.display())]
    NotASecret {
        /// The file.
        path: PathBuf,
    },
}

/// `path` with `.pub` behind its whole name.
fn public_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".pub");
    PathBuf::from(name)
}

fn parse_secret(text: &[u8]) -> Option<[u8; 32]> {
    let digits = text.trim_ascii_end().strip_prefix(SECRET_PREFIX.as_bytes())?;
    let mut secret = [0; 32];
    hex::decode_to_slice(digits, &mut secret).ok()?;
    Some(secret)
}

/// Creates a file that was not there, with all of `text` in it on the disk, or none.
fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), IdentityError> {
    let error = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => IdentityError::Exists { path: path.to_owned() },
        _ => IdentityError::Write { path: path.to_owned(), source },
    };
    // Under another name first: a process that finds the file finds all of it.
    let permissions = fs::Permissions::from_mode(mode);
    let mut file = tempfile::Builder::new().permissions(permissions).tempfile_in(folder_of(path)).map_err(error)?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(error)?;
    file.persist_noclobber(path).map_err(|refused| error(refused.error))?;
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// Makes the names of new files in the folder of `path` durable.
fn sync_folder(path: &Path) -> Result<(), IdentityError> {
    let folder = folder_of(path);
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| IdentityError::Write { path: folder.to_owned(), source })
}

/// Removes what a failed write has left. The failure of the write is what the caller is told.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_loses_the_race_finds_the_whole_key() {
        for _ in 0..50 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("key");
            let made = std::thread::scope(|scope| {
                let makers: Vec<_> = (0..4_u8)
                    .map(|number| {
                        let path = &path;
                        forebay_cas::task::spawn_scoped(scope, "maker", move || {
                            match Identity::from_random([number; 32]).write_new(path) {
                                Ok(_) => 1,
                                Err(IdentityError::Exists { .. }) => {
                                    Identity::load(path).unwrap();
                                    0
                                }
                                Err(error) => panic!("{error}"),
                            }
                        })
                    })
                    .collect();
                makers.into_iter().map(forebay_cas::task::join).sum::<u32>()
            });
            assert_eq!(made, 1);
        }
    }

    /// RFC 8032 §7.1, test 1.
    const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    const SIGNATURE: &str = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";

    fn identity() -> Identity {
        Identity::from_random(hex::decode(SECRET).unwrap().try_into().unwrap())
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn equals_the_vector_of_rfc_8032() {
        let identity = identity();
        assert_eq!(identity.node_id().to_string(), PUBLIC);
        let signature = identity.sign(b"");
        assert_eq!(hex::encode(signature), SIGNATURE);
        assert_eq!(identity.node_id().verify(b"", &signature), Ok(()));
        assert!(identity.node_id().verify(b"x", &signature).is_err());
    }

    #[test]
    fn the_secret_is_not_shown() {
        let text = format!("{:?}", identity());
        assert!(text.contains(PUBLIC) && !text.contains(&SECRET[..16]));
    }

    #[test]
    fn files_round_trip_and_are_for_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.key");
        let public = identity().write_new(&path).unwrap();
        assert_eq!(public, folder.path().join("node.key.pub"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("forebay-secret-v0:{SECRET}\n"));
        assert_eq!(fs::read_to_string(public).unwrap(), format!("forebay-public-v0:{PUBLIC}\n"));
        assert_eq!(Identity::load(&path).unwrap().node_id(), identity().node_id());
    }

    #[test]
    fn nothing_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "mine").unwrap();
        assert!(matches!(identity().write_new(&path), Err(IdentityError::Exists { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");

        let path = folder.path().join("other");
        fs::write(public_path(&path), "mine").unwrap();
        assert!(matches!(identity().write_new(&path), Err(IdentityError::Exists { .. })));
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(public_path(&path)).unwrap(), "mine");
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        identity().write_new(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o644, 0o601] {
            set_mode(&path, mode);
            assert!(matches!(Identity::load(&path), Err(IdentityError::Exposed { mode: found, .. }) if found == mode));
        }
        set_mode(&path, 0o400);
        assert!(Identity::load(&path).is_ok());
    }

    #[test]
    fn other_files_are_no_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert!(matches!(Identity::load(&path), Err(IdentityError::Read { .. })));
        for text in [
            String::new(),
            SECRET.to_owned(),
            format!("{SECRET_PREFIX}{SECRET}00"),
            format!("{SECRET_PREFIX}{}", &SECRET[1..]),
            format!("{SECRET_PREFIX}{SECRET}\n{SECRET_PREFIX}{SECRET}\n"),
        ] {
            fs::write(&path, text).unwrap();
            set_mode(&path, 0o600);
            assert!(matches!(Identity::load(&path), Err(IdentityError::NotASecret { .. })));
        }
        set_mode(folder.path(), 0o700);
        assert!(matches!(Identity::load(folder.path()), Err(IdentityError::NotASecret { .. })));
    }
}
