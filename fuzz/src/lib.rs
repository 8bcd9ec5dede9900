//! The bodies of all fuzz targets; see `bodies`.

pub mod bodies;

/// Runs the target of this name.
///
/// # Panics
/// If there is no such target, or the target finds a fault.
pub fn run(name: &str, data: &[u8]) {
    let (_, body) = bodies::TARGETS.iter().find(|(known, _)| *known == name).expect("a target of this name");
    body(data);
}
