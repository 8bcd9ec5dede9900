//! Mount points: what lies on them, which are ours, which are dead, and how they are taken away.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_cas::{Classify, ErrorClass};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use thiserror::Error;

/// Mounts of this program have a source that starts so, then the id of the server process, `]:` and what is mounted.
const SOURCE_PREFIX: &str = "forebay[";
const DEVICE: &str = "/dev/fuse";
/// Takes mounts away for ordinary users.
const HELPER: &str = "fusermount3";

/// A mount, as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// `fuse`, `ext4`, …
    pub kind: String,
    /// What is mounted, as whoever mounted it says.
    pub source: String,
    /// Where.
    pub dir: PathBuf,
}

impl Mount {
    /// The topmost mount at a folder.
    ///
    /// # Errors
    /// [`MountPointError::Table`] if the kernel's list cannot be read.
    pub fn at(dir: &Path) -> Result<Option<Self>, MountPointError> {
        let table = fs::read("/proc/self/mountinfo").map_err(MountPointError::Table)?;
        let mut newest_first = table.rsplit(|byte| *byte == b'\n').filter_map(parse);
        Ok(newest_first.find(|mount| mount.dir == dir))
    }

    /// The source of a mount of ours.
    #[must_use]
    pub fn source_of(name: &str, pid: u32) -> String {
        format!("{SOURCE_PREFIX}{pid}]:{name}")
    }

    /// Whether this program made it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(&*self.kind, "fuse" | "fuse.forebay") && self.server_pid().is_some()
    }

    /// Process that serves a mount of ours, in the namespace it was started in.
    #[must_use]
    pub fn server_pid(&self) -> Option<u32> {
        let (pid, _) = self.source.strip_prefix(SOURCE_PREFIX)?.split_once("]:")?;
        pid.parse().ok()
    }

    /// What is mounted, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        self.source.split_once("]:").map_or(&self.source, |(_, name)| name)
    }
}

/// What a folder is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPoint {
    /// Absolute, without links.
    pub dir: PathBuf,
    /// The mount that a killed server left there and that was taken away.
    pub cleaned: Option<Mount>,
}

impl MountPoint {
    /// Looks at a folder and makes it ready for a mount: takes a dead mount of ours away, refuses everything that would
    /// be hidden.
    ///
    /// # Errors
    /// [`MountPointError`] naming the folder.
    pub fn prepare(dir: &Path) -> Result<Self, MountPointError> {
        check_device()?;
        let found = find(dir)?;
        let mut cleaned = None;
        while is_dead(&found) {
            match Mount::at(&found)? {
                Some(mount) if mount.is_ours() => {
                    unmount(&found, true)?;
                    cleaned = Some(mount);
                }
                Some(mount) => {
                    return Err(MountPointError::Stranger { dir: found, source_name: mount.source, dead: true });
                }
                None => return Err(MountPointError::Unreadable { dir: found, source: Errno::NOTCONN.into() }),
            }
        }
        let unreadable = |source| MountPointError::Unreadable { dir: found.clone(), source };
        let metadata = fs::metadata(&found).map_err(unreadable)?;
        if !metadata.is_dir() {
            return Err(MountPointError::NotFolder { dir: found });
        }
        if let Some(mount) = Mount::at(&found)?.filter(Mount::is_ours) {
            return Err(MountPointError::Mounted { dir: found, name: mount.name().to_owned() });
        }
        if fs::read_dir(&found).map_err(unreadable)?.next().is_some() {
            return Err(MountPointError::NotEmpty { dir: found });
        }
        Ok(Self { dir: found, cleaned })
    }
}

/// Finds the mount of ours at a folder, alive or dead.
///
/// # Errors
/// [`MountPointError::Stranger`] or [`MountPointError::NotMounted`] if there is none.
pub fn our_mount(dir: &Path) -> Result<Mount, MountPointError> {
    let found = find(dir)?;
    match Mount::at(&found)? {
        Some(mount) if mount.is_ours() => Ok(mount),
        Some(mount) => {
            let dead = is_dead(&found);
            Err(MountPointError::Stranger { dir: found, source_name: mount.source, dead })
        }
        None => Err(MountPointError::NotMounted { dir: found }),
    }
}

/// Whether the server of the mount at this folder is gone. The question is one that the kernel never answers from what
/// it remembers.
#[must_use]
pub fn is_dead(dir: &Path) -> bool {
    matches!(rustix::fs::statfs(dir), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Takes the topmost mount at a folder away; `lazy` leaves it to those who use it until they are done.
///
/// # Errors
/// [`MountPointError::Busy`] if somebody uses it and `lazy` is not set.
pub fn unmount(dir: &Path, lazy: bool) -> Result<(), MountPointError> {
    let mut flags = UnmountFlags::NOFOLLOW;
    if lazy {
        flags |= UnmountFlags::DETACH;
    }
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountPointError::Busy { dir: dir.to_owned() }),
        // Ordinary users may not; for their own FUSE mounts a helper may.
        Err(Errno::PERM) => unmount_by_helper(dir, lazy),
        Err(source) => Err(MountPointError::Unmount { dir: dir.to_owned(), detail: source.to_string() }),
    }
}

fn unmount_by_helper(dir: &Path, lazy: bool) -> Result<(), MountPointError> {
    let failed = |detail: String| MountPointError::Unmount { dir: dir.to_owned(), detail };
    let mut command = Command::new(HELPER);
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(dir);
    let output =
        command.output().map_err(|source| failed(format!("{HELPER} cannot be run ({source}); install fuse3")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    if said.to_lowercase().contains("busy") {
        return Err(MountPointError::Busy { dir: dir.to_owned() });
    }
    Err(failed(said))
}

fn check_device() -> Result<(), MountPointError> {
    match fs::File::options().read(true).write(true).open(DEVICE) {
        Ok(_) => Ok(()),
        Err(source) => Err(MountPointError::Device { source }),
    }
}

/// The absolute path of a mount point without links. The last name may be a dead mount, which cannot be looked at.
fn find(dir: &Path) -> Result<PathBuf, MountPointError> {
    let unreadable = |source| MountPointError::Unreadable { dir: dir.to_owned(), source };
    match fs::canonicalize(dir) {
        Ok(found) => Ok(found),
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            let absolute = std::path::absolute(dir).map_err(unreadable)?;
            let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
                return Err(unreadable(error));
            };
            Ok(fs::canonicalize(parent).map_err(unreadable)?.join(name))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(MountPointError::NoFolder { dir: dir.to_owned() }),
        Err(error) => Err(unreadable(error)),
    }
}

/// One line of `/proc/self/mountinfo`: ids, root, mount point, options, optional fields, `-`, type, source, options.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let dir = unescape(fields.nth(4)?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    let (kind, source) = (text(rest.next()?), text(rest.next()?));
    Some(Mount { kind, source, dir: PathBuf::from(std::ffi::OsString::from_vec(dir)) })
}

/// Takes back the kernel's `\040`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *byte == b'\\');
        let number = digits.and_then(|digits| u8::from_str_radix(OsStr::from_bytes(digits).to_str()?, 8).ok());
        plain.push(number.unwrap_or(*byte));
        rest = if number.is_some() { &behind[3..] } else { behind };
    }
    plain
}

/// A folder cannot be mounted on, or a mount not taken away.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountPointError {
    /// There is no FUSE, or not for this user.
    #[error("/dev/fuse cannot be used{}", device_way_out(source))]
    Device {
        /// What the system says.
        source: io::Error,
    },
    /// The folder does not exist.
    #[error("the folder {} does not exist; make it first", dir.display())]
    NoFolder {
        /// The folder.
        dir: PathBuf,
    },
    /// It is no folder.
    #[error("{} is not a folder; name an empty one", dir.display())]
    NotFolder {
        /// The path.
        dir: PathBuf,
    },
    /// It has something in it, which would be hidden.
    #[error("the folder {} is not empty, and a mount would hide what is in it; name an empty one", dir.display())]
    NotEmpty {
        /// The folder.
        dir: PathBuf,
    },
    /// There is a mount of ours already.
    #[error("{name} is mounted at {} already; `forebay umount {}` takes it away", dir.display(), dir.display())]
    Mounted {
        /// The folder.
        dir: PathBuf,
        /// What is mounted.
        name: String,
    },
    /// There is a mount of another program.
    #[error(
        "{} is {}a mount of another program ({source_name}) and is left alone; take it away with that program or `umount`",
        dir.display(), if *dead { "what is left of " } else { "" }
    )]
    Stranger {
        /// The folder.
        dir: PathBuf,
        /// What is mounted.
        source_name: String,
        /// Whether its server is gone.
        dead: bool,
    },
    /// There is no mount.
    #[error("nothing is mounted at {}; `grep forebay /proc/self/mounts` lists what is", dir.display())]
    NotMounted {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder cannot be looked at.
    #[error("{} cannot be looked at", dir.display())]
    Unreadable {
        /// The folder.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody uses the mount.
    #[error(
        "{} is in use; close what is open there (`fuser -vm {}` lists it), or add --lazy",
        dir.display(), dir.display()
    )]
    Busy {
        /// The folder.
        dir: PathBuf,
    },
    /// The mount cannot be taken away.
    #[error("{} cannot be unmounted: {detail}", dir.display())]
    Unmount {
        /// The folder.
        dir: PathBuf,
        /// What the system says.
        detail: String,
    },
    /// The kernel's list of mounts cannot be read.
    #[error("/proc/self/mountinfo cannot be read")]
    Table(#[source] io::Error),
}

fn device_way_out(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            " by this user; its usual mode is 666 (`chmod 666 /dev/fuse`), or mount as root, or use `forebay fetch`"
        }
        _ => {
            "; load it with `modprobe fuse`, or start the container with `--device /dev/fuse --cap-add SYS_ADMIN`, or \
             use `forebay fetch`"
        }
    }
}

impl Classify for MountPointError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NoFolder { .. }
            | Self::NotFolder { .. }
            | Self::NotEmpty { .. }
            | Self::Mounted { .. }
            | Self::Stranger { .. }
            | Self::NotMounted { .. } => ErrorClass::Usage,
            Self::Device { .. }
            | Self::Unreadable { .. }
            | Self::Busy { .. }
            | Self::Unmount { .. }
            | Self::Table(_) => ErrorClass::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read_with_its_escapes() {
        let line =
            br"64 29 0:52 / /mnt/two\040words\134 ro,nosuid shared:7 master:2 - fuse forebay[12]:a/b@3 ro,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!(mount.dir, Path::new(r"/mnt/two words\"));
        assert_eq!((mount.server_pid(), mount.name(), mount.is_ours()), (Some(12), "a/b@3", true));
        assert_eq!(mount.source, Mount::source_of("a/b@3", 12));
        let line = b"64 29 0:52 / /mnt rw - fuse.sshfs forebay[12]:a rw";
        assert!(!parse(line).unwrap().is_ours());
        for source in ["forebay", "forebay[x]:a", "sshfs#forebay[1]:a"] {
            let mount = Mount { kind: "fuse".to_owned(), source: source.to_owned(), dir: PathBuf::new() };
            assert!(!mount.is_ours(), "{source}");
        }
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn folders_that_cannot_be_mounted_on_are_named() {
        let error = find(Path::new("/nonexistent/forebay")).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Usage);
        assert!(error.to_string().contains("/nonexistent/forebay"), "{error}");
        let error = our_mount(Path::new("/usr")).unwrap_err();
        assert!(matches!(error, MountPointError::NotMounted { .. }), "{error}");
    }
}
