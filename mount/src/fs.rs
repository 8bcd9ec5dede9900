//! The answers to the kernel.
//!
//! The threads that take requests never wait: what is here is answered at once, what has to be read first goes to a
//! pool. There is one pool for names and attributes and one for bytes, so that slow reads hold up no look-up.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_cas::{Notices, Warning, chain};
use forebay_format::Timestamp;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};

use crate::error::TreeError;
use crate::folder::Access;
use crate::inode::Ino;
use crate::pool::Pool;
use crate::tree::{Attributes, NodeKind, ReadAhead, Tree};

/// Threads that read names and attributes which are not here yet.
const LOOK_UP_THREADS: usize = 8;
/// Threads that read bytes which are not here yet: so many requests can be on their way to a slow origin.
const READ_THREADS: usize = 16;
/// Threads that read ahead.
const READ_AHEAD_THREADS: usize = 2;
/// Requests that wait for a thread. The kernel has one of each thread that waits in a system call, and
/// [`BACKGROUND_MAX`] of its own.
const QUEUE: usize = 4096;
/// Ranges to be read ahead that wait for a thread; more are left to their readers.
const READ_AHEAD_QUEUE: usize = 32;
/// Requests that the kernel sends without anybody waiting, such as its own read-ahead.
const BACKGROUND_MAX: u16 = 64;
/// A snapshot never changes: 136 years, the longest time the kernel takes on 32-bit systems too.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);
/// The root alone is asked for again after this time, so that programs meet the end of a killed server, not only what the
/// kernel remembers of it.
const ROOT_FOR: Duration = Duration::from_secs(1);
/// Inode numbers are never used for another file.
const GENERATION: Generation = Generation(0);
const BLOCK_BYTES: u32 = 4096;
/// Longest name that can be asked for; the kernel's own limit is 1024 and most programs' is 255.
const NAME_BYTES_MAX: u32 = 255;

/// A tree for the kernel.
#[derive(Debug)]
pub(crate) struct KernelFs {
    shared: Arc<Shared>,
    look_ups: Pool,
    reads: Pool,
    read_ahead: Arc<Pool>,
    /// The kernel opens files and folders without asking.
    opens_itself: (bool, bool),
}

/// What every answer needs.
#[derive(Debug)]
struct Shared {
    tree: Arc<Tree>,
    owner: Owner,
    notices: Arc<dyn Notices>,
}

/// To whom everything belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl KernelFs {
    pub(crate) fn new(tree: Arc<Tree>, owner: Owner, notices: Arc<dyn Notices>) -> Self {
        Self {
            shared: Arc::new(Shared { tree, owner, notices }),
            look_ups: Pool::new("look-up", LOOK_UP_THREADS, QUEUE),
            reads: Pool::new("read", READ_THREADS, QUEUE),
            read_ahead: Arc::new(Pool::new("read-ahead", READ_AHEAD_THREADS, READ_AHEAD_QUEUE)),
            opens_itself: (false, false),
        }
    }

    /// Answers at once if everything needed is here, else from a pool. `work` returns the answer to give.
    fn answer<R, T>(
        &self,
        pool: &Pool,
        ino: Ino,
        reply: R,
        work: impl Fn(&Shared, Access) -> Result<T, TreeError> + Send + 'static,
        give: impl FnOnce(&Shared, R, Result<T, Errno>) + Send + 'static,
    ) where
        R: Send + 'static,
    {
        match work(&self.shared, Access::Cached) {
            Err(TreeError::NotCached) => {
                let shared = Arc::clone(&self.shared);
                pool.run(move || {
                    let result = work(&shared, Access::Load).map_err(|error| shared.errno(ino, &error));
                    give(&shared, reply, result);
                });
            }
            result => give(&self.shared, reply, result.map_err(|error| self.shared.errno(ino, &error))),
        }
    }
}

impl Shared {
    /// The number for an error; what cannot be read is told with its path and cause.
    fn errno(&self, ino: Ino, error: &TreeError) -> Errno {
        match error {
            TreeError::NotFound => Errno::ENOENT,
            TreeError::NotFolder => Errno::ENOTDIR,
            TreeError::IsFolder => Errno::EISDIR,
            TreeError::WrongKind => Errno::EINVAL,
            TreeError::Stale { .. } => Errno::ESTALE,
            TreeError::NotCached | TreeError::Inode(_) | TreeError::Read(_) => {
                let path = self.tree.path(ino);
                let message = format!("/{}: {}", path.escape_ascii(), chain(error));
                self.notices.warn(Warning { kind: "unreadable", message, path: Some(path) });
                Errno::EIO
            }
        }
    }

    fn attr(&self, found: &Attributes) -> FileAttr {
        let mtime = system_time(found.mtime);
        FileAttr {
            ino: INodeNo(found.ino.get()),
            size: found.size,
            blocks: found.data_bytes.div_ceil(512),
            atime: mtime,
            mtime,
            ctime: mtime,
            crtime: mtime,
            kind: file_type(found.kind),
            perm: u16::try_from(found.mode & 0o7777).unwrap_or(0),
            nlink: found.nlink,
            uid: self.owner.uid,
            gid: self.owner.gid,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    fn entry(&self, reply: ReplyEntry, found: Option<&Attributes>) {
        // A number of 0 tells the kernel to remember that there is no such name.
        let nothing = FileAttr { ino: INodeNo(0), ..self.attr(&NOTHING) };
        let attr = found.map_or(nothing, |found| self.attr(found));
        reply.entry(&FOR_EVER, &attr, GENERATION);
    }

    /// Answers a read, from here or from a pool; returns what to read ahead.
    fn read(
        &self,
        ino: Ino,
        range: (u64, u32),
        access: Access,
        reply: &mut Option<ReplyData>,
    ) -> Result<Option<ReadAhead>, TreeError> {
        self.tree.read(ino, range.0, range.1.into(), access, |bytes| {
            if let Some(reply) = reply.take() {
                reply.data(bytes);
            }
        })
    }

    /// Fills a listing. One that stops in the middle is given as far as it is; what was wrong shows when the kernel asks
    /// for the rest.
    fn list(&self, folder: Ino, cookie: u64, access: Access, reply: &mut ReplyDirectory) -> Result<(), TreeError> {
        let mut added = false;
        let listed = self.tree.list(folder, cookie, false, access, &mut |line| {
            let number = INodeNo(line.ino.get());
            let is_full = reply.add(number, line.cookie, file_type(line.kind), OsStr::from_bytes(line.name));
            added |= !is_full;
            !is_full
        });
        if added { Ok(()) } else { listed }
    }

    /// As [`Self::list`], with attributes and references.
    fn list_plus(
        &self,
        folder: Ino,
        cookie: u64,
        access: Access,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<(), TreeError> {
        let mut added = false;
        let listed = self.tree.list(folder, cookie, true, access, &mut |line| {
            let found = line.attributes.unwrap_or(Attributes { ino: line.ino, kind: line.kind, ..NOTHING });
            let (number, name) = (INodeNo(line.ino.get()), OsStr::from_bytes(line.name));
            let is_full = reply.add(number, line.cookie, name, &FOR_EVER, &self.attr(&found), GENERATION);
            added |= !is_full;
            !is_full
        });
        if added { Ok(()) } else { listed }
    }

    fn follow(self: &Arc<Self>, pool: &Pool, work: Option<ReadAhead>) {
        let Some(work) = work else { return };
        let (work, shared) = (Arc::new(work), Arc::clone(self));
        let job = Arc::clone(&work);
        if !pool.try_run(move || shared.tree.read_ahead(&job)) {
            self.tree.give_up(&work);
        }
    }
}

impl Filesystem for KernelFs {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ];
        for flag in wanted {
            // An older kernel goes without.
            let _without = config.add_capabilities(flag);
        }
        self.opens_itself = (
            config.add_capabilities(InitFlags::FUSE_NO_OPEN_SUPPORT).is_ok(),
            config.add_capabilities(InitFlags::FUSE_NO_OPENDIR_SUPPORT).is_ok(),
        );
        let _zero_is_refused = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (parent, name) = (ino(parent), name.as_bytes().to_vec());
        let work = move |shared: &Shared, access| shared.tree.look_up(parent, &name, access);
        self.answer(&self.look_ups, parent, reply, work, |shared, reply, result| match result {
            Ok(found) => shared.entry(reply, found.as_ref()),
            Err(errno) => reply.error(errno),
        });
    }

    fn forget(&self, _request: &Request, number: INodeNo, count: u64) {
        self.shared.tree.forget(ino(number), count);
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        let number = ino(number);
        let work = move |shared: &Shared, access| shared.tree.attributes(number, access);
        self.answer(&self.look_ups, number, reply, work, |shared, reply, result| match result {
            Ok(found) if found.ino == Ino::ROOT => reply.attr(&ROOT_FOR, &shared.attr(&found)),
            Ok(found) => reply.attr(&FOR_EVER, &shared.attr(&found)),
            Err(errno) => reply.error(errno),
        });
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        let number = ino(number);
        let work = move |shared: &Shared, access| shared.tree.target(number, access);
        self.answer(&self.look_ups, number, reply, work, |_, reply, result| match result {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        });
    }

    fn open(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.opens_itself.0 {
            // The kernel opens everything by itself from here on and keeps what it has read.
            return reply.error(Errno::ENOSYS);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn opendir(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.opens_itself.1 {
            return reply.error(Errno::ENOSYS);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let number = ino(number);
        let mut reply = Some(reply);
        let result = self.shared.read(number, (offset, size), Access::Cached, &mut reply);
        match result {
            Ok(work) => self.shared.follow(&self.read_ahead, work),
            Err(TreeError::NotCached) => {
                let (shared, read_ahead) = (Arc::clone(&self.shared), Arc::clone(&self.read_ahead));
                self.reads.run(move || match shared.read(number, (offset, size), Access::Load, &mut reply) {
                    Ok(work) => shared.follow(&read_ahead, work),
                    Err(error) => refuse(reply, shared.errno(number, &error)),
                });
            }
            Err(error) => refuse(reply, self.shared.errno(number, &error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let number = ino(number);
        match self.shared.list(number, offset, Access::Cached, &mut reply) {
            Ok(()) => reply.ok(),
            Err(TreeError::NotCached) => {
                let shared = Arc::clone(&self.shared);
                self.look_ups.run(move || match shared.list(number, offset, Access::Load, &mut reply) {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.error(shared.errno(number, &error)),
                });
            }
            Err(error) => reply.error(self.shared.errno(number, &error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let number = ino(number);
        match self.shared.list_plus(number, offset, Access::Cached, &mut reply) {
            Ok(()) => reply.ok(),
            Err(TreeError::NotCached) => {
                let shared = Arc::clone(&self.shared);
                self.look_ups.run(move || match shared.list_plus(number, offset, Access::Load, &mut reply) {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.error(shared.errno(number, &error)),
                });
            }
            Err(error) => reply.error(self.shared.errno(number, &error)),
        }
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        let totals = self.shared.tree.totals();
        let blocks = totals.bytes.div_ceil(BLOCK_BYTES.into()).max(1);
        let entries = totals.files.saturating_add(totals.dirs).saturating_add(totals.links);
        reply.statfs(blocks, 0, 0, entries, 0, BLOCK_BYTES, NAME_BYTES_MAX, BLOCK_BYTES);
    }

    fn lseek(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let (number, data) = (ino(number), whence == SEEK_DATA);
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        if !data && whence != SEEK_HOLE {
            return reply.error(Errno::EINVAL);
        }
        let work = move |shared: &Shared, access| shared.tree.seek(number, offset, data, access);
        self.answer(&self.look_ups, number, reply, work, |_, reply, result| match result {
            Ok(found) => match found.and_then(|offset| i64::try_from(offset).ok()) {
                Some(offset) => reply.offset(offset),
                None => reply.error(Errno::ENXIO),
            },
            Err(errno) => reply.error(errno),
        });
    }

    // There are no extended attributes: with this answer the kernel does not ask again.

    fn getxattr(&self, _request: &Request, _number: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _request: &Request, _number: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    // The mount is read-only, and the kernel sends none of what follows unless somebody mounts it anew as writable.

    fn setattr(
        &self,
        _request: &Request,
        _number: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mknod(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mkdir(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rmdir(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn symlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, _target: &Path, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn rename(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _new_parent: INodeNo,
        _new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn link(&self, _request: &Request, _number: INodeNo, _parent: INodeNo, _name: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn write(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        _data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EROFS);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn setxattr(
        &self,
        _request: &Request,
        _number: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn removexattr(&self, _request: &Request, _number: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }
}

fn refuse(reply: Option<ReplyData>, errno: Errno) {
    if let Some(reply) = reply {
        reply.error(errno);
    }
}

const fn ino(number: INodeNo) -> Ino {
    Ino::from_kernel(number.0)
}

const fn file_type(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::File => FileType::RegularFile,
        NodeKind::Folder => FileType::Directory,
        NodeKind::Symlink => FileType::Symlink,
    }
}

/// Times that the system cannot show become 1970.
fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(time.nanos.into());
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// Attributes of what does not exist.
const NOTHING: Attributes = Attributes {
    ino: Ino::from_kernel(0),
    kind: NodeKind::File,
    size: 0,
    data_bytes: 0,
    mode: 0,
    mtime: Timestamp { seconds: 0, nanos: 0 },
    nlink: 0,
};

/// `lseek` to the next data, as Linux numbers it.
const SEEK_DATA: i32 = 3;
/// `lseek` to the next hole.
const SEEK_HOLE: i32 = 4;
