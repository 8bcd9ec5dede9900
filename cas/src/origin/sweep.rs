//! Removing what killed writers left in a folder.

use std::fs::{self, DirEntry};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use forebay_format::Timestamp;

/// Files younger than this may belong to a writer that is alive: nothing takes an hour to write 64 MiB.
const AGE_S: i64 = 3600;

/// Deletes staging files of the object store's client (`name#number`, never listed by it) that nobody has written to for
/// an hour. What cannot be looked at or deleted is left for the next time.
pub(crate) fn sweep(folder: &Path, now: Timestamp) {
    let mut todo: Vec<_> = ["pack", "index", "log", "ledger"].iter().map(|name| folder.join(name)).collect();
    todo.push(folder.to_owned());
    while let Some(path) = todo.pop() {
        let is_top = path == folder;
        let Ok(listing) = fs::read_dir(&path) else { continue };
        for item in listing.flatten() {
            match item.file_type() {
                Ok(kind) if kind.is_dir() && !is_top => todo.push(item.path()),
                Ok(kind) if kind.is_file() && is_staging(&item) && is_old(&item, now) => {
                    let result = fs::remove_file(item.path());
                    tracing::debug!(path = %item.path().display(), ?result, "swept a staging file");
                }
                _ => {}
            }
        }
    }
}

fn is_staging(item: &DirEntry) -> bool {
    let name = item.file_name();
    let name = name.to_string_lossy();
    name.rsplit_once('#').is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn is_old(item: &DirEntry, now: Timestamp) -> bool {
    item.metadata().is_ok_and(|metadata| metadata.mtime() + AGE_S < now.seconds)
}
