//! A folder, an environment and a user of their own for each test.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::outcome::Outcome;
use crate::running::{Plan, Running};
use crate::s3::S3Server;

/// The id of `nobody`, under which an ordinary user's runs go when the tests run as root.
const ORDINARY_ID: u32 = 65534;

/// A run ends in this time unless its case says otherwise.
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

/// Who runs the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Own,
    /// Somebody whom file modes bind: the caller, or `nobody` when the caller is root.
    Ordinary,
}

/// Where stdout goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdout {
    /// Into the [`Outcome`].
    Capture,
    /// Into the [`Outcome`], closed by the reader after so many bytes.
    Head(usize),
    /// Into a file.
    File(PathBuf),
}

/// A temporary folder with its own home, cache and repository; removed at the end, read-only folders included.
#[derive(Debug)]
pub struct Sandbox {
    dir: TempDir,
    user: User,
    binary: PathBuf,
    repo: OsString,
    env: Vec<(OsString, OsString)>,
}

impl Sandbox {
    /// A sandbox whose repository is a folder that does not exist yet.
    pub fn new() -> Self {
        Self::for_user(User::Own)
    }

    /// The same, run by `user`. With [`User::Ordinary`] under root, call [`Self::give`] after files were made.
    pub fn for_user(user: User) -> Self {
        let dir = TempDir::with_prefix("forebay-test-").expect("a temporary folder can be made");
        for folder in ["home", "tmp"] {
            fs::create_dir(dir.path().join(folder)).expect("a temporary folder can be made");
        }
        let repo = dir.path().join("repo").into_os_string();
        let mut sandbox = Self { dir, user, binary: binary(), repo, env: Vec::new() };
        if sandbox.changes_user() {
            // The build folder may lie where only its owner can go.
            let copy = sandbox.path("forebay");
            fs::copy(&sandbox.binary, &copy).expect("the binary can be copied");
            sandbox.binary = copy;
        }
        sandbox.give();
        sandbox
    }

    /// A sandbox whose repository lies in `server` under `prefix`.
    pub fn with_s3(server: &S3Server, prefix: &str) -> Self {
        let mut sandbox = Self::new();
        sandbox.repo = server.url(prefix).into();
        sandbox.env.extend(server.env());
        sandbox
    }

    /// Uses another repository from here on.
    pub fn set_repo(&mut self, repo: impl Into<OsString>) {
        self.repo = repo.into();
    }

    /// Sets a variable for all later runs.
    pub fn set_env(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.env.push((name.into(), value.into()));
    }

    /// A path below the sandbox.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(relative)
    }

    /// The folder of the default repository.
    pub fn repo_dir(&self) -> PathBuf {
        self.path("repo")
    }

    /// The cache folder.
    pub fn cache_dir(&self) -> PathBuf {
        self.path("cache")
    }

    /// Makes a folder below the sandbox, with its parents.
    pub fn mkdir(&self, relative: impl AsRef<Path>) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(&path).expect("a folder of the test can be made");
        path
    }

    /// Writes a file below the sandbox, with its parents.
    pub fn write(&self, relative: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder of the test can be made");
        fs::write(&path, content).expect("a file of the test can be written");
        path
    }

    /// Removes the cache folder, as a new machine would start.
    pub fn forget_cache(&self) {
        remove_all(&self.cache_dir());
    }

    /// Makes everything in the sandbox belong to the ordinary user; does nothing when the user is not changed.
    pub fn give(&self) {
        if self.changes_user() {
            give_below(self.dir.path());
        }
    }

    /// A command that can still be changed.
    pub fn command<I, S>(&self, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut env: Vec<(OsString, OsString)> = Vec::new();
        for name in ["PATH", "LD_LIBRARY_PATH"] {
            env.extend(env::var_os(name).map(|value| (name.into(), value)));
        }
        let home = self.path("home");
        env.push(("LANG".into(), "C.UTF-8".into()));
        env.push(("HOME".into(), home.clone().into()));
        env.push(("TMPDIR".into(), self.path("tmp").into()));
        env.push(("XDG_CACHE_HOME".into(), home.join("cache").into()));
        env.push(("XDG_CONFIG_HOME".into(), home.join("config").into()));
        env.push(("XDG_DATA_HOME".into(), home.join("data").into()));
        env.push(("FOREBAY_CACHE".into(), self.cache_dir().into()));
        env.push(("FOREBAY_REPO".into(), self.repo.clone()));
        env.extend(self.env.iter().cloned());
        Command {
            binary: self.binary.clone(),
            args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
            env,
            cwd: self.dir.path().to_path_buf(),
            change_user: self.changes_user(),
            under: Vec::new(),
            prelude: String::new(),
            redirect: String::new(),
            stdout: Stdout::Capture,
            limit: DEFAULT_LIMIT,
            binary_stdout: false,
        }
    }

    /// Runs the binary with `args` to its end.
    #[track_caller]
    pub fn run<I, S>(&self, args: I) -> Outcome
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command(args).run()
    }

    /// Runs the binary with `--json` and `args` to its end; every line of stdout must be JSON.
    #[track_caller]
    pub fn json<I, S>(&self, args: I) -> Outcome
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command(args).json().run()
    }

    /// `forebay cat` of one file: its bytes, whatever they are.
    #[track_caller]
    pub fn cat(&self, place: impl AsRef<OsStr>) -> Outcome {
        self.command([OsStr::new("cat"), place.as_ref()]).binary_stdout().run()
    }

    fn changes_user(&self) -> bool {
        self.user == User::Ordinary && is_root()
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        make_writable(self.dir.path());
    }
}

/// One run to be: arguments, environment, limits.
#[derive(Debug, Clone)]
#[must_use]
pub struct Command {
    binary: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    change_user: bool,
    under: Vec<OsString>,
    prelude: String,
    redirect: String,
    stdout: Stdout,
    limit: Duration,
    binary_stdout: bool,
}

impl Command {
    /// Puts `--json` in front of the arguments.
    pub fn json(mut self) -> Self {
        self.args.insert(0, "--json".into());
        self
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments at the end.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets one variable.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Takes one variable away.
    pub fn env_remove(mut self, name: &str) -> Self {
        self.env.retain(|(other, _)| other != name);
        self
    }

    /// Runs in another folder than the sandbox's own.
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = cwd.into();
        self
    }

    /// Shell commands that run first in the same process: `ulimit -n 256`, `umask 077`.
    pub fn prelude(mut self, prelude: &str) -> Self {
        self.prelude = format!("{prelude};");
        self
    }

    /// Another program with its arguments that starts the binary: `strace -f`.
    pub fn under<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.under = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// Redirections in shell syntax: `>&-`, `2>&-`, `>/dev/full`.
    pub fn redirect(mut self, redirect: &str) -> Self {
        redirect.clone_into(&mut self.redirect);
        self
    }

    /// Where stdout goes.
    pub fn stdout(mut self, stdout: Stdout) -> Self {
        self.stdout = stdout;
        self
    }

    /// Another limit than a minute.
    pub fn limit_s(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// stdout is content: every byte is allowed in it.
    pub fn binary_stdout(mut self) -> Self {
        self.binary_stdout = true;
        self
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn run(self) -> Outcome {
        let parses = self.is_json() && self.stdout == Stdout::Capture && self.redirect.is_empty();
        let outcome = self.start().wait();
        if parses {
            outcome.json_lines();
        }
        outcome
    }

    /// Starts it.
    #[track_caller]
    pub fn start(self) -> Running {
        let json = self.is_json();
        let shown = self.shown();
        let mut words: Vec<OsString> = Vec::new();
        if !(self.prelude.is_empty() && self.redirect.is_empty()) {
            let script = format!("{} exec \"$@\" {}", self.prelude, self.redirect);
            words.extend(["sh".into(), "-c".into(), script.into(), "sh".into()]);
        }
        if self.change_user {
            let id = ORDINARY_ID;
            words.extend(["setpriv".into(), format!("--reuid={id}").into(), format!("--regid={id}").into()]);
            words.push("--clear-groups".into());
        }
        words.extend(self.under);
        words.push(self.binary.into());
        words.extend(self.args);
        let mut command = process::Command::new(&words[0]);
        command.args(&words[1..]).env_clear().envs(self.env).current_dir(&self.cwd).process_group(0);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let head = match self.stdout {
            Stdout::Capture => None,
            Stdout::Head(len) => Some(len),
            Stdout::File(_) => None,
        };
        match &self.stdout {
            Stdout::Capture | Stdout::Head(_) => command.stdout(Stdio::piped()),
            Stdout::File(path) => command.stdout(File::create(path).expect("a file of the test can be made")),
        };
        let child = command.spawn();
        assert!(child.is_ok(), "cannot start {shown}: {child:?}");
        let plan = Plan { shown, limit: self.limit, head, binary_stdout: self.binary_stdout, json };
        Running::new(child.expect("checked in the line above"), plan)
    }

    fn is_json(&self) -> bool {
        self.args.iter().any(|arg| arg == "--json")
    }

    fn shown(&self) -> String {
        let args: Vec<_> = self.args.iter().map(|arg| arg.to_string_lossy().escape_debug().to_string()).collect();
        format!("{} forebay {} {}", self.prelude, args.join(" "), self.redirect).trim().to_owned()
    }
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the long forms are wanted: `make soak`.
pub fn soak() -> bool {
    env::var_os("FOREBAY_SOAK").is_some()
}

/// Says on stderr that a test, or a part of it, did not run, and why.
#[expect(clippy::print_stderr, reason = "a test that did not run must not look like one that passed")]
pub fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// The binary under test: `$FOREBAY_BIN`, else the one built beside this test.
fn binary() -> PathBuf {
    let path = env::var_os("FOREBAY_BIN").map_or_else(
        || {
            let test = env::current_exe().expect("a running test knows its own file");
            let target = test.parent().and_then(Path::parent).expect("a test lies in target/PROFILE/deps");
            target.join("forebay")
        },
        PathBuf::from,
    );
    let found = fs::canonicalize(&path);
    assert!(
        found.is_ok(),
        "there is no binary at {}: run `cargo build --workspace` first, or set FOREBAY_BIN",
        path.display()
    );
    found.expect("checked in the line above")
}

fn give_below(root: &Path) {
    lchown(root, Some(ORDINARY_ID), Some(ORDINARY_ID)).expect("root can give files away");
    let Ok(kind) = fs::symlink_metadata(root) else { return };
    if !kind.is_dir() {
        return;
    }
    for item in fs::read_dir(root).expect("root can list folders") {
        give_below(&item.expect("root can list folders").path());
    }
}

fn remove_all(root: &Path) {
    make_writable(root);
    match fs::remove_dir_all(root) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "cannot remove {}", root.display()),
    }
}

/// Read-only folders would outlive the test when it does not run as root.
fn make_writable(root: &Path) {
    let Ok(meta) = fs::symlink_metadata(root) else { return };
    if !meta.is_dir() {
        return;
    }
    if meta.permissions().mode() & 0o700 != 0o700 {
        fs::set_permissions(root, fs::Permissions::from_mode(0o700)).ok();
    }
    let Ok(listing) = fs::read_dir(root) else { return };
    for item in listing.flatten() {
        if item.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&item.path());
        }
    }
}
