//! A folder as a value: two folders are equal when their [`Tree`]s are.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};

/// Raw relative name → what is there. The root itself has the empty name.
pub type Tree = BTreeMap<Vec<u8>, Entry>;

/// What kind of thing a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A folder.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device.
    Special,
}

/// Everything of one name that a push and a fetch must keep.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Permission bits (0o7777); 0 for a link, whose own mode means nothing.
    pub mode: u32,
    /// Nanoseconds since 1970, negative before.
    pub mtime_ns: i128,
    /// The raw target of a link.
    pub target: Option<Vec<u8>>,
    /// Length of a regular file.
    pub size: u64,
    /// BLAKE3 of a regular file's bytes.
    pub content: Option<blake3::Hash>,
    /// First name (in byte order) of the same file, when the tree names it more than once.
    pub hard_link_of: Option<Vec<u8>>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = self.content.map_or_else(String::new, |hash| hash.to_hex()[..8].to_owned());
        write!(f, "{:?} {:o} mtime={} size={} {hash}", self.kind, self.mode, self.mtime_ns, self.size)?;
        if let Some(target) = &self.target {
            write!(f, " -> {}", target.escape_ascii())?;
        }
        if let Some(first) = &self.hard_link_of {
            write!(f, " = {}", first.escape_ascii())?;
        }
        Ok(())
    }
}

/// Reads the whole folder `root`, content included, without following links.
pub fn tree_of(root: impl AsRef<Path>) -> Tree {
    let root = root.as_ref();
    let mut tree = Tree::new();
    let mut inodes: BTreeMap<(u64, u64), Vec<Vec<u8>>> = BTreeMap::new();
    let mut folders = vec![Vec::new()];
    tree.insert(Vec::new(), entry_of(root));
    while let Some(folder) = folders.pop() {
        for name in names_in(&join(root, &folder)) {
            let mut relative = folder.clone();
            if !relative.is_empty() {
                relative.push(b'/');
            }
            relative.extend_from_slice(&name);
            let path = join(root, &relative);
            let meta = metadata(&path);
            if meta.is_file() && meta.nlink() > 1 {
                inodes.entry((meta.dev(), meta.ino())).or_default().push(relative.clone());
            }
            if meta.is_dir() {
                folders.push(relative.clone());
            }
            tree.insert(relative, entry_of(&path));
        }
    }
    for names in inodes.values_mut().filter(|names| names.len() > 1) {
        names.sort();
        for name in names.iter() {
            let entry = tree.get_mut(name).expect("the name was inserted above");
            entry.hard_link_of = Some(names[0].clone());
        }
    }
    tree
}

/// Fails with the first differing names when the two trees are not equal.
#[track_caller]
pub fn assert_tree_equal(got: &Tree, wanted: &Tree) {
    if got == wanted {
        return;
    }
    let mut lines = Vec::new();
    for (name, entry) in wanted {
        match got.get(name) {
            None => lines.push(format!("missing  {}", name.escape_ascii())),
            Some(other) if other != entry => {
                lines.push(format!("differs  {}\n  got    {other:?}\n  wanted {entry:?}", name.escape_ascii()));
            }
            Some(_) => {}
        }
    }
    for name in got.keys().filter(|name| !wanted.contains_key(*name)) {
        lines.push(format!("too much {}", name.escape_ascii()));
    }
    let count = lines.len();
    lines.truncate(20);
    assert_eq!(count, 0, "the trees differ in {count} names:\n{}", lines.join("\n"));
}

/// Every regular file below `root`, in byte order; empty when there is no such folder.
pub fn files_below(root: impl AsRef<Path>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.as_ref().to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(listing) = fs::read_dir(&folder) else { continue };
        for item in listing {
            let Ok(item) = item else { continue };
            // What a running command removes meanwhile is no file of the folder.
            let Ok(kind) = item.file_type() else { continue };
            if kind.is_dir() {
                folders.push(item.path());
            } else if kind.is_file() {
                files.push(item.path());
            }
        }
    }
    files.sort();
    files
}

/// Bytes on disk (not lengths) of everything below `root`.
pub fn allocated_bytes(root: impl AsRef<Path>) -> u64 {
    let mut inodes = BTreeMap::new();
    for path in files_below(root) {
        if let Ok(meta) = fs::symlink_metadata(path) {
            inodes.insert((meta.dev(), meta.ino()), meta.blocks() * 512);
        }
    }
    inodes.values().sum()
}

/// Whether any file below `root` holds `needle`.
pub fn contains_bytes(root: impl AsRef<Path>, needle: &[u8]) -> bool {
    files_below(root).iter().any(|path| {
        let content = fs::read(path).expect("a file of the test can be read");
        content.windows(needle.len()).any(|window| window == needle)
    })
}

/// Makes a named pipe.
pub fn make_fifo(path: impl AsRef<Path>) {
    rustix::fs::mknodat(CWD, path.as_ref(), FileType::Fifo, Mode::from_raw_mode(0o644), 0)
        .expect("a pipe of the test can be made");
}

/// Sets the modification time of `path` itself (a link is not followed) to `seconds` and `nanos` since 1970.
pub fn set_mtime(path: impl AsRef<Path>, seconds: i64, nanos: u32) {
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanos) };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path.as_ref(), &times, AtFlags::SYMLINK_NOFOLLOW)
        .expect("the time of a file of the test can be set");
}

fn entry_of(path: &Path) -> Entry {
    let meta = metadata(path);
    let kind = kind_of(&meta);
    Entry {
        kind,
        mode: if kind == Kind::Link { 0 } else { meta.permissions().mode() & 0o7777 },
        mtime_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
        target: (kind == Kind::Link).then(|| {
            let target = fs::read_link(path).expect("a link of the test can be read");
            target.into_os_string().into_vec()
        }),
        size: if kind == Kind::File { meta.len() } else { 0 },
        content: (kind == Kind::File).then(|| hash_of(path)),
        hard_link_of: None,
    }
}

fn kind_of(meta: &Metadata) -> Kind {
    let kind = meta.file_type();
    if kind.is_dir() {
        Kind::Dir
    } else if kind.is_symlink() {
        Kind::Link
    } else if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
        Kind::Special
    } else {
        Kind::File
    }
}

fn hash_of(path: &Path) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let opened = File::open(path);
    let mut file = opened.unwrap_or_else(|error| unreadable(path, &error));
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer).unwrap_or_else(|error| unreadable(path, &error));
        if read == 0 {
            return hasher.finalize();
        }
        hasher.update(&buffer[..read]);
    }
}

fn metadata(path: &Path) -> Metadata {
    fs::symlink_metadata(path).unwrap_or_else(|error| unreadable(path, &error))
}

fn names_in(folder: &Path) -> Vec<Vec<u8>> {
    let listing = fs::read_dir(folder).unwrap_or_else(|error| unreadable(folder, &error));
    listing.map(|item| item.expect("a folder of the test can be listed").file_name().into_vec()).collect()
}

fn join(root: &Path, relative: &[u8]) -> PathBuf {
    if relative.is_empty() { root.to_path_buf() } else { root.join(OsStr::from_bytes(relative)) }
}

#[expect(clippy::panic, reason = "a tree that cannot be read fails the test")]
fn unreadable<T>(path: &Path, error: &io::Error) -> T {
    panic!("cannot read {}: {error}", path.display())
}
