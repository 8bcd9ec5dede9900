//! The manifest of what was stored, built bottom-up as the walk goes on. In memory are the open folders' open nodes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::path::Path;

use forebay_format::{Directory, Entry, EntryKind, FileEntry};
use minicbor::{Decode, Encode};

use super::PushError;
use super::content::FileOutcome;
use super::equal::Shape;
use super::pipeline::Item;
use super::store::{Sink, Store};
use crate::index::StatRecord;
use crate::scan::{Attributes, FileKey, HardLinks, ScanFile, ScanItem};
use crate::spool::Spool;
use crate::tree::DirectoryBuilder;

/// A file whose record is kept for the next push.
#[derive(Debug, Encode, Decode)]
pub(super) struct Remembered {
    #[n(0)]
    pub(super) device: u64,
    #[n(1)]
    pub(super) inode: u64,
    #[n(2)]
    pub(super) record: StatRecord,
}

/// What became of everything below the root.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) root: Directory,
    /// Of the root folder.
    pub(super) attributes: Attributes,
    pub(super) shape: Shape,
    /// Files that changed while they were read.
    pub(super) changed: u64,
    /// Files that vanished before they were read.
    pub(super) vanished: u64,
    /// Files that the next push need not read if they are as they were. Those that changed so lately that another change
    /// could look the same are not among them.
    pub(super) remembered: Spool<Remembered>,
}

/// Takes the walk in its order.
pub(super) struct Manifest<'m, 's> {
    sink: Sink<'m, 's>,
    hard_links: &'m BTreeMap<FileKey, HardLinks>,
    /// Content of files with several names until the last of them has come; `None` if there is none.
    shared: BTreeMap<FileKey, (Option<StatRecord>, u64)>,
    /// The folders that are open, the root first.
    open: Vec<(Vec<u8>, Attributes, DirectoryBuilder)>,
    shape: Shape,
    changed: u64,
    vanished: u64,
    remembered: Spool<Remembered>,
}

impl<'m, 's> Manifest<'m, 's> {
    pub(super) fn new(
        store: &'m Store<'s>,
        root: Attributes,
        hard_links: &'m BTreeMap<FileKey, HardLinks>,
        cache: &Path,
    ) -> Self {
        Self {
            sink: store.manifest_sink(),
            hard_links,
            shared: BTreeMap::new(),
            open: vec![(Vec::new(), root, DirectoryBuilder::default())],
            shape: Shape::default(),
            changed: 0,
            vanished: 0,
            remembered: Spool::new(cache),
        }
    }

    /// Takes the next item.
    pub(super) fn take(&mut self, item: Item) -> Result<(), PushError> {
        match item {
            Item::File { file, outcome, .. } => self.file(file, outcome),
            Item::Other(ScanItem::Enter { name, attributes }) => {
                self.shape.enter(&name, attributes.mode);
                self.open.push((name, attributes, DirectoryBuilder::default()));
                Ok(())
            }
            Item::Other(ScanItem::Leave) => {
                self.shape.leave();
                let (name, Attributes { mode, mtime }, builder) =
                    self.open.pop().expect("the walk entered what it leaves");
                let directory = builder.finish(&mut self.sink)?;
                self.entry(Entry { name, mode, mtime, kind: EntryKind::Dir(directory) })
            }
            Item::Other(ScanItem::Symlink { name, attributes: Attributes { mode, mtime }, target }) => {
                self.shape.link(&name, &target);
                self.entry(Entry { name, mode, mtime, kind: EntryKind::Symlink(target) })
            }
            Item::Other(ScanItem::File(_)) => Ok(()),
        }
    }

    /// All items have been taken: stores what is open.
    pub(super) fn finish(mut self) -> Result<Stored, PushError> {
        let (_, attributes, builder) = self.open.pop().expect("the root is always open");
        let root = builder.finish(&mut self.sink)?;
        self.sink.finish()?;
        let Self { shape, changed, vanished, remembered, .. } = self;
        Ok(Stored { root, attributes, shape, changed, vanished, remembered })
    }

    fn file(&mut self, file: ScanFile, outcome: FileOutcome) -> Result<(), PushError> {
        let record = match outcome {
            FileOutcome::Stored(record, read_at) => {
                if record.stamp.is_settled(read_at) {
                    let (device, inode) = file.key();
                    self.remembered.push(&Remembered { device, inode, record: record.clone() })?;
                }
                Some(record)
            }
            FileOutcome::Reused(record) => Some(record),
            FileOutcome::Changed(record) => {
                self.changed += 1;
                Some(record)
            }
            FileOutcome::Vanished => {
                self.vanished += 1;
                None
            }
            FileOutcome::OtherName => None,
        };
        let links = self.hard_links.get(&file.key()).copied();
        let record = match links {
            Some(links) => self.of_all_names(file.key(), links, record),
            None => record,
        };
        let Some(StatRecord { stamp, digest, content, holes, .. }) = record else { return Ok(()) };
        self.shape.file(&file.name, file.mode, digest);
        let kind = EntryKind::File(FileEntry {
            size: stamp.size,
            digest,
            content: content.expect("content of a stored file is known"),
            holes,
            hard_link: links.map(|links| links.group),
        });
        self.entry(Entry { name: file.name, mode: file.mode, mtime: stamp.mtime, kind })
    }

    /// What the first of a file's names brought, for the others too.
    fn of_all_names(&mut self, key: FileKey, links: HardLinks, record: Option<StatRecord>) -> Option<StatRecord> {
        match self.shared.entry(key) {
            Slot::Vacant(slot) => slot.insert((record, links.names - 1)).0.clone(),
            Slot::Occupied(mut slot) => {
                slot.get_mut().1 -= 1;
                if slot.get().1 == 0 { slot.remove().0 } else { slot.get().0.clone() }
            }
        }
    }

    fn entry(&mut self, entry: Entry) -> Result<(), PushError> {
        let (_, _, builder) = self.open.last_mut().expect("the root is always open");
        builder.push(&mut self.sink, entry)
    }
}
