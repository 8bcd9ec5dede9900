//! Where the bytes of a file are: in its entry, in chunks, in chunks of lists, or nowhere (holes).

use std::ops::Range;
use std::sync::Arc;

use forebay_cas::ReadError;
use forebay_cas::numbers::index;
use forebay_format::{ChunkRef, Content, DecodeError, FileEntry, FrameKind, ListNode, ListRef};

/// The content of one file, lists read only where somebody asks for them.
#[derive(Debug)]
pub(crate) struct Layout {
    size: u64,
    /// What lies between the holes, in order.
    extents: Vec<Extent>,
    content: Content,
}

/// A run of content in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    /// Offset in the file.
    start: u64,
    /// Offset in the content, holes left out.
    content: u64,
    len: u64,
}

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'l> {
    /// Bytes that stand in the entry, with their offset in the file.
    Inline(u64, &'l [u8]),
    /// A chunk, with its offset in the file.
    Chunk(u64, ChunkRef),
}

impl Layout {
    /// The layout of a file whose entry has been checked.
    pub(crate) fn of(file: &FileEntry) -> Self {
        let mut extents = Vec::with_capacity(file.holes().len() + 1);
        let (mut start, mut content) = (0, 0);
        let ends = file.holes().iter().map(|hole| (hole.offset, hole.offset + hole.len));
        for (end, next) in ends.chain([(file.size, file.size)]) {
            if end > start {
                extents.push(Extent { start, content, len: end - start });
                content += end - start;
            }
            start = next;
        }
        Self { size: file.size, extents, content: file.content.clone() }
    }

    /// Length of the file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Roughly the memory this takes.
    pub(crate) fn weight(&self) -> u64 {
        let content = match &self.content {
            Content::Inline(bytes) => bytes.len(),
            Content::Chunks(chunks) => size_of_val(chunks.as_slice()),
            Content::Lists(_, lists) => size_of_val(lists.as_slice()),
        };
        (size_of::<Self>() + content + size_of_val(self.extents.as_slice())) as u64
    }

    /// The pieces that have bytes of `range`, in order; `list` reads lists.
    ///
    /// # Errors
    /// What `list` returns, or [`ReadError`] if lists or chunks are not as the entry says.
    pub(crate) fn parts<E: From<ReadError>>(
        &self,
        range: &Range<u64>,
        list: &mut impl FnMut(&ListRef) -> Result<Arc<ListNode>, E>,
    ) -> Result<Vec<Part<'_>>, E> {
        let mut parts = Vec::new();
        let first = self.extents.partition_point(|extent| extent.start + extent.len <= range.start);
        for extent in &self.extents[first..] {
            if extent.start >= range.end {
                break;
            }
            let from = range.start.max(extent.start) - extent.start + extent.content;
            let to = range.end.min(extent.start + extent.len) - extent.start + extent.content;
            match &self.content {
                Content::Inline(bytes) => {
                    let within = index(extent.content)..index(extent.content + extent.len);
                    parts.push(Part::Inline(extent.start, &bytes[within]));
                }
                Content::Chunks(chunks) => visit_chunks(chunks, 0, &(from..to), extent, &mut parts)?,
                Content::Lists(height, lists) => {
                    visit_lists(*height, lists, 0, &(from..to), extent, list, &mut parts)?;
                }
            }
        }
        Ok(parts)
    }

    /// First offset at or behind `offset` that has data; `None` if there is none.
    pub(crate) fn data_at(&self, offset: u64) -> Option<u64> {
        let next = self.extents.partition_point(|extent| extent.start + extent.len <= offset);
        self.extents.get(next).map(|extent| extent.start.max(offset))
    }

    /// First offset at or behind `offset` that has no data: in a hole, or the end of the file; `None` behind it.
    pub(crate) fn hole_at(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let next = self.extents.partition_point(|extent| extent.start + extent.len <= offset);
        let within = self.extents.get(next).filter(|extent| extent.start <= offset);
        Some(within.map_or(offset, |extent| extent.start + extent.len))
    }
}

/// Adds the chunks of a list, which starts at `offset` of the content, that have bytes of `range`.
fn visit_chunks(
    chunks: &[ChunkRef],
    mut offset: u64,
    range: &Range<u64>,
    extent: &Extent,
    parts: &mut Vec<Part<'_>>,
) -> Result<(), ReadError> {
    for chunk in chunks {
        if offset >= range.end {
            break;
        }
        let end = offset + u64::from(chunk.len);
        if end > range.start {
            // Cutting starts anew behind each hole: a chunk that reaches over one is no chunk of this file.
            if offset < extent.content || end > extent.content + extent.len {
                let (id, kind) = (chunk.id, FrameKind::Tree);
                let source = DecodeError::Field { what: "file", field: "chunk length", value: chunk.len.into() };
                return Err(ReadError::Content { id, kind, source });
            }
            parts.push(Part::Chunk(offset - extent.content + extent.start, *chunk));
        }
        offset = end;
    }
    Ok(())
}

/// As [`visit_chunks`], for lists of a height.
fn visit_lists<E: From<ReadError>>(
    height: u8,
    lists: &[ListRef],
    mut offset: u64,
    range: &Range<u64>,
    extent: &Extent,
    load: &mut impl FnMut(&ListRef) -> Result<Arc<ListNode>, E>,
    parts: &mut Vec<Part<'_>>,
) -> Result<(), E> {
    for list in lists {
        if offset >= range.end {
            break;
        }
        let end = offset + list.bytes;
        if end > range.start {
            match &*load(list)? {
                ListNode::Chunks(chunks) if height == 1 => visit_chunks(chunks, offset, range, extent, parts)?,
                ListNode::Lists(lists) if height > 1 => {
                    visit_lists(height - 1, lists, offset, range, extent, load, parts)?;
                }
                _ => {
                    let source = DecodeError::Field { what: "chunk list", field: "height", value: height.into() };
                    return Err(ReadError::Content { id: list.id, kind: FrameKind::List, source }.into());
                }
            }
        }
        offset = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
