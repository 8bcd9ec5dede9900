//! `forebay warm`

use std::collections::BTreeSet;
use std::slice;

use forebay_cas::source::Want;
use forebay_cas::tree::{Visitor, for_each_chunk, walk};
use forebay_cas::{ChunkReader, ErrorClass, Progress, ReadError};
use forebay_format::{Directory, Entry, EntryKind, FrameKind};
use serde_json::json;

use crate::args::node::WarmArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::library;
use crate::text;

pub(crate) fn run(context: &Context<'_>, args: &WarmArgs) -> Result<(), Failure> {
    let nodes = library::nodes(context)?;
    if nodes.is_empty() {
        return Err(Failure::usage("warm fills the cache of a node: name it with --node NODE_ID@HOST:PORT"));
    }
    let replicas = args.replicas.unwrap_or(nodes.len());
    if replicas == 0 || replicas > nodes.len() {
        let named = nodes.len();
        return Err(Failure::usage(format_args!("--replicas {replicas}: name as many nodes with --node, not {named}")));
    }
    let (mut bytes, mut moved) = (0, 0);
    let meter = context.meter("warm");
    for node in &nodes[..replicas] {
        let opened = library::open_at(context, slice::from_ref(node), &args.version, &args.transfer)?;
        let snapshot = opened.reader.snapshot(opened.version.snapshot)?;
        bytes = snapshot.root.totals.bytes;
        Progress::add(&meter.progress().bytes_total, bytes);
        let mut collector = Collector { reader: &opened.reader, wants: BTreeSet::new() };
        // The manifest is kept as it is read.
        walk(&opened.reader, &snapshot.root, &mut collector)?;
        let wants: Vec<Want> = collector.wants.into_iter().collect();
        opened.reader.source().reserve(&wants)?;
        let mut done = |plain_bytes| Progress::add(&meter.progress().bytes, plain_bytes);
        moved += opened.reader.source().warm(FrameKind::Data, &wants, &mut done)?;
        if context.cancel.is_cancelled() {
            return Err(Failure::new(ErrorClass::Interrupted, "interrupted; what is there stays there"));
        }
    }
    drop(meter);
    let seconds = context.elapsed().as_secs_f64();
    context.output.line(&format!(
        "{}: {} on {}, {} moved, {seconds:.1} s",
        args.version,
        text::bytes(bytes),
        text::count(replicas as u64, "node"),
        text::bytes(moved),
    ))?;
    context.output.result(json!({ "bytes": bytes, "bytes_moved": moved, "replicas": replicas, "seconds": seconds }))?;
    context.output.flush()
}

/// Chunks of all files.
struct Collector<'r> {
    reader: &'r ChunkReader,
    wants: BTreeSet<Want>,
}

impl Visitor for Collector<'_> {
    type Error = ReadError;

    fn enter(&mut self, _path: &[u8], _entry: &Entry, _directory: &Directory) -> Result<bool, ReadError> {
        Ok(true)
    }

    fn visit(&mut self, _path: &[u8], entry: &Entry) -> Result<(), ReadError> {
        let EntryKind::File(file) = &entry.kind else { return Ok(()) };
        let wants = &mut self.wants;
        for_each_chunk::<ReadError>(self.reader, file, |chunk| {
            wants.insert(Want { id: chunk.id, len: chunk.len });
            Ok(())
        })
    }
}
