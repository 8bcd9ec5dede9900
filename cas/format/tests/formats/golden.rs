//! Golden bytes of every object.
#![allow(clippy::disallowed_methods, reason = "the generator of the vectors is asked for by a variable")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::samples::samples;

#[test]
fn golden_bytes_stay_as_they_are() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    for sample in samples() {
        let name = sample.name;
        let path = folder.join(format!("{name}.hex"));
        let hex: String = sample
            .bytes
            .chunks(32)
            .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n")
            .collect();
        // FOREBAY_MAKE_VECTORS=1 writes them; a change of format shows in the diff.
        if std::env::var_os("FOREBAY_MAKE_VECTORS").is_some() {
            std::fs::write(&path, &hex).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        assert_eq!(hex, golden, "the format of {name} has changed");
        assert!((sample.decodes)(&sample.bytes), "{name}");
    }
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".hex"))
        .collect();
    let names = samples().iter().map(|sample| format!("{}.hex", sample.name)).collect();
    assert_eq!(files, names, "there is no golden file without a sample");
}
