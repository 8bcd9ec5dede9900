//! A mount while it lasts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_cas::sync::{Receiver, RecvTimeoutError, bounded};
use forebay_cas::{Classify, ErrorClass, Notices, task};
use fuser::{Config, MountOption, Session, SessionACL};
use thiserror::Error;

use crate::fs::{KernelFs, Owner};
use crate::mounts::{Mount, MountPointError, unmount};
use crate::tree::Tree;

/// Threads that take requests from the kernel. They never wait, so that few are enough.
const THREADS: usize = 2;
/// The kernel's own read-ahead, where it lets itself be told. Below 1 MiB the requests are too short, above 4 MiB
/// nothing gets faster.
const KERNEL_READ_AHEAD_KIB: u32 = 1024;

/// How a tree is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOptions {
    /// An empty folder, from [`crate::MountPoint::prepare`].
    pub dir: PathBuf,
    /// What `df` shows.
    pub name: String,
    /// Whether other users may look at it.
    pub allow_other: bool,
}

/// A mounted tree. Dropped, it goes on: [`Server::unmount`] takes it away, and [`Server::join`] waits for its end.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    session: JoinHandle<io::Result<()>>,
    ended: Receiver<()>,
}

impl Server {
    /// Mounts a tree; when this returns, it answers.
    ///
    /// # Errors
    /// [`ServerError`] naming the folder.
    pub fn start(tree: Arc<Tree>, options: &ServerOptions, notices: Arc<dyn Notices>) -> Result<Self, ServerError> {
        let owner = Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() };
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::RO,
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::NoAtime,
            MountOption::DefaultPermissions,
            MountOption::FSName(Mount::source_of(&options.name, std::process::id())),
            MountOption::Subtype("forebay".to_owned()),
        ];
        config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(THREADS);
        let failed = |source| ServerError::Mount { dir: options.dir.clone(), source };
        let session = Session::new(KernelFs::new(tree, owner, notices), &options.dir, &config).map_err(failed)?;
        let (told, ended) = bounded(1);
        let session = task::spawn("fuse", move || {
            let result = session.run();
            let _nobody_waits = told.send(());
            result
        });
        let server = Self { dir: options.dir.clone(), session, ended };
        let metadata = fs::metadata(&server.dir).map_err(|source| server.does_not_answer(source))?;
        raise_read_ahead(std::os::unix::fs::MetadataExt::dev(&metadata));
        Ok(server)
    }

    /// Waits until the mount is gone, whoever took it away, or the time is over; says whether it is gone.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        !matches!(self.ended.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }

    /// Where it is mounted.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Takes the mount away; with `lazy`, those who use it may go on until they are done.
    ///
    /// # Errors
    /// [`MountPointError::Busy`] if somebody uses it.
    pub fn unmount(&self, lazy: bool) -> Result<(), MountPointError> {
        unmount(&self.dir, lazy)
    }

    /// Waits for the end of a mount that is gone.
    ///
    /// # Errors
    /// [`ServerError::Ended`] if it ended for another reason than being taken away.
    pub fn join(self) -> Result<(), ServerError> {
        let Self { dir, session, .. } = self;
        let result = session.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result.map_err(|source| ServerError::Ended { dir, source })
    }

    fn does_not_answer(&self, source: io::Error) -> ServerError {
        let _best_effort = self.unmount(true);
        ServerError::Mount { dir: self.dir.clone(), source }
    }
}

/// Tells the kernel to read further ahead than the 128 KiB that a file system may ask for by itself. Only root can.
fn raise_read_ahead(device: u64) {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = fs::write(&path, KERNEL_READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%error, path, "the kernel reads ahead as it does by itself");
    }
}

/// A mount cannot be made, or ended badly.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The kernel or its helper refuses.
    #[error("nothing can be mounted at {}{}", dir.display(), way_out(source))]
    Mount {
        /// The folder.
        dir: PathBuf,
        /// What they say.
        source: io::Error,
    },
    /// The connection to the kernel broke.
    #[error("the mount at {} ended", dir.display())]
    Ended {
        /// The folder.
        dir: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

fn way_out(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied if source.to_string().contains("user_allow_other") => {
            " for other users; write user_allow_other into /etc/fuse.conf, or leave --allow-other out"
        }
        io::ErrorKind::NotFound => "; ordinary users need fusermount3, from the package fuse3",
        _ => "",
    }
}

impl Classify for ServerError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Mount { source, .. } if source.to_string().contains("user_allow_other") => ErrorClass::Usage,
            Self::Mount { .. } | Self::Ended { .. } => ErrorClass::Failed,
        }
    }
}
