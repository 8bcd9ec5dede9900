//! A mount of a sandbox while it lasts.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::outcome::{Outcome, field};
use crate::sandbox::Sandbox;

/// What `forebay mount` made. Dropped, it is taken away, whatever state it is in.
#[derive(Debug)]
pub struct Mounted<'s> {
    sandbox: &'s Sandbox,
    dir: PathBuf,
    result: Value,
}

impl<'s> Mounted<'s> {
    /// Why nothing can be mounted here, if so.
    pub fn impossible() -> Option<String> {
        let device = fs::File::options().read(true).write(true).open("/dev/fuse");
        device.err().map(|error| format!("/dev/fuse cannot be opened ({error})"))
    }

    /// Mounts a version at a folder of the sandbox, which is made if it does not exist.
    #[track_caller]
    pub fn new(sandbox: &'s Sandbox, version: &str, folder: &str, more: &[&str]) -> Self {
        let dir = sandbox.path(folder);
        if fs::symlink_metadata(&dir).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            fs::create_dir_all(&dir).expect("a folder of the test can be made");
            sandbox.give();
        }
        let mut args = vec!["mount", version, folder];
        args.extend(more);
        let outcome = sandbox.json(args).ok();
        let result = outcome.result();
        Self { sandbox, dir, result }
    }

    /// A path below the mount.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.dir.join(relative)
    }

    /// The folder it is mounted on.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The result of `forebay mount`.
    pub fn result(&self) -> &Value {
        &self.result
    }

    /// Process that serves it.
    pub fn pid(&self) -> u32 {
        u32::try_from(field(&self.result, "pid")).expect("a process id fits into 32 bits")
    }

    /// What the server has written into its log.
    pub fn log(&self) -> String {
        let path = self.result["log"].as_str().unwrap_or_default();
        fs::read_to_string(path).unwrap_or_default()
    }

    /// Kills the server as `kill -9` does, and waits until it is gone.
    pub fn kill(&self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid()).expect("process ids are small"));
        let pid = pid.expect("a process id is not 0");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("the server runs");
        crate::wait_until("the server is gone", std::time::Duration::from_secs(5), || !is_running(self.pid()));
    }

    /// `forebay umount`, which must go well and leave no server behind.
    #[track_caller]
    pub fn umount(self) -> Outcome {
        let outcome = self.sandbox.json(["umount".into(), self.dir.clone().into_os_string()]).ok();
        assert!(!is_running(self.pid()), "the server is still there\n{outcome:?}");
        assert!(mount_sources(&self.dir).is_empty(), "there is still a mount");
        outcome
    }

    /// The most resident memory the server has had, in bytes.
    pub fn peak_rss_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says so");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        while !mount_sources(&self.dir).is_empty() {
            let ended = Command::new("umount").arg("-l").arg(&self.dir).stderr(Stdio::null()).status();
            if !ended.is_ok_and(|status| status.success()) {
                let _best_effort = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.dir).status();
                return;
            }
        }
    }
}

/// Whether a process is there and not only waiting to be collected.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Sources of all mounts at a folder, from `/proc/self/mounts`.
pub fn mount_sources(dir: &Path) -> Vec<String> {
    let table = fs::read("/proc/self/mounts").expect("Linux lists its mounts");
    let mut sources = Vec::new();
    for line in table.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (Some(source), Some(place)) = (fields.next(), fields.next()) else { continue };
        if place == dir.as_os_str().as_bytes() {
            sources.push(String::from_utf8_lossy(source).into_owned());
        }
    }
    sources
}
