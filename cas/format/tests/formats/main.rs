//! What the formats promise: golden bytes, round trips, and refusal of everything else.

#[expect(unreachable_pub, reason = "shared with the fuzz targets, where it is public")]
#[path = "../../../../fuzz/src/bodies.rs"]
mod bodies;
mod cbor;
mod damage;
mod fuzz_smoke;
mod golden;
mod hostile;
mod log_rules;
mod round_trips;
mod samples;
mod strategies;
