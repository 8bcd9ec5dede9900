//! `forebay ls`

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use forebay_cas::tree::{Found, Visitor, entries, find, walk};
use forebay_cas::{ErrorClass, ReadError};
use forebay_format::{Directory, Entry, EntryKind};
use serde_json::{Value, json};

use crate::args::LsArgs;
use crate::args::node::TransferArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::library;
use crate::text;

pub(crate) fn run(context: &Context<'_>, args: &LsArgs) -> Result<(), Failure> {
    let (version, path) = split_path(&args.path)?;
    let path = path.unwrap_or_default();
    let opened = library::open(context, &version, &TransferArgs::default(), false)?;
    let (version, reader) = (opened.version, opened.reader);
    let snapshot = reader.snapshot(version.snapshot)?;
    let mut lister = Lister { context, long: args.long, listed: 0 };
    let directory = match find(&reader, &snapshot.root, &path)? {
        None => {
            let path = text::name(&path);
            return Err(Failure::new(ErrorClass::NotFound, format_args!("{path} is not in this version")));
        }
        Some(Found::Root(directory)) => Some(directory),
        Some(Found::Entry(entry)) => match &entry.kind {
            EntryKind::Dir(directory) => Some(*directory),
            _ => {
                lister.show(&path, &entry)?;
                None
            }
        },
    };
    if let Some(directory) = directory {
        if args.recursive {
            walk(&reader, &directory, &mut lister).map_err(|Stopped(failure)| failure)?;
        } else {
            for entry in entries(&reader, &path, &directory)? {
                lister.show(&entry.name, &entry)?;
            }
        }
    }
    let totals = &snapshot.root.totals;
    context.output.result(json!({
        "snapshot": version.snapshot.to_hex(), "entries": lister.listed,
        "files": totals.files, "dirs": totals.dirs, "links": totals.links, "bytes": totals.bytes,
    }))?;
    context.output.flush()
}

/// Splits `NAME[@VERSION][:PATH]`; the path is raw bytes.
pub(super) fn split_path(text: &OsStr) -> Result<(String, Option<Vec<u8>>), Failure> {
    let bytes = text.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':');
    let (name, path) = match colon {
        None => (bytes, None),
        Some(at) => (&bytes[..at], Some(bytes[at + 1..].to_vec())),
    };
    match std::str::from_utf8(name) {
        Ok(name) => Ok((name.to_owned(), path)),
        Err(_) => Err(Failure::usage(format_args!("{} is not a name", text::name(name)))),
    }
}

struct Lister<'l, 'o> {
    context: &'l Context<'o>,
    long: bool,
    listed: u64,
}

impl Lister<'_, '_> {
    fn show(&mut self, path: &[u8], entry: &Entry) -> Result<(), Failure> {
        if self.context.cancel.is_cancelled() {
            return Err(Failure::new(ErrorClass::Interrupted, "interrupted"));
        }
        self.listed += 1;
        if self.context.output.is_json() {
            return self.context.output.item("entry", describe(path, entry));
        }
        let name = text::name(path);
        if !self.long {
            return self.context.output.line(&name);
        }
        let (letter, size, more) = match &entry.kind {
            EntryKind::File(file) => ('-', file.size, String::new()),
            EntryKind::Dir(directory) => ('d', directory.totals.bytes, String::new()),
            EntryKind::Symlink(target) => ('l', target.len() as u64, format!(" -> {}", text::name(target))),
        };
        let (mode, time) = (permissions(entry.mode), text::time(entry.mtime));
        self.context.output.line(&format!("{letter}{mode} {size:>13} {time} {name}{more}"))
    }
}

impl Visitor for Lister<'_, '_> {
    type Error = Stopped;

    fn enter(&mut self, path: &[u8], entry: &Entry, _: &Directory) -> Result<bool, Stopped> {
        self.show(path, entry).map_err(Stopped)?;
        Ok(true)
    }

    fn visit(&mut self, path: &[u8], entry: &Entry) -> Result<(), Stopped> {
        self.show(path, entry).map_err(Stopped)
    }
}

/// Carries a failure through the walk.
struct Stopped(Failure);

impl From<ReadError> for Stopped {
    fn from(error: ReadError) -> Self {
        Self(error.into())
    }
}

fn describe(path: &[u8], entry: &Entry) -> Value {
    let mut object = json!({
        "mode": format!("{:04o}", entry.mode),
        "mtime": text::time_json(entry.mtime),
        "mtime_ns": entry.mtime.as_nanos().to_string(),
    });
    text::add_path(&mut object, path);
    match &entry.kind {
        EntryKind::File(file) => {
            object["type"] = json!("file");
            object["size"] = json!(file.size);
            object["blake3"] = json!(file.digest.to_hex());
            if let Some(group) = file.hard_link {
                object["hard_link"] = json!(group.to_string());
            }
        }
        EntryKind::Dir(directory) => {
            object["type"] = json!("dir");
            object["size"] = json!(directory.totals.bytes);
        }
        EntryKind::Symlink(target) => {
            object["type"] = json!("link");
            text::add_raw(&mut object, "target", target);
        }
    }
    object
}

/// `rwxr-xr-x`, with the set-id and sticky bits in their places.
fn permissions(mode: u32) -> String {
    let mut text = String::with_capacity(9);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_as_ls_prints_them() {
        assert_eq!(permissions(0o755), "rwxr-xr-x");
        assert_eq!(permissions(0o4711), "rws--x--x");
        assert_eq!(permissions(0o1666), "rw-rw-rwT");
        assert_eq!(permissions(0), "---------");
    }
}
