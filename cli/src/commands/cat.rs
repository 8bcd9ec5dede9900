//! `forebay cat`

use std::ffi::OsStr;

use forebay_cas::content::read_file;
use forebay_cas::pieces::PieceReader;
use forebay_cas::tree::{Found, find};
use forebay_cas::{ErrorClass, ReadError};
use forebay_format::EntryKind;

use crate::args::node::TransferArgs;
use crate::commands::ls::split_path;
use crate::context::Context;
use crate::failure::Failure;
use crate::library;
use crate::text;

pub(crate) fn run(context: &Context<'_>, path: &OsStr) -> Result<(), Failure> {
    let (version, path) = split_path(path)?;
    let Some(path) = path else {
        return Err(Failure::usage("cat takes NAME[@VERSION]:PATH"));
    };
    if context.output.is_json() {
        return Err(Failure::usage("cat prints the bytes of a file, which --json has no place for; leave --json out"));
    }
    let opened = library::open(context, &version, &TransferArgs::default(), false)?;
    let (version, reader) = (opened.version, opened.reader);
    let snapshot = reader.snapshot(version.snapshot)?;
    let shown = text::name(&path);
    let file = match find(&reader, &snapshot.root, &path)? {
        None => return Err(Failure::new(ErrorClass::NotFound, format_args!("{shown} is not in this version"))),
        Some(Found::Entry(entry)) => match entry.kind {
            EntryKind::File(file) => file,
            EntryKind::Symlink(target) => {
                let target = text::name(&target);
                return Err(Failure::usage(format_args!("{shown} is a symbolic link to {target}; cat prints files")));
            }
            EntryKind::Dir(_) => return Err(Failure::usage(format_args!("{shown} is a folder; cat prints files"))),
        },
        Some(Found::Root(_)) => return Err(Failure::usage("the root is a folder; cat prints files")),
    };
    read_file::<Stopped>(&mut PieceReader::new(&reader), &file, &mut |bytes| {
        if context.cancel.is_cancelled() {
            return Err(Stopped(Failure::new(ErrorClass::Interrupted, "interrupted")));
        }
        context.output.raw(bytes).map_err(Stopped)
    })
    .map_err(|Stopped(failure)| failure)?;
    context.output.flush()
}

/// Carries a failure through the reader.
struct Stopped(Failure);

impl From<ReadError> for Stopped {
    fn from(error: ReadError) -> Self {
        Self(error.into())
    }
}
