//! The keys that are trusted or revoked on this machine: the file `forebay/trust` in the configuration folder.
//!
//! A line is a state, a public key and perhaps a comment: `trusted forebay-public-v0:… Ann`. The file is replaced as a
//! whole, under a lock, so that nobody reads half of it and no revocation is lost.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use forebay_cas::{Classify, ErrorClass};
use forebay_checkpoint::Keys;
use forebay_checkpoint::keys::{parse_key, parse_keys};
use forebay_transfer::NodeId;
use rustix::fs::FlockOperation;

use crate::failure::Failure;

/// Most bytes read of a file of keys: some ten thousand of them.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Whether a key is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// It is.
    Trusted,
    /// It never is again.
    Revoked,
}

impl Trust {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Revoked => "revoked",
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustEntry {
    pub(crate) trust: Trust,
    pub(crate) id: NodeId,
    pub(crate) comment: String,
}

/// All lines.
#[derive(Debug)]
pub(crate) struct TrustList {
    pub(crate) path: PathBuf,
    pub(crate) entries: Vec<TrustEntry>,
}

impl TrustList {
    /// Reads the list; without a file it is empty.
    pub(crate) fn load() -> Result<Self, Failure> {
        Self::load_from(default_path()?)
    }

    fn load_from(path: PathBuf) -> Result<Self, Failure> {
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(cannot_read(&path, &source)),
        };
        let mut entries = Vec::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            entries.push(parse_line(line).ok_or_else(|| {
                let path = path.display();
                Failure::usage(format_args!("{path}, line {number}, is no line of a trust list; remove or mend it"))
            })?);
        }
        Ok(Self { path, entries })
    }

    /// Changes the list as it is now, while nobody else can.
    pub(crate) fn change(change: impl FnOnce(&mut Self) -> Result<(), Failure>) -> Result<Self, Failure> {
        Self::change_at(default_path()?, change)
    }

    fn change_at(path: PathBuf, change: impl FnOnce(&mut Self) -> Result<(), Failure>) -> Result<Self, Failure> {
        let failed = |source: io::Error| {
            Failure::new(source.class(), format_args!("{} cannot be written: {source}", path.display()))
        };
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let mut lock = path.clone().into_os_string();
        lock.push(".lock");
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(lock).map_err(failed)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        let mut list = Self::load_from(path.clone())?;
        change(&mut list)?;
        list.write().map_err(failed)?;
        Ok(list)
    }

    fn write(&self) -> io::Result<()> {
        let mut temporary = self.path.clone().into_os_string();
        temporary.push(".new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        for entry in &self.entries {
            let line = format!("{} {} {}", entry.trust.as_str(), entry.id.public_line(), entry.comment);
            writeln!(file, "{}", line.trim_end())?;
        }
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        // The rename is durable with its folder.
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }

    /// Whether a key is trusted or revoked; `None` if it is not in the list.
    pub(crate) fn find(&self, id: NodeId) -> Option<Trust> {
        self.entries.iter().find(|entry| entry.id == id).map(|entry| entry.trust)
    }

    /// Puts a key into a state.
    pub(crate) fn set(&mut self, id: NodeId, trust: Trust, comment: Option<&str>) {
        match self.entries.iter_mut().find(|entry| entry.id == id) {
            Some(entry) => {
                entry.trust = trust;
                if let Some(comment) = comment {
                    comment.clone_into(&mut entry.comment);
                }
            }
            None => self.entries.push(TrustEntry { trust, id, comment: comment.unwrap_or_default().to_owned() }),
        }
    }

    /// The keys that are revoked.
    pub(crate) fn revoked(&self) -> BTreeSet<NodeId> {
        self.entries.iter().filter(|entry| entry.trust == Trust::Revoked).map(|entry| entry.id).collect()
    }
}

/// The keys of a file, or any key without one; those that are revoked here never count.
pub(crate) fn accepted_keys(file: Option<&Path>) -> Result<Keys, Failure> {
    let accepted = file.map(keys_in).transpose()?;
    Ok(Keys { accepted, revoked: TrustList::load()?.revoked() })
}

/// The public keys in a file.
pub(crate) fn keys_in(path: &Path) -> Result<BTreeSet<NodeId>, Failure> {
    let text = read_text(path).map_err(|source| cannot_read(path, &source))?;
    parse_keys(&text).map_err(|error| Failure::usage(format_args!("{}: {error}", path.display())))
}

/// The keys that `FILE|ID` names.
pub(crate) fn keys_named(key: &str) -> Result<BTreeSet<NodeId>, Failure> {
    match parse_key(key) {
        Some(id) => match id.check() {
            Ok(()) => Ok(BTreeSet::from([id])),
            Err(weak) => Err(Failure::usage(format_args!("{weak}: it cannot be trusted"))),
        },
        None => keys_in(Path::new(key)),
    }
}

fn default_path() -> Result<PathBuf, Failure> {
    let base = etcetera::choose_base_strategy().map_err(|error| {
        Failure::usage(format_args!("there is no configuration folder for the trust list: {error}"))
    })?;
    Ok(base.config_dir().join("forebay/trust"))
}

fn parse_line(line: &str) -> Option<TrustEntry> {
    let (state, rest) = line.trim().split_once(' ')?;
    let trust = [Trust::Trusted, Trust::Revoked].into_iter().find(|trust| trust.as_str() == state)?;
    let rest = rest.trim();
    let (key, comment) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(TrustEntry { trust, id: NodeId::from_public_line(key).ok()?, comment: comment.trim().to_owned() })
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let mut file = File::open(path)?.take(FILE_BYTES_MAX + 1);
    file.read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it is longer than any list of keys"));
    }
    Ok(text)
}

fn cannot_read(path: &Path, source: &io::Error) -> Failure {
    let class = if source.kind() == io::ErrorKind::InvalidData { ErrorClass::Usage } else { source.class() };
    Failure::new(class, format_args!("the keys in {} cannot be read: {source}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use forebay_transfer::Identity;

    use super::*;

    fn id(number: u8) -> NodeId {
        Identity::from_random([number; 32]).node_id()
    }

    #[test]
    fn lists_round_trip_and_are_for_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config/forebay/trust");
        let set = |number, trust, comment| {
            TrustList::change_at(path.clone(), |list| {
                list.set(id(number), trust, comment);
                Ok(())
            })
            .unwrap()
        };
        set(1, Trust::Trusted, Some("Ann, release"));
        set(2, Trust::Trusted, None);
        let list = set(1, Trust::Revoked, None);
        assert_eq!(
            (list.find(id(1)), list.find(id(2)), list.find(id(3))),
            (Some(Trust::Revoked), Some(Trust::Trusted), None)
        );
        assert_eq!(list.revoked(), BTreeSet::from([id(1)]));
        let again = TrustList::load_from(path.clone()).unwrap();
        assert_eq!(again.entries, list.entries);
        assert_eq!(again.entries[0].comment, "Ann, release");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(!folder.path().join("config/forebay/trust.new").exists());
    }

    #[test]
    fn a_damaged_list_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trust");
        for line in
            ["trusted", "believed forebay-public-v0:00", &format!("trusted {}", id(1)), "revoked forebay-public-v0:"]
        {
            fs::write(&path, format!("trusted {}\n{line}\n", id(1).public_line())).unwrap();
            let before = fs::read(&path).unwrap();
            let Err(Failure::Operation { message, .. }) = TrustList::load_from(path.clone()) else { panic!("{line}") };
            assert!(message.contains("line 2"), "{message}");
            assert!(TrustList::change_at(path.clone(), |_| Ok(())).is_err());
            assert_eq!(fs::read(&path).unwrap(), before);
        }
    }
}
