//! Lists that may be longer than memory: written once, then read from the start. Short ones stay in memory, longer
//! ones go to a file without a name in the cache folder, which is gone when the process is.

use std::io::{BufReader, BufWriter, Seek, SeekFrom};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use minicbor::{Decode, Encode};
use tempfile::SpooledTempFile;

use crate::class::{Classify, ErrorClass};

/// Bytes of a list that stay in memory: about 50,000 files.
const IN_MEMORY: usize = 8 << 20;
/// Written and read at once.
const BUFFER: usize = 64 << 10;

/// A list cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("a list of files cannot be kept in {}: make room there or point --cache-dir elsewhere", folder.display())]
pub struct SpoolError {
    folder: PathBuf,
    source: std::io::Error,
}

impl Classify for SpoolError {
    fn class(&self) -> ErrorClass {
        self.source.class()
    }
}

/// A list that is being written.
#[derive(Debug)]
pub(crate) struct Spool<T> {
    folder: PathBuf,
    writer: minicbor_io::Writer<BufWriter<SpooledTempFile>>,
    items: PhantomData<T>,
}

impl<T: Encode<()>> Spool<T> {
    /// An empty list; its file, should it need one, will be in the cache folder, or where that cannot be used, with the
    /// system's temporary files.
    pub(crate) fn new(cache: &Path) -> Self {
        let is_usable = std::fs::create_dir_all(cache).and_then(|()| tempfile::tempfile_in(cache)).is_ok();
        Self::in_folder(if is_usable { cache.to_owned() } else { std::env::temp_dir() })
    }

    fn in_folder(folder: PathBuf) -> Self {
        let file = tempfile::spooled_tempfile_in(IN_MEMORY, &folder);
        let mut writer = minicbor_io::Writer::new(BufWriter::with_capacity(BUFFER, file));
        writer.set_max_len(u32::MAX);
        Self { folder, writer, items: PhantomData }
    }

    /// Appends an item.
    ///
    /// # Errors
    /// [`SpoolError`] if the file cannot be made or written.
    pub(crate) fn push(&mut self, item: &T) -> Result<(), SpoolError> {
        self.writer.write(item).map(drop).map_err(|error| failed(&self.folder, error))
    }

    /// All items in their order.
    ///
    /// # Errors
    /// [`SpoolError`] if the file cannot be written.
    pub(crate) fn read(self) -> Result<SpoolReader<T>, SpoolError> {
        let Self { folder, writer, .. } = self;
        let rewound = |mut file: SpooledTempFile| file.seek(SeekFrom::Start(0)).map(|_| file);
        let file = writer.into_parts().0.into_inner().map_err(std::io::IntoInnerError::into_error).and_then(rewound);
        let file = file.map_err(|source| SpoolError { folder: folder.clone(), source })?;
        let mut reader = minicbor_io::Reader::new(BufReader::with_capacity(BUFFER, file));
        reader.set_max_len(u32::MAX);
        Ok(SpoolReader { folder, reader, items: PhantomData })
    }
}

/// A list that is being read.
#[derive(Debug)]
pub(crate) struct SpoolReader<T> {
    folder: PathBuf,
    reader: minicbor_io::Reader<BufReader<SpooledTempFile>>,
    items: PhantomData<T>,
}

impl<T> SpoolReader<T> {
    /// Begins again with the first item.
    ///
    /// # Errors
    /// [`SpoolError`] if the file cannot be read.
    pub(crate) fn rewind(&mut self) -> Result<(), SpoolError> {
        let sought = self.reader.reader_mut().seek(SeekFrom::Start(0));
        sought.map(drop).map_err(|source| SpoolError { folder: self.folder.clone(), source })
    }
}

impl<T: for<'b> Decode<'b, ()>> Iterator for SpoolReader<T> {
    type Item = Result<T, SpoolError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.reader.read().map_err(|error| failed(&self.folder, error)).transpose()
    }
}

fn failed(folder: &Path, error: minicbor_io::Error) -> SpoolError {
    let source = match error {
        minicbor_io::Error::Io(source) => source,
        other => std::io::Error::other(other),
    };
    SpoolError { folder: folder.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back_in_order_from_memory_and_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        // The second list is longer than what stays in memory.
        for (count, text) in [(3_u64, "short".to_owned()), (40, "long".repeat(IN_MEMORY / 100))] {
            let mut spool = Spool::new(folder.path());
            for number in 0..count {
                spool.push(&(number, text.clone())).unwrap();
            }
            let mut items = spool.read().unwrap();
            for _ in 0..2 {
                items.rewind().unwrap();
                let found: Vec<(u64, String)> = items.by_ref().collect::<Result<_, _>>().unwrap();
                assert!(found.iter().map(|item| item.0).eq(0..count) && found.iter().all(|item| item.1 == text));
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named_or_not_used() {
        let text = "long".repeat(IN_MEMORY);
        let error = Spool::in_folder(PathBuf::from("/proc/cache")).push(&text).unwrap_err();
        assert!(error.to_string().contains("/proc/cache"), "{error}");
        Spool::new(Path::new("/proc/cache")).push(&text).unwrap();
    }
}
