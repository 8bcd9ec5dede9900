//! Where the pieces of a file's content lie in the file, holes left out.

use std::ops::Range;

use forebay_format::{ChunkRef, DecodeError, FileEntry, FrameKind, Hole};

use crate::repository::ReadError;

/// Walks the content of a file from its start.
#[derive(Debug)]
pub(crate) struct Layout<'f> {
    holes: &'f [Hole],
    offset: u64,
    size: u64,
}

impl<'f> Layout<'f> {
    pub(crate) fn of(file: &'f FileEntry) -> Self {
        Self { holes: file.holes(), offset: 0, size: file.size }
    }

    /// File offset of the next chunk.
    ///
    /// A chunk never reaches over a hole: cutting starts anew behind one. A manifest that says otherwise is refused.
    pub(crate) fn place(&mut self, chunk: ChunkRef) -> Result<u64, ReadError> {
        self.skip_holes();
        let start = self.offset;
        let end = self.holes.first().map_or(self.size, |hole| hole.offset);
        if u64::from(chunk.len) > end - start {
            let (id, kind) = (chunk.id, FrameKind::Tree);
            let source = DecodeError::Field { what: "file", field: "chunk length", value: chunk.len.into() };
            return Err(ReadError::Content { id, kind, source });
        }
        self.offset += u64::from(chunk.len);
        Ok(start)
    }

    /// The parts of the file between its holes.
    pub(crate) fn extents(mut self) -> Vec<Range<u64>> {
        let mut extents = Vec::with_capacity(self.holes.len() + 1);
        loop {
            self.skip_holes();
            let end = self.holes.first().map_or(self.size, |hole| hole.offset);
            if self.offset == end {
                return extents;
            }
            extents.push(self.offset..end);
            self.offset = end;
        }
    }

    fn skip_holes(&mut self) {
        while let Some((hole, behind)) = self.holes.split_first()
            && hole.offset == self.offset
        {
            self.offset += hole.len;
            self.holes = behind;
        }
    }
}
