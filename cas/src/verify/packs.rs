//! Verifying everything that is stored: segments, footers, every frame of every pack, and the padding between.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use forebay_format::{FRAME_HEADER_LEN, Limits, LogState, PackFooter, PackId, Row, Segment, SegmentPack, SegmentRef};

use super::{Findings, VerifyError, VerifyOptions, is_sampled};
use crate::cancel::Cancel;
use crate::class::{Classify, ErrorClass};
use crate::codec::{CodecError, Decoder};
use crate::numbers::{index, length};
use crate::origin::{Origin, OriginError};
use crate::packer::pack_path;
use crate::progress::Progress;
use crate::repository::{ChunkReader, ReadError, Repository, decode_frame};
use crate::sync::Mutex;
use crate::task;

/// Packs in memory at once, 64 MiB each: half of the memory bound.
const PACKS_AT_ONCE: usize = 4;

/// A pack as the segments describe it.
struct Listed {
    pack: SegmentPack,
    rows: Vec<Row>,
}

pub(super) fn verify(
    repository: &Repository,
    state: &LogState,
    options: &VerifyOptions,
    progress: &Progress,
    cancel: &Cancel,
    findings: &Findings<'_>,
    reader: Option<&ChunkReader>,
) -> Result<(), VerifyError> {
    let listing = Mutex::new(Listing {
        repository,
        segments: state.segments.iter(),
        open: Vec::new().into_iter(),
        seen: BTreeSet::new(),
        seed: repository.around.seed.stream("sample").bytes(),
        sample_percent: options.sample_percent,
    });
    let work = || -> Result<(), VerifyError> {
        let mut decoder = Decoder::new();
        loop {
            let next = listing.lock().next(findings, progress)?;
            let Some(listed) = next else { return Ok(()) };
            if cancel.is_cancelled() {
                return Err(VerifyError::Interrupted);
            }
            verify_pack(repository, &listed, reader, &mut decoder, findings)?;
            Progress::add(&progress.bytes, listed.pack.len);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..options.threads.clamp(1, PACKS_AT_ONCE)).map(|_| task::spawn_scoped(scope, "verify", work)).collect();
        threads.into_iter().map(task::join).collect::<Result<Vec<()>, _>>()
    })?;
    Ok(())
}

/// The packs of all live segments, one segment in memory at a time, each pack once: a segment lists a pack whole or not at all.
struct Listing<'l> {
    repository: &'l Repository,
    segments: std::slice::Iter<'l, SegmentRef>,
    open: std::vec::IntoIter<Listed>,
    seen: BTreeSet<PackId>,
    seed: [u8; 32],
    sample_percent: f64,
}

impl Listing<'_> {
    /// The next pack of the sample. How much there is to read shows segment by segment.
    fn next(&mut self, findings: &Findings<'_>, progress: &Progress) -> Result<Option<Listed>, VerifyError> {
        loop {
            if let Some(listed) = self.open.next() {
                return Ok(Some(listed));
            }
            let Some(name) = self.segments.next() else { return Ok(None) };
            match self.repository.segment(name) {
                Ok(segment) => self.open = self.listed(segment).into_iter(),
                Err(error) => findings.bad_segment(error)?,
            }
            Progress::add(&progress.bytes_total, self.open.as_slice().iter().map(|listed| listed.pack.len).sum());
        }
    }

    fn listed(&mut self, segment: Segment) -> Vec<Listed> {
        let Self { seen, seed, sample_percent, .. } = self;
        let mut take =
            |pack: &SegmentPack| is_sampled(pack.id.as_bytes(), seed, *sample_percent) && seen.insert(pack.id);
        let mut packs: Vec<Option<Listed>> =
            segment.packs.iter().map(|pack| take(pack).then(|| Listed { pack: *pack, rows: Vec::new() })).collect();
        for (row, number) in segment.rows {
            if let Some(listed) = &mut packs[index(number.into())] {
                listed.rows.push(row);
            }
        }
        let mut packs: Vec<Listed> = packs.into_iter().flatten().collect();
        packs.iter_mut().for_each(|listed| listed.rows.sort_unstable_by_key(|row| row.offset));
        packs
    }
}

/// Reads a whole pack and checks each byte of it.
fn verify_pack(
    repository: &Repository,
    listed: &Listed,
    reader: Option<&ChunkReader>,
    decoder: &mut Decoder,
    findings: &Findings<'_>,
) -> Result<(), VerifyError> {
    let id = listed.pack.id;
    let path = pack_path(id);
    let bytes = match repository.around.runtime.block_on(read_pack(&repository.origin, &path)) {
        Ok(bytes) => bytes,
        Err(source) => {
            if !matches!(source.class(), ErrorClass::NotFound | ErrorClass::Corrupt) {
                return Err(ReadError::Origin(source).into());
            }
            Progress::add(&findings.missing, length(listed.rows.len()));
            findings.bad_pack(id);
            findings.damaged.lock().chunks.extend(listed.rows.iter().map(|row| (row.header.kind, row.id())));
            findings.say("missing", format!("{path} with {} chunks: {source}", listed.rows.len()));
            return Ok(());
        }
    };
    if let Err(source) = check_footer(id, &bytes, &listed.rows) {
        findings.bad_pack(id);
        findings.corrupt(format!("{path}: {source}"));
    }
    let mut buffer = Vec::new();
    let mut end = 0;
    for row in &listed.rows {
        let frame = bytes.get(index(row.offset.into())..index(row.end()));
        let result = match frame {
            Some(frame) => verify_frame(id, row, frame, reader, decoder, &mut buffer),
            None => Err(ReadError::Frame { id: row.id(), pack: path.clone(), offset: row.offset.into() }),
        };
        match result {
            Ok(()) => findings.good(row.header.plain_len.into()),
            Err(error) => {
                // What a patch is made of may be damaged elsewhere.
                if error.chunk() == Some(row.id()) {
                    findings.bad_pack(id);
                }
                findings.bad_chunk(&path, row.header.kind, row.id(), error)?;
            }
        }
        let padding = bytes.get(end..index(row.offset.into())).unwrap_or_default();
        if padding.iter().any(|byte| *byte != 0) {
            findings.bad_pack(id);
            findings.corrupt(format!("{path}: the padding before {} is not zero", row.offset));
        }
        end = index(row.end());
    }
    Ok(())
}

/// Decodes a frame. A patch needs its base, from wherever it lies; where the index cannot be read, only its stored bytes are
/// checked.
fn verify_frame(
    pack: PackId,
    row: &Row,
    frame: &[u8],
    reader: Option<&ChunkReader>,
    decoder: &mut Decoder,
    buffer: &mut Vec<u8>,
) -> Result<(), ReadError> {
    let base = row.header.base.zip(reader).map(|(base, reader)| reader.base(base, row.header.depth)).transpose()?;
    match decode_frame(pack, row, frame, base.as_deref(), decoder, buffer) {
        Err(ReadError::Codec(CodecError::Base { .. })) => {
            Ok(decoder.check(&row.header, &frame[FRAME_HEADER_LEN..], buffer)?)
        }
        decoded => decoded.map(|_plain| ()),
    }
}

async fn read_pack(origin: &Arc<Origin>, path: &str) -> Result<Bytes, OriginError> {
    origin.get(path, Limits::DEFAULT.pack_bytes).await
}

/// Checks trailer and footer, and that footer and segments say the same.
fn check_footer(id: PackId, bytes: &[u8], rows: &[Row]) -> Result<(), forebay_format::DecodeError> {
    let footer = PackFooter::of_pack(id, bytes)?;
    let actual = length(footer.rows.len());
    if footer.rows_by_offset() == rows {
        return Ok(());
    }
    let claimed = length(rows.len());
    Err(forebay_format::DecodeError::Contradiction {
        what: "pack",
        field: "chunks, by index and by footer",
        claimed,
        actual,
    })
}
