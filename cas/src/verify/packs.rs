//! Verifying everything that is stored: segments, footers, every frame of every pack, and the padding between.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_format::{
    Digest, FRAME_HEADER_LEN, Limits, LogState, PackFooter, PackId, PackTrailer, Row, Segment, SegmentPack, TRAILER_LEN,
};

use super::{Findings, VerifyError, VerifyOptions, is_sampled};
use crate::cancel::Cancel;
use crate::class::{Classify, ErrorClass};
use crate::codec::{CodecError, Decoder};
use crate::numbers::{index, length};
use crate::origin::{Origin, OriginError};
use crate::packer::{pack_path, segment_path};
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
    let seed: [u8; 32] = repository.around.seed.stream("sample").bytes();
    let mut packs = listed_packs(repository, state, findings)?;
    packs.retain(|id, _| is_sampled(id.as_bytes(), &seed, options.sample_percent));
    Progress::add(&progress.bytes_total, packs.values().map(|listed| listed.pack.len).sum());
    let next = Mutex::new(packs.values());
    let work = || -> Result<(), VerifyError> {
        let mut decoder = Decoder::new();
        loop {
            let Some(listed) = next.lock().next() else { return Ok(()) };
            if cancel.is_cancelled() {
                return Err(VerifyError::Interrupted);
            }
            verify_pack(repository, listed, reader, &mut decoder, findings)?;
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

/// Reads all live segments from the origin.
fn listed_packs(
    repository: &Repository,
    state: &LogState,
    findings: &Findings<'_>,
) -> Result<BTreeMap<PackId, Listed>, VerifyError> {
    let mut packs: BTreeMap<PackId, Listed> = BTreeMap::new();
    for name in &state.segments {
        let path = segment_path(name.generation, name.id);
        let read = repository.around.runtime.block_on(repository.origin.get(&path, Limits::DEFAULT.segment_bytes));
        let segment = match read {
            Ok(bytes) => decode_segment(&path, &bytes, name.digest),
            Err(source) => Err(ReadError::Origin(source)),
        };
        let segment = match segment {
            Ok(segment) => segment,
            Err(error) => {
                findings.bad("index", error)?;
                continue;
            }
        };
        for (row, number) in segment.rows {
            let pack = segment.packs[index(number.into())];
            packs.entry(pack.id).or_insert_with(|| Listed { pack, rows: Vec::new() }).rows.push(row);
        }
    }
    for listed in packs.values_mut() {
        listed.rows.sort_unstable_by_key(|row| row.offset);
        listed.rows.dedup();
    }
    Ok(packs)
}

fn decode_segment(path: &str, bytes: &[u8], digest: Digest) -> Result<Segment, ReadError> {
    let decoded = if Digest::of(bytes) == digest {
        Segment::decode(bytes)
    } else {
        Err(forebay_format::DecodeError::Checksum { what: "index segment" })
    };
    decoded.map_err(|source| ReadError::Segment { path: path.to_owned(), source })
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
            findings.say("missing", format!("{path} with {} chunks: {source}", listed.rows.len()));
            return Ok(());
        }
    };
    if let Err(source) = check_footer(id, &bytes, &listed.rows) {
        Progress::add(&findings.corrupt, 1);
        findings.say("corrupt", format!("{path}: {source}"));
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
            Err(error) => findings.bad(&path, error)?,
        }
        let padding = bytes.get(end..index(row.offset.into())).unwrap_or_default();
        if padding.iter().any(|byte| *byte != 0) {
            Progress::add(&findings.corrupt, 1);
            findings.say("corrupt", format!("{path}: the padding before {} is not zero", row.offset));
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
    let what = "pack";
    let cut = || forebay_format::DecodeError::Truncated { what, needed: length(TRAILER_LEN), len: length(bytes.len()) };
    let trailer_at = bytes.len().checked_sub(TRAILER_LEN).ok_or_else(cut)?;
    let trailer = PackTrailer::decode(&bytes[trailer_at..])?;
    let footer_at = trailer_at.checked_sub(index(trailer.footer_len.into())).ok_or_else(cut)?;
    let footer = PackFooter::decode(id, &trailer, length(footer_at), &bytes[footer_at..trailer_at])?;
    let actual = length(footer.rows.len());
    if footer.rows_by_offset() == rows {
        return Ok(());
    }
    let claimed = length(rows.len());
    Err(forebay_format::DecodeError::Contradiction { what, field: "chunks, by index and by footer", claimed, actual })
}
