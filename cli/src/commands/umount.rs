//! `forebay umount`

use std::os::fd::OwnedFd;
use std::time::Duration;

use forebay_cas::{Notices, Warning};
use forebay_mount::{is_dead, our_mount, unmount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;

use crate::args::UmountArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

/// How long the end of a server is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(context: &Context<'_>, args: &UmountArgs) -> Result<(), Failure> {
    let mount = our_mount(&args.dir)?;
    let dead = is_dead(&mount.dir);
    let server = mount.server_pid().filter(|_| !dead).and_then(process);
    // Nobody can go on using a dead mount.
    unmount(&mount.dir, args.lazy || dead)?;
    if let Some(server) = server.filter(|_| !args.lazy)
        && !has_ended(&server)
    {
        let seconds = PATIENCE.as_secs();
        let message = format!("the mount is gone, but its server is still at work after {seconds} s");
        context.output.warn(Warning { kind: "server-alive", message, path: None });
    }
    let dir = mount.dir.as_os_str().as_encoded_bytes();
    context.output.line(&format!("{} is no longer mounted at {}", mount.name(), text::name(dir)))?;
    let mut result = json!({
        "version": mount.name(),
        "was_dead": dead,
        "seconds": context.elapsed().as_secs_f64(),
    });
    text::add_raw(&mut result, "dir", dir);
    context.output.result(result)?;
    context.output.flush()
}

/// The server, if it is a process of this machine and still this program.
fn process(pid: u32) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    name.trim_end().starts_with("forebay").then_some(process)
}

fn has_ended(process: &OwnedFd) -> bool {
    let patience = Timespec::try_from(PATIENCE).ok();
    loop {
        match poll(&mut [PollFd::new(process, PollFlags::IN)], patience.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            result => return result.is_ok_and(|ready| ready > 0),
        }
    }
}
