//! Every metric of a node, by name.
//!
//! | name | kind | what |
//! |---|---|---|
//! | `forebay_sent_bytes_total{from}` | counter | frames sent, by where they came from: `site`, `gateway` |
//! | `forebay_sent_frames_total{from}` | counter | the same in frames |
//! | `forebay_avoided_bytes_total` | counter | stored bytes of announced fetches that need not cross the uplink |
//! | `forebay_wire_sent_bytes_total`, `forebay_wire_received_bytes_total` | counter | UDP payload |
//! | `forebay_connections` | gauge | open connections |
//! | `forebay_cache_used_bytes`, `forebay_cache_capacity_bytes`, `forebay_cache_entries` | gauge | the disk cache |
//! | `forebay_cache_evictions_total`, `forebay_cache_discarded_total`, `forebay_cache_refused_total` | counter | the same |
//! | `forebay_origin_read_bytes_total` | counter | bodies of the origin's answers to a gateway |

use forebay_transfer_proto::From;

use crate::store::StoreStats;

pub(crate) fn sent(from: From, bytes: u64) {
    let from = match from {
        From::Site => "site",
        From::Gateway => "gateway",
    };
    metrics::counter!("forebay_sent_bytes_total", "from" => from).increment(bytes);
    metrics::counter!("forebay_sent_frames_total", "from" => from).increment(1);
}

pub(crate) fn avoided(bytes: u64) {
    metrics::counter!("forebay_avoided_bytes_total").increment(bytes);
}

pub(crate) fn network(connections: usize, (sent, received): (u64, u64)) {
    metrics::gauge!("forebay_connections").set(u32::try_from(connections).unwrap_or(u32::MAX));
    metrics::counter!("forebay_wire_sent_bytes_total").absolute(sent);
    metrics::counter!("forebay_wire_received_bytes_total").absolute(received);
}

pub(crate) fn origin(read_bytes: u64) {
    metrics::counter!("forebay_origin_read_bytes_total").absolute(read_bytes);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats; 2^53 bytes are 9 PB")]
pub(crate) fn store(stats: &StoreStats) {
    metrics::gauge!("forebay_cache_used_bytes").set(stats.used_bytes as f64);
    metrics::gauge!("forebay_cache_capacity_bytes").set(stats.capacity_bytes as f64);
    metrics::gauge!("forebay_cache_entries").set(stats.entries as f64);
    metrics::counter!("forebay_cache_evictions_total").absolute(stats.evictions);
    metrics::counter!("forebay_cache_discarded_total").absolute(stats.discarded);
    metrics::counter!("forebay_cache_refused_total").absolute(stats.refused);
}
