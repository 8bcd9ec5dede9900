//! What a fuzzer does with bytes of a peer: a request, or the items of an answer.
//!
//! Shared by the fuzz targets and by the smoke test of `forebay-transfer-proto`.

use forebay_format::{FRAME_HEADER_LEN, Limits};
use forebay_transfer_proto::{Claim, Item, ItemReader, Request, Statement};

/// A target: its name, and what it does with bytes.
type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 2] = [("items", items), ("request", request)];

/// Tag, length and source of a frame stand before its header.
const FRAME_HEAD_LEN: usize = 6;
/// Tag and length.
const HEAD_LEN: usize = 5;

fn request(data: &[u8]) {
    let Ok(request) = Request::decode(data) else { return };
    assert_eq!(request.encode(), data);
    let body = &request.claim().body;
    if let Ok(claim) = Claim::decode(body) {
        assert_eq!(claim.encode(), *body);
    }
    if let Ok(statement) = Statement::decode(body) {
        assert_eq!(statement.encode(), *body);
    }
}

/// The first byte says in which pieces the others come.
fn items(data: &[u8]) {
    let Some((step, data)) = data.split_first() else { return };
    let step = usize::from(*step) + 1;
    for data in [data, &sealed(data)] {
        let whole = read(data, data.len().max(1));
        assert_eq!(read(data, step), whole, "an answer in pieces of {step} is another one");
        for item in &whole {
            let mut bytes = Vec::new();
            item.encode(&mut bytes);
            let again = read(&bytes, bytes.len());
            assert_eq!(again.len(), 1);
            // A message is cleaned when it is read, and long ones are cut when they are written.
            assert!(again[0] == *item || matches!(item, Item::Trouble { .. }));
        }
    }
}

/// The items up to the first that is none.
fn read(data: &[u8], step: usize) -> Vec<Item> {
    let mut reader = ItemReader::default();
    let mut items = Vec::new();
    for piece in data.chunks(step) {
        reader.feed(piece.to_vec().into());
        loop {
            match reader.next_item() {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(_) => return items,
            }
        }
        let longest =
            HEAD_LEN + 1 + FRAME_HEADER_LEN + usize::try_from(Limits::DEFAULT.chunk_bytes).unwrap_or(usize::MAX);
        assert!(reader.pending() <= longest, "a reader holds more than an item");
    }
    items
}

/// The same bytes with the right checksum in the header of a first frame, and the right length before it.
fn sealed(data: &[u8]) -> Vec<u8> {
    let mut sealed = data.to_vec();
    let Ok(len) = u32::try_from(data.len().saturating_sub(HEAD_LEN)) else { return sealed };
    if let Some(header) = sealed.get_mut(FRAME_HEAD_LEN..FRAME_HEAD_LEN + FRAME_HEADER_LEN) {
        let (body, crc) = header.split_at_mut(FRAME_HEADER_LEN - 4);
        crc.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        sealed[1..HEAD_LEN].copy_from_slice(&len.to_le_bytes());
    }
    sealed
}
