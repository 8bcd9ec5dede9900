//! Numbers for the files of a read-only tree.
//!
//! A number is the first 64 bits of BLAKE3 over the number of the folder and the raw bytes of the name.
//! It therefore depends on the path alone: it is the same after a remount, on another machine and in the next
//! version of the tree, and nothing needs to be stored. Among n files two meet by chance with a probability of
//! n^2 / 2^65: one in 400 for 300 million. The one that is looked up second gets the next number of a
//! sequence that its path gives too, and keeps it while the mount lives, unless the kernel forgets it and
//! another path takes that number as well.
//!
//! Hard links: look up the path that stands first for the group, and all of them have one number.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

/// The number of a file in a mount: never 0 and never 2^32 - 1, which programs take for "no file".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(u64);

impl Ino {
    /// The root of the tree; FUSE fixes it to 1.
    pub const ROOT: Self = Self(1);

    /// The number as the kernel has it.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// A number that the kernel sent. It need not be in use.
    pub const fn from_kernel(number: u64) -> Self {
        Self(number)
    }

    const fn is_usable(self) -> bool {
        !matches!(self.0, 0 | 1 | NO_INODE_32 | u64::MAX)
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The files that the kernel refers to.
///
/// Calls: [`InodeTable::lookup`] each time a file is handed to the kernel, [`InodeTable::forget`] for each
/// forget of the kernel, [`InodeTable::number`] for folder listings, which take no reference.
///
/// A file stays as long as the kernel refers to it or to something below it; the root stays always. Memory is
/// proportional to what stays. Cost: O(log n) per call, and one hash of the name.
#[derive(Debug, Clone)]
pub struct InodeTable {
    nodes: BTreeMap<Ino, Node>,
    /// Paths whose first number was taken, with the one they got. Never shrinks; hardly ever has a member.
    displaced: BTreeMap<Place, Ino>,
    hash: fn(&Place, u32) -> Ino,
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    parent: Ino,
    name: Box<[u8]>,
}

#[derive(Debug, Clone)]
struct Node {
    /// `None` for the root.
    place: Option<Place>,
    /// References of the kernel.
    lookups: u64,
    /// Nodes of this table that lie directly in this one.
    children: u64,
}

impl Default for InodeTable {
    fn default() -> Self {
        Self::new()
    }
}

impl InodeTable {
    /// A table with the root alone.
    pub fn new() -> Self {
        Self::with_hash(hash)
    }

    fn with_hash(hash: fn(&Place, u32) -> Ino) -> Self {
        let root = Node { place: None, lookups: 1, children: 0 };
        Self { nodes: BTreeMap::from([(Ino::ROOT, root)]), displaced: BTreeMap::new(), hash }
    }

    /// The number of `name` in the folder `parent`; the kernel gets one more reference to it.
    ///
    /// # Errors
    /// [`InodeError`]; nothing has changed then.
    pub fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Ino, InodeError> {
        let place = self.place(parent, name)?;
        let (ino, is_first) = self.find(&place)?;
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.lookups += 1;
            return Ok(ino);
        }
        if is_first {
            self.displaced.remove(&place);
        } else {
            self.displaced.insert(place.clone(), ino);
        }
        self.nodes.insert(ino, Node { place: Some(place), lookups: 1, children: 0 });
        if let Some(folder) = self.nodes.get_mut(&parent) {
            folder.children += 1;
        }
        Ok(ino)
    }

    /// The number that [`InodeTable::lookup`] would give, without a reference.
    ///
    /// # Errors
    /// As for [`InodeTable::lookup`].
    pub fn number(&self, parent: Ino, name: &[u8]) -> Result<Ino, InodeError> {
        let place = self.place(parent, name)?;
        self.find(&place).map(|(ino, _)| ino)
    }

    /// Takes back `count` references of the kernel.
    ///
    /// # Errors
    /// [`InodeError::Unknown`], or [`InodeError::ForgetTooMany`]; nothing has changed then.
    pub fn forget(&mut self, ino: Ino, count: u64) -> Result<(), InodeError> {
        if ino == Ino::ROOT {
            return Ok(());
        }
        let node = self.nodes.get_mut(&ino).ok_or(InodeError::Unknown { ino })?;
        let lookups = node.lookups;
        node.lookups = lookups.checked_sub(count).ok_or(InodeError::ForgetTooMany { ino, lookups, count })?;
        self.drop_unused(ino);
        Ok(())
    }

    /// The folder and name of a file; `None` for the root, and for one that is not in the table.
    pub fn parent_and_name(&self, ino: Ino) -> Option<(Ino, &[u8])> {
        let place = self.nodes.get(&ino)?.place.as_ref()?;
        Some((place.parent, &place.name))
    }

    /// The names on the way from the root to a file; `None` for one that is not in the table.
    pub fn path(&self, ino: Ino) -> Option<Vec<&[u8]>> {
        let mut node = self.nodes.get(&ino)?;
        let mut names = Vec::new();
        while let Some(place) = &node.place {
            names.push(&*place.name);
            node = self.nodes.get(&place.parent)?;
        }
        names.reverse();
        Some(names)
    }

    /// Files in the table, the root included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing but the root is in the table.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    fn place(&self, parent: Ino, name: &[u8]) -> Result<Place, InodeError> {
        if !self.nodes.contains_key(&parent) {
            return Err(InodeError::Unknown { ino: parent });
        }
        if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
            return Err(InodeError::BadName { name: name.into() });
        }
        Ok(Place { parent, name: name.into() })
    }

    /// The number of a place, and whether it is the first of its sequence: that of its node if there is one,
    /// else one that is free. A node that has not its first number is in `displaced` with the one it has.
    fn find(&self, place: &Place) -> Result<(Ino, bool), InodeError> {
        if let Some(&ino) = self.displaced.get(place) {
            // A stranger may have got the number while this path had no node.
            if self.is_free_for(ino, place) {
                return Ok((ino, false));
            }
        }
        (0..ATTEMPTS_MAX)
            .map(|attempt| ((self.hash)(place, attempt), attempt == 0))
            .find(|&(ino, _)| ino.is_usable() && self.is_free_for(ino, place))
            .ok_or_else(|| InodeError::Exhausted { parent: place.parent, name: place.name.clone() })
    }

    fn is_free_for(&self, ino: Ino, place: &Place) -> bool {
        self.nodes.get(&ino).is_none_or(|node| node.place.as_ref() == Some(place))
    }

    /// Removes a node that nothing refers to, and then its parents as far as that holds for them.
    fn drop_unused(&mut self, ino: Ino) {
        let mut next = Some(ino);
        while let Some(ino) = next.take() {
            let unused = self.nodes.get(&ino).is_some_and(|node| node.lookups == 0 && node.children == 0);
            if !unused {
                return;
            }
            let place = self.nodes.remove(&ino).and_then(|node| node.place);
            next = place.map(|place| place.parent);
            if let Some(parent) = next.and_then(|parent| self.nodes.get_mut(&parent)) {
                parent.children -= 1;
            }
        }
    }
}

/// A request that a correct kernel does not make, or a name that is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InodeError {
    /// The number is not in the table: ESTALE.
    #[error("inode {ino} is not in use")]
    Unknown {
        /// The number.
        ino: Ino,
    },
    /// The name is empty, `.` or `..`, or has a slash or a zero byte: ENOENT.
    #[error("{:?} is not the name of a file", name.escape_ascii().to_string())]
    BadName {
        /// The name.
        name: Box<[u8]>,
    },
    /// More references were given back than were taken.
    #[error("{count} references to inode {ino} are given back, and {lookups} are out")]
    ForgetTooMany {
        /// The file.
        ino: Ino,
        /// References that are out.
        lookups: u64,
        /// References that were given back.
        count: u64,
    },
    /// All numbers that this path may have are taken: EIO. Chance does not do that.
    #[error("no inode number is left for {:?} in folder {parent}", name.escape_ascii().to_string())]
    Exhausted {
        /// Number of the folder.
        parent: Ino,
        /// The name.
        name: Box<[u8]>,
    },
}

/// The number of a place at this attempt. The layout of the input is fixed: another one renumbers all mounts.
fn hash(place: &Place, attempt: u32) -> Ino {
    let mut hasher = blake3::Hasher::new_derive_key("forebay inode number v0");
    hasher.update(&place.parent.0.to_le_bytes());
    hasher.update(&attempt.to_le_bytes());
    hasher.update(&place.name);
    let mut number = [0; 8];
    hasher.finalize_xof().fill(&mut number);
    Ino(u64::from_le_bytes(number))
}

/// Reserved as "no inode" by programs that keep 32 bits.
const NO_INODE_32: u64 = 0xffff_ffff;

/// Numbers tried for one path. Among 2^40 files one path in 2^24 needs the second; none gets to the last.
const ATTEMPTS_MAX: u32 = 64;

#[cfg(test)]
mod tests;
