//! The bodies of all fuzz targets; see `bodies` for what lies in a repository, `wire` for what peers say.

pub mod bodies;
pub mod wire;

/// Runs the target of this name.
///
/// # Panics
/// If there is no such target, or the target finds a fault.
pub fn run(name: &str, data: &[u8]) {
    let mut targets = bodies::TARGETS.iter().chain(&wire::TARGETS);
    let (_, body) = targets.find(|(known, _)| *known == name).expect("a target of this name");
    body(data);
}
